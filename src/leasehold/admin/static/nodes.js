// The picture of the cluster: the primary with its lease running down, and the standbys that follow it.
import { byId, element, setText, shape } from "./dom.js";
import { age, bytes, number } from "./format.js";

const CIRCUMFERENCE = 2 * Math.PI * 25;

export class Nodes {
  constructor(model) {
    this.model = model;
    this.cards = new Map();
    const turn = () => { this.turnLeases(); requestAnimationFrame(turn); };
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) setInterval(() => this.turnLeases(), 1000);
    else requestAnimationFrame(turn);
  }

  draw() {
    const nodes = this.model.nodes(), primary = this.model.primary();
    const root = byId("nodes");
    for (const node of nodes) if (!this.cards.has(node.name)) this.cards.set(node.name, new Card(node.name));
    for (const [name, card] of this.cards) {
      if (!nodes.some((node) => node.name === name)) { card.root.remove(); this.cards.delete(name); }
    }
    nodes.forEach((node, at) => {
      const card = this.cards.get(node.name);
      card.draw(node, primary);
      if (root.children[at] !== card.root) root.insertBefore(card.root, root.children[at] ?? null);
    });
    setText(byId("leadership"), primary ? `${primary.name} leads, epoch ${primary.frame.status.epoch}` : "no node leads: calls wait");
    this.drawJournal(primary ?? this.model.best());
  }

  drawJournal(node) {
    const { cluster, problem } = this.model, journal = byId("journal");
    journal.classList.toggle("away", Boolean(problem));
    const size = node ? `${number(node.frame.status.journal_batches)} batches, ${bytes(node.frame.status.journal_bytes)}` : "";
    const from = cluster?.truncated_n ? ` after record ${number(cluster.truncated_n)}` : "";
    setText(journal, problem ? "The coordination store does not answer" : `Journal in the coordination store: ${size}${from}`);
  }

  turnLeases() { for (const card of this.cards.values()) card.turnLease(); }
}

class Card {
  constructor(name) {
    this.arc = shape("circle", { class: "left", cx: 29, cy: 29, r: 25, "stroke-dasharray": CIRCUMFERENCE, "stroke-dashoffset": CIRCUMFERENCE });
    this.seconds = shape("text", { x: 29, y: 34 });
    this.ring = shape("svg", { class: "lease", viewBox: "0 0 58 58", role: "img" },
      shape("circle", { class: "rail", cx: 29, cy: 29, r: 25 }), this.arc, this.seconds);
    this.badge = element("span", { class: "badge" });
    this.what = element("p", { class: "small dim" });
    this.facts = element("dl");
    this.root = element("article", { class: "node" }, this.ring, element("h3", {}, name, this.badge), this.what, this.facts);
    this.lease = null;
  }

  draw({ frame, peer, answers, leads, receivedMs }, primary) {
    const status = frame?.status;
    const role = answers ? status.role : "does not answer";
    this.root.className = `node ${leads ? "leads" : "plain"} ${answers ? "" : "dead"}`;
    this.badge.className = `badge ${answers ? role.split(" ")[0] : "dead"}`;
    setText(this.badge, role);
    setText(this.what, answers ? sentence(status, primary) : `last registered as ${peer?.role ?? status?.role ?? "unknown"}`);
    this.lease = leads ? { leftMs: frame.lease_left_ms, wholeMs: frame.lease_ms, receivedMs } : null;
    this.ring.toggleAttribute("hidden", !this.lease);
    this.ring.setAttribute("aria-label", this.lease ? `Leader lease of ${(frame.lease_ms / 1000).toFixed(1)} s, renewed by every commit` : "no leader lease");
    const facts = answers ? [
      ["applied record", number(status.applied_n)],
      ["objects", number(status.index.objects)],
      ["connections", number(status.connections)],
      ["up", age(status.up_ms)],
      ["clients at", status.rpc],
    ] : [["clients at", peer?.rpc ?? status?.rpc ?? ""], ["admin", peer?.admin ?? ""]];
    this.facts.replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  }

  turnLease() {
    if (!this.lease) return;
    const left = Math.max(0, this.lease.leftMs - (performance.now() - this.lease.receivedMs));
    this.arc.setAttribute("stroke-dashoffset", String(CIRCUMFERENCE * (1 - Math.min(1, left / this.lease.wholeMs))));
    setText(this.seconds, (left / 1000).toFixed(1));
  }
}

function sentence(status, primary) {
  if (status.may_serve) return "answers clients while its lease runs";
  if (status.role !== "standby" || !primary) return status.reason;
  const behind = status.lag_records > 0 ? `${number(status.lag_records)} records behind` : "up to date";
  const seen = status.behind_ms >= 0 ? `, heard ${(status.behind_ms / 1000).toFixed(1)} s ago` : "";
  return `follows ${primary.name}: ${behind}${seen}`;
}
