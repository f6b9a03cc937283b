// The live page: passes each message of the feed to the parts of the page, and a selection in one part to the others.

import { showArbiter } from "./arbiter.js";
import { Clos, HOST } from "./clos.js";
import { Details } from "./details.js";
import { Drawing } from "./drawing.js";
import { byId, clock, say, setAttribute, setText } from "./elements.js";
import { Events } from "./events.js";
import { listen } from "./feed.js";
import { choice, legend } from "./legend.js";
import { load } from "./names.js";
import { start } from "./operator.js";
import { Paths } from "./paths.js";
import { Pods } from "./pods.js";
import { Problems } from "./problems.js";
import { FabricState } from "./state.js";
import { name as nameFabric, showLost, showStatus } from "./status.js";
import { Tables } from "./tables.js";
import { Trends } from "./trends.js";

const FOLDED_LINKS = 2500; // of a fat-tree from k=16 on: a drawing of so many says little, so it is folded, and the tables come first
const HINT = byId("hint").textContent;

let tree = null;
let plan = ""; // the fabric that is drawn, as text
let drawing = null;
let selected = "";
let colouring = "load";
let lastHeard = null;
let named; // which names are shown; undefined before the first message, null while they are read

const details = new Details(select, (name, end) => paths.set(name, end));
const paths = new Paths(() => drawing);
const problems = new Problems(select);
const events = new Events();
const tables = new Tables(select);
const trends = new Trends();

/** Select a switch, link or host in all parts of the page, and in its address. */
function select(name) {
  selected = name;
  drawing.select(name);
  details.show(name);
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
}

/** Select what the address names, such as #a0_0-c0_0, unless that is a part of the page. */
function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!tree || !name || byId(name)) return;
  if (details.find(name)) byId("details").scrollIntoView({ block: "nearest" });
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
  nameFabric(tree.title);
  const examples = tree.examples();
  for (const [id, example] of [["source", examples.source], ["destination", examples.destination], ["name", examples.link]]) {
    setAttribute(byId(id), "placeholder", example);
  }
  fold(drawn && drawing.numbers.size >= FOLDED_LINKS);
  fit();
  paths.redraw();
}

function fold(folded) {
  byId("drawing").open = !folded;
  byId("drawing").firstElementChild.hidden = !folded;
  if (folded) {
    document.querySelector("main").prepend(byId("tables"));
    tables.busiest();
  } else byId("events").before(byId("tables"));
}

function fit() {
  if (drawing) drawing.layout(byId("fabric").clientWidth || byId("tables").clientWidth);
}

function received(message) {
  if (named === null) return;
  if (named === undefined) {
    named = null;
    load().then(() => {
      named = message.names ?? "";
      received(message);
    });
    return;
  }
  if (named !== (message.names ?? "")) location.reload(); // every text is made anew
  const state = new FabricState(message);
  const drawn = !message.pods;
  const wanted = JSON.stringify([message.k, message.fabric]);
  const first = !plan;
  if (wanted !== plan) draw(message, drawn); // another one may come after a restart of the controller
  plan = wanted;
  drawing.update(state);
  drawing.select(selected);
  details.update(tree, state, drawing.numbers);
  problems.update(state);
  trends.update(state);
  showStatus(message);
  facts(message);
  showArbiter(message.arbiter, tree.hostCount);
  const version = `${message.epoch} ${message.version}`;
  paths.update(tree, state, drawing.numbers, version);
  events.update(tree, version);
  tables.update(tree, state, drawn);
  lastHeard = new Date();
  say(byId("banner"), "");
  byId("starting").hidden = message.settled;
  setAttribute(byId("connection"), "data-state", "live");
  setText(byId("connection"), `live, ${clock(lastHeard)}`);
  document.body.classList.remove("stale");
  document.querySelector("main").classList.remove("unknown");
  if (first) follow();
  if (!performance.getEntriesByName("drawn").length) performance.mark("drawn");
}

function facts(message) {
  setText(byId("fact-switches"), message.no_switches ? "none is this controller's" : `${message.connected} of ${message.switches}`);
  const relayed = message.agents.relayed ?? 0;
  setText(byId("fact-agents"), `${message.agents.connected + relayed} of ${tree.hostCount}${relayed ? `, ${relayed} at relays` : ""}${message.agents.behind ? `, ${message.agents.behind} behind` : ""}`);
  setText(byId("fact-version"), String(message.version));
  setText(byId("fact-carrier"), message.carrier);
  byId("in-cluster").hidden = !message.cluster;
  if (message.cluster) setText(byId("fact-cluster"), leadership(message.cluster));
  const { management, setup, bfd } = message;
  const badly = setup.problems.length;
  const notes = [
    management.fault ? `management network: ${management.detail}; no path is withdrawn` : "",
    bfd.enabled || message.no_switches ? "" : "silent loss is not detected (BFD is off)",
    badly ? `switches are set up wrong: ${setup.problems[0].switch}: ${setup.problems[0].problem} (${badly} in all: sopa status)` : "",
  ].filter(Boolean);
  byId("has-notes").hidden = !notes.length;
  setText(byId("fact-notes"), notes.join("; "));
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
  showLost();
}

start();
choice(byId("colouring"), colouring, colour);
new ResizeObserver(fit).observe(byId("fabric"));
addEventListener("hashchange", follow);
listen(received, lost);
