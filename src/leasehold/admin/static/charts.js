// The charts of the page, and what each of them adds up.
import { Chart } from "./chart.js";
import { byId } from "./dom.js";
import { milliseconds, rate } from "./format.js";

const FUNCTIONS_MAX = 7;
const sum = (samples, field) => samples.reduce((total, sample) => total + sample[field], 0);
const most = (samples, field) => Math.max(0, ...samples.map((sample) => sample[field]));

function byFunction(samples) {
  const found = new Map();
  for (const sample of samples) for (const [name, value] of Object.entries(sample.calls)) found.set(name, (found.get(name) ?? 0) + value);
  const sorted = [...found].sort((a, b) => b[1] - a[1]);
  const rest = sorted.slice(FUNCTIONS_MAX).reduce((total, [, value]) => total + value, 0);
  return rest ? [...sorted.slice(0, FUNCTIONS_MAX), ["others", rest]] : sorted;
}

function hitRate(row) {
  const hits = row.get("hits") ?? 0, all = hits + (row.get("misses") ?? 0);
  return all ? `${((100 * hits) / all).toFixed(1)} % found` : "no lookups";
}

const CHARTS = [
  { title: "Calls", unit: rate, stacked: true, curves: byFunction },
  { title: "Lookups", unit: rate, summary: hitRate, curves: (s) => [["hits", sum(s, "hits")], ["misses", sum(s, "misses")]] },
  { title: "Renewals and store writes", unit: rate, logarithmic: true, summary: (row) => `${rate(row.get("renewals") ?? 0)} in ${rate(row.get("store writes") ?? 0)}`,
    curves: (s) => [["renewals", sum(s, "hits")], ["store writes", sum(s, "store_writes")]] },
  { title: "Commit time", unit: milliseconds, summary: (row) => milliseconds(row.get("99 %") ?? 0), curves: (s) => [["99 %", most(s, "commit_p99_ms")], ["half", most(s, "commit_p50_ms")]] },
  { title: "Time to the answer, 99 %", unit: milliseconds, curves: (s) => [["all functions", most(s, "call_p99_ms")]] },
  { title: "Evictions and errors", unit: rate, summary: (row) => rate(row.get("evicted objects") ?? 0), curves: (s) => [["evicted objects", sum(s, "evictions")], ["results that are errors", sum(s, "failures")]] },
];

export class Charts {
  constructor(model) {
    this.model = model;
    this.minutes = 5;
    this.charts = CHARTS.map((options) => new Chart(options));
    byId("charts").append(...this.charts.map((chart) => chart.root));
    const buttons = document.querySelectorAll(".ranges button");
    buttons.forEach((button) => button.addEventListener("click", () => {
      this.minutes = Number(button.dataset.minutes);
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      this.draw();
    }));
  }

  draw() {
    const points = this.model.series(this.minutes);
    const changes = this.model.history.filter((line) => line.role === "primary").map((line) => line.wall_us / 1000);
    this.charts.forEach((chart) => chart.draw(points, changes));
  }
}
