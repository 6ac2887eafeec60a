// One stream of server-sent events from each node. The page begins with its own origin; the cluster names the others.
// When a node dies, its stream is tried again while the others go on: nobody has to reload the page.
const RETRY_MS = 1500, RETRY_MAX_MS = 15_000;

export class Streams {
  constructor(model, onChange) {
    this.model = model;
    this.onChange = onChange;
    this.open = new Map();   // base URL -> EventSource
    this.names = new Map();  // base URL -> name of its node, once known
    this.retries = new Map();  // base URL -> failures in sequence
    this.prepare = async () => {};  // called with a base URL before its stream is opened: signs in there
  }

  start() { this.connect(location.origin); }

  // Base URLs of all nodes, our own origin first.
  bases() { return [...this.open.keys()]; }

  baseOf(name) {
    for (const [base, found] of this.names) if (found === name) return base;
    return null;
  }

  connect(base) {
    const source = new EventSource(`${base}/api/live`, { withCredentials: true });
    this.open.set(base, source);
    const on = (event, handle) => source.addEventListener(event, (message) => {
      handle(JSON.parse(message.data));
      this.onChange();
    });
    on("samples", (samples) => { source.past = samples; });
    on("node", (frame) => {
      this.names.set(base, frame.status.name);
      this.retries.delete(base);
      if (source.past) { this.model.samplesArrived(frame.status.name, source.past); source.past = null; }
      this.model.nodeReported(frame);
    });
    on("cluster", (frame) => {
      this.model.clusterReported(frame);
      for (const peer of frame.cluster?.nodes ?? []) this.reach(peer);
    });
    source.onerror = () => {
      this.model.nodeLost(this.names.get(base));
      if (source.readyState === EventSource.CLOSED) this.tryAgain(base, source);
      this.onChange();
    };
  }

  tryAgain(base, source) {
    const failures = this.retries.get(base) ?? 0;
    this.retries.set(base, failures + 1);
    setTimeout(async () => {
      await this.prepare(base);
      if (this.open.get(base) === source) this.connect(base);
    }, Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** failures));
  }

  async reach(peer) {
    const known = [...this.names.values()].includes(peer.name);
    const base = `${location.protocol}//${peer.admin}`;
    if (known || !peer.admin || this.open.has(base)) return;
    this.open.set(base, null);
    await this.prepare(base);
    this.connect(base);
  }
}
