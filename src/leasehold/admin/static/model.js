// Everything that the page knows: the last frame of each node, the cluster as the store records it, and the samples.
// It changes only in the methods below; the views read it.
export const SILENT_MS = 4000;  // a node without a frame for this long does not answer
const BUCKET_MS = 2000;
const GAP_BUCKETS = 15;  // a longer time without a sample is shown as a gap
const KEPT_MS = 3_600_000;
const LEAST_MS = 60_000;  // the shortest time that a chart shows

// A leader whose lease has run out since its last frame does not lead, whatever it said then.
function leads({ frame, receivedMs }) {
  return frame.status.may_serve && frame.lease_left_ms > performance.now() - receivedMs;
}

// One sample of a node in each bucket, by position from the bucket `first`. Nodes sample at moments of their own, so a
// bucket that has only a standby's sample would show a cluster without calls. A sample says what happened since the one
// before, and fills the buckets between them; the newest stands until the bucket `present`.
function spread(samples, first, present) {
  const filled = new Map();
  samples.forEach((sample, index) => {
    const own = bucket(sample.wall_ms), before = samples[index - 1], after = samples[index + 1];
    const gap = before ? own - bucket(before.wall_ms) : 1;
    const from = gap <= GAP_BUCKETS ? own - gap + 1 : own;
    for (let at = Math.min(from, own); at <= own; at += 1) filled.set(at - first, sample);
    if (!after) for (let at = own + 1; at <= Math.min(present, own + GAP_BUCKETS); at += 1) filled.set(at - first, sample);
  });
  return filled;
}

const bucket = (ms) => Math.floor(ms / BUCKET_MS);

export class Model {
  constructor() {
    this.live = new Map();     // name -> {frame, receivedMs}
    this.samples = new Map();  // name -> samples, oldest first
    this.cluster = null;
    this.clusterMs = 0;
    this.history = [];
    this.clusterWorries = [];
    this.problem = "";
  }

  nodeReported(frame) {
    const name = frame.status.name;
    this.live.set(name, { frame, receivedMs: performance.now() });
    const samples = this.samples.get(name) || [];
    if (frame.sample && frame.sample.wall_ms > (samples.at(-1)?.wall_ms ?? 0)) samples.push(frame.sample);
    this.samples.set(name, this.recent(samples));
  }

  // Its stream broke: do not show its last words as the present.
  nodeLost(name) {
    const seen = this.live.get(name);
    if (seen) seen.receivedMs = -Infinity;
  }

  // A node that was replaced has a new past: what it forgot is kept here.
  samplesArrived(name, samples) {
    const first = samples[0]?.wall_ms ?? Infinity;
    const older = (this.samples.get(name) || []).filter((sample) => sample.wall_ms < first);
    this.samples.set(name, this.recent([...older, ...samples]));
  }

  recent(samples) {
    const oldest = Date.now() - KEPT_MS;
    const at = samples.findIndex((sample) => sample.wall_ms >= oldest);
    return at > 0 ? samples.slice(at) : samples;
  }

  clusterReported(frame) {
    this.problem = frame.problem;
    if (frame.problem) return;
    this.cluster = frame.cluster;
    this.clusterMs = performance.now();
    this.history = frame.history;
    this.clusterWorries = frame.worries;
  }

  answers(name) {
    const seen = this.live.get(name);
    return Boolean(seen) && performance.now() - seen.receivedMs < SILENT_MS;
  }

  // The nodes in the order of the picture: the primary first, those that do not answer last. Registered ones, and those that report.
  nodes() {
    const found = new Map((this.cluster?.nodes ?? []).map((peer) => [peer.name, { name: peer.name, peer }]));
    for (const [name, { frame, receivedMs }] of this.live) {
      if (found.has(name) || this.answers(name)) {
        found.set(name, { ...(found.get(name) ?? { name, peer: null }), frame, receivedMs });
      }
    }
    const list = [...found.values()].map((node) => ({ ...node, answers: this.answers(node.name) }));
    return list.map((node) => ({ ...node, leads: node.answers && leads(node) })).sort((a, b) => b.leads - a.leads || b.answers - a.answers || a.name.localeCompare(b.name));
  }

  primary() {
    return this.nodes().find((node) => node.leads) ?? null;
  }

  // The node whose index is shown: the primary, else the most advanced one that answers.
  best() {
    const answering = this.nodes().filter((node) => node.answers);
    const rank = (node) => (node.leads ? 1e18 : 0) + node.frame.status.applied_n;
    return answering.sort((a, b) => rank(b) - rank(a))[0] ?? null;
  }

  worries() {
    const found = new Map();
    const add = (worry) => found.set(worry.what, worry);
    if (this.problem) add({ what: `The cluster's state cannot be read: ${this.problem}`, remedy: "Check the coordination store, and the way to it.", serious: true });
    else this.clusterWorries.forEach(add);
    for (const node of this.nodes()) {
      if (node.answers) node.frame.worries.forEach(add);
      else add({ what: `${node.name} does not answer${node.peer ? ` at ${node.peer.admin}` : ""}`, remedy: "Check that it runs, and that this browser can reach it.", serious: false });
    }
    return [...found.values()].sort((a, b) => b.serious - a.serious);
  }

  // Samples of all nodes on one axis. Only the primary serves, so a sum over nodes is the cluster.
  series(minutes) {
    const end = Math.floor(Date.now() / BUCKET_MS);
    const oldest = Math.min(Infinity, ...[...this.samples.values()].filter((each) => each.length).map((each) => each[0].wall_ms));
    const known = Math.max(LEAST_MS, Date.now() - oldest);  // a young cluster's charts are not mostly empty
    const count = Math.ceil(Math.min(minutes * 60_000, Number.isFinite(known) ? known : LEAST_MS) / BUCKET_MS);
    const points = Array.from({ length: count }, (_, at) => ({ ms: (end - count + at + 1) * BUCKET_MS, samples: [] }));
    for (const [name, samples] of this.samples) {
      for (const [at, sample] of spread(samples, end - count + 1, this.answers(name) ? end : -Infinity)) points[at]?.samples.push(sample);
    }
    return points;
  }
}
