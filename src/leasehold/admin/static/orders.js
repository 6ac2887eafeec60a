// Who the caller is, signing in, and the orders: switch over, pause, resume.
import { byId, element, setText } from "./dom.js";

const HEADERS = { "Content-Type": "application/json", "X-Leasehold-Command": "1" };

async function send(base, path, body, method = "POST") {
  const answer = await fetch(`${base}${path}`, { method, credentials: "include", headers: HEADERS, body: JSON.stringify(body ?? {}) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.sentence || found.error || `${answer.status} ${answer.statusText}`);
  return found;
}

export class Orders {
  constructor(model, streams) {
    this.model = model;
    this.streams = streams;
    streams.prepare = (base) => this.signInTo(base);
    this.role = "";
    byId("switchover").addEventListener("click", () => this.switchover());
    byId("pause").addEventListener("click", () => this.pause());
    byId("resume").addEventListener("click", () => this.order("Resume failover", "Nodes take over again when the primary fails.", [], "Resume", "/api/resume"));
    byId("sign").addEventListener("click", () => (this.signedIn ? this.signOut() : this.signIn()));
    byId("dialog-cancel").addEventListener("click", () => byId("dialog").close());
  }

  async identify() {
    const found = await fetch("/api/whoami", { credentials: "include" }).then((answer) => answer.json()).catch(() => null);
    this.role = found?.role ?? "";
    this.signedIn = Boolean(found?.session);
    setText(byId("who"), found ? (found.name === "anonymous" ? (this.role === "open" ? "not signed in" : "may read") : `${found.name}: may ${this.role}`) : "");
    const sign = byId("sign");
    sign.hidden = !found?.tokens;
    setText(sign, this.signedIn ? "Sign out" : "Sign in");
    byId("orders").hidden = this.role !== "operate";
    return this.role;
  }

  draw() {
    const paused = Boolean(this.model.cluster?.paused);
    byId("pause").hidden = paused;
    byId("resume").hidden = !paused;
    byId("switchover").disabled = !this.model.primary();
  }

  // Our own origin if it answers, else any node that does.
  base() {
    const answering = this.model.nodes().filter((node) => node.answers).map((node) => this.streams.baseOf(node.name)).filter(Boolean);
    return answering.includes(location.origin) ? location.origin : answering[0] ?? location.origin;
  }

  switchover() {
    const targets = this.model.nodes().filter((node) => node.answers && node.frame.status.ready && !node.leads);
    const choice = element("select", { name: "target" }, element("option", { value: "" }, "any ready standby"), ...targets.map((node) => element("option", { value: node.name }, node.name)));
    const primary = this.model.primary();
    this.order("Switch over", `${primary.name} hands its leadership over. Every lease stays valid; calls wait for about a tenth of a second.`,
      [element("label", {}, "New primary", choice)], "Switch over", "/api/switchover", () => this.streams.baseOf(primary.name));
  }

  pause() {
    const reason = element("input", { name: "reason", maxlength: 200, placeholder: "for example: new disks in rack 2" });
    this.order("Pause failover", "The primary continues, but no other node takes over if it fails.", [element("label", {}, "Reason", reason)], "Pause", "/api/pause");
  }

  order(title, text, fields, verb, path, where = () => this.base()) {
    ask(title, text, fields, verb, async (values) => {
      const found = await send(where(), path, values);
      toast(found.sentence);
    });
  }

  signIn() {
    const token = element("input", { name: "token", type: "password", autocomplete: "current-password", required: true });
    ask("Sign in", "Enter a token of the nodes' token file. It is exchanged for a cookie that scripts cannot read.", [element("label", {}, "Token", token)], "Sign in", async ({ token: value }) => {
      await send(location.origin, "/api/session", { token: value });
      location.reload();  // the new page may connect to the other nodes too
    });
  }

  // Sign in to another node, so that the page can go on there. Without a session there is nothing to do.
  async signInTo(base) {
    if (!this.signedIn || base === location.origin) return;
    const made = await send(location.origin, "/api/session/pass").catch(() => null);
    if (made) await send(base, "/api/session", made).catch(() => null);
  }

  async signOut() {
    await Promise.allSettled(this.streams.bases().map((base) => send(base, "/api/session", {}, "DELETE")));
    location.reload();
  }
}

function ask(title, text, fields, verb, act) {
  const dialog = byId("dialog"), form = byId("dialog-form"), error = byId("dialog-error"), go = byId("dialog-go");
  setText(byId("dialog-title"), title);
  setText(byId("dialog-text"), text);
  setText(go, verb);
  setText(error, "");
  byId("dialog-fields").replaceChildren(...fields);
  form.onsubmit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await act(Object.fromEntries(new FormData(form)));
      dialog.close();
    } catch (problem) {
      setText(error, problem.message);
    } finally {
      go.disabled = false;
    }
  };
  dialog.showModal();
}

let hiding = 0;
export function toast(text) {
  const root = byId("toast");
  setText(root, text);
  root.classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => root.classList.remove("shown"), 6000);
}
