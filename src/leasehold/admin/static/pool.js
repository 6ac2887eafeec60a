// The pool: every segment as a bar of what its bytes are used for. Hosts that leave stay visible for a while.
import { byId, element, setText } from "./dom.js";
import { bytes, number } from "./format.js";

const KINDS = [
  ["leased", "leased: a client may be reading"],
  ["pinned", "pinned"],
  ["evictable", "evictable: kept until the space is needed"],
  ["writing", "being written"],
  ["quarantined", "quarantined: a late client may still touch it"],
  ["prepared", "prepared for the next puts"],
];
const GONE_MS = 15_000;

export class Pool {
  constructor(model) {
    this.model = model;
    this.rows = new Map();
    byId("legend").append(...[...KINDS, ["free", "free"]].map(([kind, text]) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = `var(--${kind})`;
      return element("li", {}, swatch, text);
    }));
  }

  draw() {
    const node = this.model.best();
    if (!node) return;
    const { pool, status } = node.frame;
    setText(byId("pool-summary"), pool.length
      ? `${bytes(status.index.bytes_used)} of ${bytes(status.index.bytes_total)} in ${pool.length} segment${pool.length === 1 ? "" : "s"}, ${number(status.index.objects)} objects`
      : "");
    const now = performance.now();
    for (const use of pool) {
      const key = `${use.name} ${use.endpoint}`;
      if (!this.rows.has(key)) this.rows.set(key, new Row(use));
      this.rows.get(key).draw(use, now);
    }
    for (const [key, row] of this.rows) {
      if (now - row.seenMs > GONE_MS) { row.root.remove(); this.rows.delete(key); } else if (row.seenMs !== now) row.leave();
    }
    const list = byId("pool");
    const rows = [...this.rows.values()].map((row) => row.root);
    if (rows.length === 0) {
      list.replaceChildren(element("li", { class: "empty" }, "No host lends memory yet: start one with ", element("code", {}, "leasehold host")));
    } else if (rows.some((row, at) => list.children[at] !== row)) list.replaceChildren(...rows);
  }
}

class Row {
  constructor(use) {
    this.parts = new Map(KINDS.map(([kind]) => [kind, element("i")]));
    for (const [kind, part] of this.parts) part.style.background = `var(--${kind})`;
    this.bar = element("div", { class: "bar", role: "img" }, ...this.parts.values());
    this.size = element("span", { class: "size dim" });
    this.root = element("li", { class: "segment arrived" }, element("span", { class: "name", title: use.endpoint }, use.name), this.bar, this.size);
  }

  draw(use, now) {
    this.seenMs = now;
    this.root.classList.remove("gone");
    const spoken = [];
    for (const [kind, part] of this.parts) {
      const share = (100 * use.parts_bytes[kind]) / use.total_bytes;
      part.style.width = `${share}%`;
      part.title = `${kind}: ${bytes(use.parts_bytes[kind])}`;
      if (use.parts_bytes[kind]) spoken.push(`${kind} ${bytes(use.parts_bytes[kind])}`);
    }
    spoken.push(`free ${bytes(use.total_bytes - use.used_bytes)}`);
    this.bar.setAttribute("aria-label", `${use.name}: ${spoken.join(", ")}`);
    const state = use.draining ? ", draining" : use.proven ? "" : ", waits for its owner";
    setText(this.size, `${bytes(use.used_bytes)} of ${bytes(use.total_bytes)}${state}`);
  }

  leave() {
    this.root.classList.add("gone");
    setText(this.size, "unmounted");
  }
}
