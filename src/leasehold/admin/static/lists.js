// Worries, figures, timeline and slow calls.
import { byId, element, setText } from "./dom.js";
import { bytes, clock, day, milliseconds, number, rate } from "./format.js";

export function drawWorries(model) {
  const worries = model.worries();
  const health = byId("health");
  const serious = worries.filter((worry) => worry.serious).length;
  const primary = model.primary();
  setText(health, !primary ? "no primary" : worries.length ? `${worries.length} reason${worries.length === 1 ? "" : "s"} to worry` : "healthy");
  health.className = `pill ${!primary || serious ? "bad" : worries.length ? "warn" : "good"}`;
  const root = byId("worries");
  const text = worries.map((worry) => worry.what + worry.remedy).join("\n");
  if (root.dataset.text === text) return;
  root.dataset.text = text;
  root.replaceChildren(...worries.map((worry) => element("div", { class: `worry ${worry.serious ? "serious" : ""}` },
    element("strong", {}, worry.what), element("span", {}, worry.remedy))));
}

export function drawTiles(model) {
  const node = model.best();
  const index = node?.frame.status.index, sample = node?.frame.sample;
  const calls = Object.values(sample?.calls ?? {}).reduce((total, value) => total + value, 0);
  const lookups = (sample?.hits ?? 0) + (sample?.misses ?? 0);
  const used = index?.bytes_total ? (100 * index.bytes_used) / index.bytes_total : 0;
  const tiles = [
    ["Calls", sample ? rate(calls) : "–"],
    ["Keys found", lookups ? `${((100 * sample.hits) / lookups).toFixed(1)} %` : "–"],
    ["Objects", index ? number(index.objects) : "–"],
    ["Pool in use", index?.bytes_total ? `${used.toFixed(0)} %` : "–", index?.bytes_total ? `of ${bytes(index.bytes_total)}` : ""],
    ["Commit, 99 %", sample?.commit_p99_ms ? milliseconds(sample.commit_p99_ms) : "–"],
    ["Connections", node ? number(node.frame.status.connections) : "–"],
  ];
  const root = byId("tiles");
  if (root.children.length !== tiles.length) {
    root.replaceChildren(...tiles.map(([name]) => element("dl", { class: "tile" }, element("dt", {}, name), element("dd", {}, element("span"), " ", element("small")))));
  }
  tiles.forEach(([, value, beside = ""], at) => {
    const [text, small] = root.children[at].querySelectorAll("span, small");
    setText(text, value);
    setText(small, beside);
  });
}

export function drawTimeline(model) {
  const root = byId("timeline");
  const lines = [...model.history].sort((a, b) => b.wall_us - a.wall_us);
  const text = `${lines.length} ${lines[0]?.wall_us ?? 0}`;
  if (root.dataset.text === text) return;
  root.dataset.text = text;
  root.replaceChildren(...lines.map((line) => {
    const ms = line.wall_us / 1000;
    return element("li", { class: line.role.split(" ")[0] },
      element("time", { datetime: new Date(ms).toISOString(), title: `${day(ms)}, epoch ${line.epoch}` }, clock(ms)),
      element("div", {}, element("strong", {}, line.node), " ", element("span", { class: `badge ${line.role.split(" ")[0]}` }, line.role),
        element("p", { class: "sentence" }, line.sentence)));
  }));
}

export function drawSlow(model) {
  const root = byId("slow");
  const calls = model.nodes().filter((node) => node.frame).flatMap((node) => node.frame.slow.map((call) => ({ ...call, node: node.name })))
    .sort((a, b) => b.wall_us - a.wall_us).slice(0, 20);
  const text = `${calls.length} ${calls[0]?.wall_us ?? 0}`;
  if (root.dataset.text === text) return;
  root.dataset.text = text;
  if (!calls.length) { root.replaceChildren(element("p", { class: "empty" }, "None since the workers started.")); return; }
  const row = (call) => element("tr", {},
    element("td", {}, clock(call.wall_us / 1000)), element("td", {}, call.function), element("td", {}, call.peer),
    element("td", { class: "number" }, milliseconds(call.duration_ms)));
  const head = ["when", "function", "client"].map((name) => element("th", { scope: "col" }, name));
  root.replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, ...head, element("th", { scope: "col", class: "number" }, "took"))),
    element("tbody", {}, ...calls.map(row))));
}

export function drawFooter(model) {
  const versions = [...new Set(model.nodes().filter((node) => node.answers).map((node) => node.frame.status.version))];
  const durability = model.best()?.frame.status.durability;
  setText(byId("versions"), versions.length ? `Leasehold ${versions.join(", ")}; durability ${durability}; times are those of this browser` : "");
  setText(byId("cluster-name"), model.best()?.frame.status.cluster ?? "");
}
