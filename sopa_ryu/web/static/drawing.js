// The fabric as SVG. Elements are made once; a message changes attributes, a new width moves them.

import { HOST, linksOn } from "./clos.js";
import { diamond, follow, setAttribute, setText, svg } from "./elements.js";
import { place } from "./layout.js";
import { MARKS, STATES } from "./state.js";

const NEAR = 6; // pixels from a link within which a click selects it

export class Drawing {
  /**
   * @param {Element} container
   * @param {Clos} tree
   * @param {(name: string) => void} chosen called with the switch, link or host that was clicked or entered
   * @param {(text: string) => void} pointed called with a description of the element under the pointer; "" for none
   */
  constructor(container, tree, chosen, pointed) {
    this.container = container;
    this.tree = tree;
    this.chosen = chosen;
    this.state = null;
    this.nodes = new Map();
    this.links = [...tree.links()].map((link) => ({ ...link, line: svg("line", { "data-link": link.name }) }));
    this.numbers = new Map(this.links.map((link, number) => [link.name, number]));
    this.bands = tree.uneven ? this.links.filter((link) => !link.name.startsWith("h")).map((link) => this.band(link)) : [];
    this.halos = svg("g", { class: "halos" });
    this.marks = svg("g", { class: "marks", "aria-hidden": "true" });
    this.pods = [];
    for (let pod = 0; pod < tree.pods && tree.pods > 1; pod++) this.pods.push(svg("text", { class: "pod" }, tree.pods > 8 ? `${pod}` : `pod ${pod}`));
    this.svg = svg("svg", { class: tree.uneven ? "tree uneven" : "tree", role: "group", "aria-label": tree.words },
      svg("g", { class: "pods", "aria-hidden": "true" }, ...this.pods),
      svg("g", { class: "bands", "aria-hidden": "true" }, ...this.bands.map((band) => band.line)),
      this.halos,
      svg("g", { class: "links", "aria-hidden": "true" }, ...this.links.map((link) => link.line)),
      svg("g", { class: "nodes" }, ...this.makeNodes()),
      this.marks);
    this.svg.addEventListener("click", (event) => {
      const name = this.under(event);
      if (name) chosen(name);
    });
    this.svg.addEventListener("keydown", (event) => this.pressed(event));
    this.svg.addEventListener("pointermove", (event) => {
      const name = this.under(event);
      this.svg.classList.toggle("over", name !== null);
      pointed(name ? this.words(name) : "");
    });
    this.svg.addEventListener("pointerleave", () => pointed(""));
    container.append(this.svg);
  }

  /** Make the band under a link, whose width is its share of the rate of its level's fastest links. */
  band(link) {
    const line = svg("line", { "data-band": link.name });
    line.style.setProperty("--share", this.tree.rateOf(link).share);
    return { ...link, line };
  }

  makeNodes() {
    const { tree } = this;
    const made = [];
    this.rows = [[...tree.switches("c")], [...tree.switches("a")], [...tree.switches("e")], [...tree.hosts()]].filter((row) => row.length);
    for (const [row, members] of this.rows.entries()) {
      for (const [number, member] of members.entries()) {
        const gateway = tree.gateways.has(member.name);
        const shape = gateway ? svg("path") : member.level === HOST ? svg("circle") : svg("rect", { rx: 3 });
        const label = svg("text");
        const kind = gateway ? " gateway" : tree.noLabel.has(member.name) ? " no-label" : "";
        const group = svg("g", { class: `node ${member.level}${kind}`, role: "button", tabindex: "-1", "data-node": member.name }, shape, label);
        this.nodes.set(member.name, { ...member, row, number, group, shape, label });
        made.push(group);
      }
    }
    made[0].setAttribute("tabindex", "0"); // one stop for the Tab key; the arrow keys continue from there
    return made;
  }

  /** Fit everything into a width; below a minimum the container scrolls. */
  layout(width) {
    const plan = place(this.tree, this.rows, width);
    this.svg.setAttribute("width", plan.width);
    this.svg.setAttribute("height", plan.height);
    this.svg.classList.toggle("dense", plan.dense);
    this.svg.classList.toggle("close", plan.close);
    this.svg.classList.toggle("crowded", plan.crowded);
    for (const node of this.nodes.values()) {
      const at = plan.at.get(node.name);
      Object.assign(node, at);
      node.group.setAttribute("transform", `translate(${at.x} ${at.y})`);
      if (node.level === HOST) {
        if (node.shape.tagName === "path") node.shape.setAttribute("d", diamond(1.3 * at.radius));
        else node.shape.setAttribute("r", at.radius);
        node.label.setAttribute("y", at.radius + 11);
      } else {
        for (const [name, value] of [["x", -at.width / 2], ["y", -at.height / 2], ["width", at.width], ["height", at.height]]) {
          node.shape.setAttribute(name, value);
        }
        node.label.setAttribute("y", 3.5);
      }
      node.label.textContent = at.caption; // an alias does not fit
    }
    for (const link of [...this.links, ...this.bands]) this.span(link.line, link);
    for (const [pod, text] of this.pods.entries()) {
      text.setAttribute("x", plan.pods[pod]);
      text.setAttribute("y", plan.height - 6);
    }
    for (const halo of this.halos.children) this.span(halo, this.links[this.numbers.get(halo.dataset.key)]);
    if (this.state) this.mark();
  }

  span(line, link) {
    const [lower, upper] = [this.nodes.get(link.lower), this.nodes.get(link.upper)];
    line.setAttribute("x1", lower.x);
    line.setAttribute("y1", lower.y - (lower.height || 0) / 2);
    line.setAttribute("x2", upper.x);
    line.setAttribute("y2", upper.y + upper.height / 2);
  }

  // -- state --------------------------------------------------------------------------------------------------------

  /** Show the state of every switch and link. */
  update(state) {
    this.state = state;
    for (const [number, link] of this.links.entries()) {
      setAttribute(link.line, "data-state", state.ofLink(link).state);
      setAttribute(link.line, "data-step", String(state.step(number)));
      setAttribute(link.line, "data-loss", String(state.lossStep(number)));
      setAttribute(link.line, "data-delay", String(state.delayStep(number)));
    }
    for (const node of this.nodes.values()) {
      if (node.level === HOST) {
        const agent = state.hasAgent(node.number);
        setAttribute(node.group, "data-agent", agent === null ? "unknown" : agent ? "yes" : "no");
      } else {
        setAttribute(node.group, "data-state", state.ofSwitch(node.name).state);
      }
      setAttribute(node.group, "aria-label", this.words(node.name));
    }
    this.mark();
  }

  /** Mark everything that is not in use, so that colour is not required. */
  mark() {
    const signs = [];
    for (const link of this.links) {
      const { state, own } = this.state.ofLink(link);
      if (state === "ok" || !own) continue;
      const [lower, upper] = [this.nodes.get(link.lower), this.nodes.get(link.upper)];
      const share = 0.4;
      signs.push({ name: link.name, state, x: lower.x + share * (upper.x - lower.x), y: lower.y + share * (upper.y - lower.y) });
    }
    for (const node of this.nodes.values()) {
      if (node.level === HOST) continue;
      const { state } = this.state.ofSwitch(node.name);
      if (state !== "ok") signs.push({ name: node.name, state, x: node.x + node.width / 2 - 2, y: node.y - node.height / 2 });
    }
    follow(this.marks, signs, (sign) => sign.name, () => svg("text"), (text, sign) => {
      setText(text, MARKS[sign.state]);
      setAttribute(text, "data-state", sign.state);
      text.setAttribute("x", sign.x);
      text.setAttribute("y", sign.y + 5);
    });
  }

  /**
   * Highlight candidate and excluded paths, given by the names of their nodes; dim the rest.
   * @param {string[][]} candidates
   * @param {string[][]} excluded
   * @param {?Map<string, number>} shares of the widest line that a link's has, by name; null if all are alike
   */
  light(candidates, excluded = [], shares = null) {
    const names = new Map();
    const known = (path) => linksOn(path).filter((name) => this.numbers.has(name));
    for (const path of excluded) for (const name of known(path)) names.set(name, "excluded");
    for (const path of candidates) for (const name of known(path)) names.set(name, "candidate");
    const lit = new Set([...candidates, ...excluded].flat());
    this.svg.classList.toggle("lighting", lit.size > 0);
    follow(this.halos, [...names], ([name]) => name, () => svg("line"), (line, [name, kind]) => {
      const weighted = shares !== null && kind === "candidate";
      setAttribute(line, "class", `halo ${kind}${weighted ? " weighted" : ""}`);
      line.style.setProperty("--share", weighted ? shares.get(name) : 1);
      this.span(line, this.links[this.numbers.get(name)]);
    });
    for (const link of this.links) link.line.classList.toggle("lit", names.has(link.name));
    for (const node of this.nodes.values()) node.group.classList.toggle("lit", lit.has(node.name));
  }

  /** Colour links by one of COLOURINGS. */
  colour(what) {
    setAttribute(this.svg, "data-colour", what);
  }

  /** Mark the selected switch, link or host. */
  select(name) {
    for (const node of this.nodes.values()) node.group.classList.toggle("selected", node.name === name);
    for (const link of this.links) link.line.classList.toggle("selected", link.name === name);
  }

  /** Mark the hosts at the ends of the paths. */
  ends(source, destination) {
    for (const node of this.nodes.values()) {
      if (node.level !== HOST) continue;
      const picked = node.name === source || node.name === destination;
      node.group.classList.toggle("picked", picked);
      setAttribute(node.group, "aria-pressed", String(picked));
    }
  }

  /** Describe a switch, link or host. */
  words(name) {
    const { state } = this;
    const node = this.nodes.get(name);
    if (!state) return name;
    if (!node) {
      const number = this.numbers.get(name);
      const { reason } = state.ofLink(this.links[number]);
      const rate = this.tree.rateInWords(this.links[number]);
      return `link ${name}: ${[reason || STATES.ok, rate, state.trafficInWords(number), state.healthInWords(number)].filter(Boolean).join("; ")}`;
    }
    if (node.level === HOST) {
      const agent = state.hasAgent(node.number);
      const mute = this.tree.noLabel.has(name) ? ", may not choose paths" : "";
      return `${this.tree.levelOf(node)} ${name}, ${this.tree.addressesOf(node).join(", ")}${agent === null ? "" : agent ? ", with an agent" : ", without an agent"}${mute}`;
    }
    return `${this.tree.levelOf(node)} ${name}: ${state.ofSwitch(name).reason || "in use"}`;
  }

  // -- pointer and keyboard -----------------------------------------------------------------------------------------

  under(event) {
    const node = event.target.closest("[data-node]");
    if (node) return node.dataset.node;
    const box = this.svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [nearest, least] = [null, NEAR];
    for (const link of this.links) {
      const away = distance(x, y, this.nodes.get(link.lower), this.nodes.get(link.upper));
      if (away < least) [nearest, least] = [link.name, away];
    }
    return nearest;
  }

  pressed(event) {
    const name = event.target.dataset.node;
    if (!name || event.ctrlKey || event.altKey || event.metaKey) return;
    const node = this.nodes.get(name);
    if (event.key === "Enter" || event.key === " ") this.chosen(name);
    else if (!this.step(node, event.key)) return;
    event.preventDefault();
  }

  step(node, key) {
    const row = this.rows[node.row];
    if (key === "ArrowLeft") return this.enter(row[node.number - 1]);
    if (key === "ArrowRight") return this.enter(row[node.number + 1]);
    if (key === "Home") return this.enter(row[0]);
    if (key === "End") return this.enter(row.at(-1));
    if (key === "ArrowUp" || key === "ArrowDown") {
      // along a link, to the nearest node at the other end
      const ends = [...this.tree.linksOf(node)].map((link) => (key === "ArrowUp" ? link.upper : link.lower));
      const next = ends.filter((name) => name !== node.name).map((name) => this.nodes.get(name));
      const away = (member) => Math.abs(member.x - node.x);
      return this.enter(next.reduce((best, member) => (best && away(best) <= away(member) ? best : member), null));
    }
    return false;
  }

  enter(member) {
    if (!member) return true; // at the end of a row: nothing to focus, but the key is handled
    for (const node of this.nodes.values()) setAttribute(node.group, "tabindex", node.name === member.name ? "0" : "-1");
    this.nodes.get(member.name).group.focus();
    return true;
  }
}

function distance(x, y, a, b) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const along = Math.max(0, Math.min(1, ((x - a.x) * dx + (y - a.y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - a.x - along * dx, y - a.y - along * dy);
}
