// A chart of the last minutes: lines, or areas on top of each other. Drawn as SVG, redrawn every two seconds.
import { element, setText, shape } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 600, HEIGHT = 150;

export class Chart {
  // `curves(point)` returns [{key, value}] for one point of time; `colours` are by key, or in order of appearance.
  constructor({ title, unit, curves, stacked = false, logarithmic = false, summary }) {
    Object.assign(this, { title, unit, curves, stacked, logarithmic, summary });
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.output = element("output");
    this.scale = element("span", { class: "scale", "aria-hidden": "true" });
    this.keys = element("ul", { class: "keys" });
    this.from = element("span");
    this.until = element("span");
    this.root = element("div", { class: "chart" },
      element("h3", {}, title, this.output),
      element("div", { class: "frame" }, this.scale, this.svg),
      element("div", { class: "times", "aria-hidden": "true" }, this.from, this.until),
      this.keys);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.paint(); });
    this.order = [];
    this.at = null;
  }

  draw(points, changes) {
    this.points = points;
    this.changes = changes;
    this.rows = points.map((point) => (point.samples.length ? new Map(this.curves(point.samples)) : null));
    const totals = new Map();
    for (const row of this.rows) for (const [key, value] of row ?? []) totals.set(key, (totals.get(key) ?? 0) + value);
    const bySize = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
    for (const key of this.stacked ? bySize : totals.keys()) {
      if (!this.order.includes(key)) this.order.push(key);  // a colour stays with its curve
    }
    this.order = this.order.filter((key) => totals.has(key));
    this.paint();
  }

  paint() {
    if (!this.rows) return;
    const top = this.top();
    const x = (at) => (at / Math.max(1, this.rows.length - 1)) * WIDTH;
    const scaled = (value) => (this.logarithmic ? Math.log10(1 + value) / Math.log10(1 + top) : value / top);
    const y = (value) => HEIGHT - 2 - Math.min(1, scaled(value)) * (HEIGHT - 8);
    const drawn = [1, 2, 3].map((line) => shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: (HEIGHT * line) / 4, y2: (HEIGHT * line) / 4 }));
    drawn.push(...(this.stacked ? this.areas(x, y) : this.lines(x, y)));
    for (const ms of this.changes) {
      const share = (ms - this.points[0].ms) / (this.points.at(-1).ms - this.points[0].ms);
      if (share > 0 && share < 1) drawn.push(shape("line", { class: "change", x1: share * WIDTH, x2: share * WIDTH, y1: 0, y2: HEIGHT }));
    }
    if (this.at !== null) drawn.push(shape("line", { class: "cursor", x1: x(this.at), x2: x(this.at), y1: 0, y2: HEIGHT }));
    this.svg.replaceChildren(...drawn);
    this.label(top);
  }

  top() {
    let top = 0;
    for (const row of this.rows) {
      if (!row) continue;
      const values = [...row.values()];
      top = Math.max(top, this.stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values));
    }
    return top > 0 ? top * (this.logarithmic ? 3 : 1.08) : 1;
  }

  lines(x, y) {
    return this.order.flatMap((key, index) => {
      let path = "", pen = "M", start = null, end = null;
      this.rows.forEach((row, at) => {
        if (!row) { pen = "M"; return; }
        path += `${pen}${x(at).toFixed(1)} ${y(row.get(key) ?? 0).toFixed(1)}`;
        pen = "L";
        start ??= at;
        end = at;
      });
      if (!path) return [];
      const curve = shape("path", { class: "curve", d: path, stroke: colour(index) });
      if (path.split("M").length > 2) return [curve];
      return [shape("path", { class: "soft", d: `${path}L${x(end)} ${HEIGHT}L${x(start)} ${HEIGHT}Z`, fill: colour(index) }), curve];
    });
  }

  areas(x, y) {
    const below = this.rows.map(() => 0);
    return this.order.map((key, index) => {
      const upper = [], lower = [];
      this.rows.forEach((row, at) => {
        const base = below[at];
        below[at] += row?.get(key) ?? 0;
        upper.push(`${x(at).toFixed(1)} ${y(below[at]).toFixed(1)}`);
        lower.push(`${x(at).toFixed(1)} ${y(base).toFixed(1)}`);
      });
      return shape("path", { class: "area", d: `M${upper.join("L")}L${lower.reverse().join("L")}Z`, fill: colour(index) });
    });
  }

  label(top) {
    const shown = this.at === null ? this.rows.findLastIndex((row) => row) : this.at;
    const row = this.rows[shown] ?? new Map();
    const total = [...row.values()].reduce((sum, value) => sum + value, 0);
    const now = this.summary ? this.summary(row, total) : this.unit(total);
    setText(this.output, this.at === null ? now : `${clock(this.points[shown].ms)}  ${now}`);
    setText(this.scale, this.unit(top));
    setText(this.from, clock(this.points[0].ms));
    setText(this.until, "now");
    this.svg.setAttribute("aria-label", `${this.title}: ${now} now, at most ${this.unit(top / (this.logarithmic ? 3 : 1.08))} in this time`);
    const shownKeys = this.order.map((key, index) => [key, index]).filter(([key]) => this.order.length < 4 || row.get(key));
    const keys = shownKeys.slice(0, 8).map(([key, index]) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colour(index);
      return element("li", {}, swatch, `${key} ${this.unit(row.get(key) ?? 0)}`);
    });
    this.keys.replaceChildren(...keys);
  }

  point(event) {
    if (!this.rows) return;
    const box = this.svg.getBoundingClientRect();
    const at = Math.round(((event.clientX - box.left) / box.width) * (this.rows.length - 1));
    this.at = Math.max(0, Math.min(this.rows.length - 1, at));
    this.paint();
  }
}

const colour = (index) => `var(--c${(index % 8) + 1})`;
