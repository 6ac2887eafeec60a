// The dashboard: streams of all nodes into one model, and the model into the page.
import { Charts } from "./charts.js";
import { byId, setText } from "./dom.js";
import { drawFooter, drawSlow, drawTiles, drawTimeline, drawWorries } from "./lists.js";
import { Model } from "./model.js";
import { Nodes } from "./nodes.js";
import { Orders } from "./orders.js";
import { Pool } from "./pool.js";
import { Streams } from "./streams.js";

const model = new Model();
const nodes = new Nodes(model), charts = new Charts(model), pool = new Pool(model);
let scheduled = false;
const streams = new Streams(model, () => {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => { scheduled = false; draw(); }, 60);
});
const orders = new Orders(model, streams);

function draw() {
  nodes.draw();
  pool.draw();
  orders.draw();
  drawWorries(model);
  drawTiles(model);
  drawTimeline(model);
  drawSlow(model);
  drawFooter(model);
  const answering = model.nodes().filter((node) => node.answers).map((node) => node.name);
  setText(byId("source"), answering.length ? `live from ${answering.join(", ")}` : "no node answers: trying again");
}

orders.identify().then((role) => {
  if (role === "open") { setText(byId("health"), "sign in"); orders.signIn(); return; }
  streams.start();
  draw();
  charts.draw();
  setInterval(draw, 1000);
  setInterval(() => charts.draw(), 2000);
});
