// The live page: passes each message of the feed to the parts of the page, and a selection in one part to the others.

import { showArbiter } from "./arbiter.js";
import { Clos, HOST } from "./clos.js";
import { Details } from "./details.js";
import { Drawing } from "./drawing.js";
import { byId, clock, count, say, setAttribute, setText } from "./elements.js";
import { listen } from "./feed.js";
import { choice, legend } from "./legend.js";
import { start } from "./operator.js";
import { Paths } from "./paths.js";
import { Pods } from "./pods.js";
import { Problems } from "./problems.js";
import { FabricState } from "./state.js";

const HINT = byId("hint").textContent;

let tree = null;
let plan = ""; // the fabric that is drawn, as text
let drawing = null;
let selected = "";
let colouring = "load";
let lastHeard = null;

const details = new Details(select, (name, end) => paths.set(name, end));
const paths = new Paths(() => drawing);
const problems = new Problems(select);

/** Select a switch, link or host in all parts of the page. */
function select(name) {
  selected = name;
  drawing.select(name);
  details.show(name);
}

/** Select in the drawing, where a host also becomes an end of the paths. */
function choose(name) {
  select(name);
  if (tree.parse(name)?.level === HOST) paths.pick(name);
}

/** Colour links by load, loss or delay. */
function colour(what) {
  colouring = what;
  if (drawing.colour) drawing.colour(what); // pods have no links
  legend(byId("legend"), tree, what);
}

function draw(message, drawn) {
  tree = new Clos(message.k, message.fabric);
  const container = byId("fabric");
  container.replaceChildren();
  drawing = drawn ? new Drawing(container, tree, choose, (words) => setText(byId("hint"), words || HINT)) : new Pods(container, tree, select);
  byId("hint").hidden = byId("legend").hidden = byId("colouring").hidden = !drawn;
  colour(colouring);
  setText(byId("size"), tree.numbers);
  document.title = `SOPA ${tree.title}`;
  const examples = tree.examples();
  for (const [id, example] of [["source", examples.source], ["destination", examples.destination], ["name", examples.link]]) {
    setAttribute(byId(id), "placeholder", example);
  }
  fit();
  paths.redraw();
}

function fit() {
  if (drawing) drawing.layout(byId("fabric").clientWidth);
}

function received(message) {
  const state = new FabricState(message);
  const drawn = !message.pods;
  const wanted = JSON.stringify([message.k, message.fabric]);
  if (wanted !== plan) draw(message, drawn); // another one may come after a restart of the controller
  plan = wanted;
  drawing.update(state);
  drawing.select(selected);
  details.update(tree, state, drawing.numbers);
  const wrong = problems.update(state);
  facts(message, wrong);
  showArbiter(message.arbiter, tree.hostCount);
  paths.update(tree, state, drawing.numbers, `${message.epoch} ${message.version}`);
  lastHeard = new Date();
  say(byId("banner"), "");
  byId("starting").hidden = message.settled;
  setAttribute(byId("connection"), "data-state", "live");
  setText(byId("connection"), `live, ${clock(lastHeard)}`);
  document.body.classList.remove("stale");
  if (!performance.getEntriesByName("drawn").length) performance.mark("drawn");
}

function facts(message, wrong) {
  setText(byId("fact-switches"), `${message.connected} of ${message.switches}`);
  const relayed = message.agents.relayed ?? 0;
  setText(byId("fact-agents"), `${message.agents.connected + relayed} of ${tree.hostCount}${relayed ? `, ${relayed} at relays` : ""}${message.agents.behind ? `, ${message.agents.behind} behind` : ""}`);
  setText(byId("fact-version"), String(message.version));
  setText(byId("fact-carrier"), message.carrier);
  byId("in-cluster").hidden = !message.cluster;
  if (message.cluster) setText(byId("fact-cluster"), leadership(message.cluster));
  const silent = message.bfd.enabled ? "" : ", silent loss is not detected (BFD is off)";
  const badly = message.setup.problems.length;
  const setup = badly ? `, switches are set up wrong: ${message.setup.problems[0].switch}: ${message.setup.problems[0].problem} (${badly} in all: sopa status)` : "";
  const management = message.management.fault ? `, management network: ${message.management.detail}; no path is withdrawn` : "";
  const drained = message.drains_total ? `, ${message.drains_total} drained` : "";
  setText(byId("fact-health"), (wrong ? count(wrong, "problem") : message.settled ? "no problems" : "not known yet") + management + drained + silent + setup);
}

function leadership({ role, term, leader, away = [], engine = true }) {
  const wrong = (engine ? "" : "; etcd does not answer") + (away.length ? `; away: ${away.join(", ")}` : "");
  if (leader === null) return `no member leads: nothing new is decided${wrong}`;
  const led = engine ? "leads" : "led when etcd answered last";
  return `${leader} ${led}, ${role === "leader" ? "and answers here" : "this one stands by"}; term ${term}${wrong}`;
}

function lost(reason) {
  const since = lastHeard ? `data from ${clock(lastHeard)}` : "no data yet";
  say(byId("banner"), `Connection lost, ${since}${reason ? ` (${reason})` : ""}. Reconnecting …`);
  setAttribute(byId("connection"), "data-state", "lost");
  setText(byId("connection"), "connection lost");
  document.body.classList.add("stale");
}

start();
choice(byId("colouring"), colouring, colour);
new ResizeObserver(fit).observe(byId("fabric"));
listen(received, lost);
