// The paths between two hosts: the candidate paths with their labels, the excluded ones with the reason.

import { linksOn } from "./clos.js";
import { byId, count, follow, html, percent, say, setAttribute, setText } from "./elements.js";
import { aliasOf, own } from "./names.js";
import { detail, read } from "./operator.js";

const SAME = 1e-6; // by which equal weights may differ

export class Paths {
  /** @param {() => object} drawing returns the `Drawing` or `Pods` that highlights the paths */
  constructor(drawing) {
    this.drawing = drawing;
    this.tree = null;
    this.version = null;
    this.asked = 0;
    this.ends = null;
    this.rows = [];
    this.pinned = null;
    this.weighted = false;
    this.candidates = html("ol", { class: "list paths-list", "aria-label": "Candidate paths" });
    this.excluded = html("ol", { class: "list paths-list", "aria-label": "Excluded paths" });
    this.excludedTitle = html("h3", { hidden: true }, "Excluded");
    byId("paths-lists").append(this.candidates, this.excludedTitle, this.excluded);
    byId("paths-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.show(byId("source").value.trim(), byId("destination").value.trim());
    });
    byId("paths-clear").addEventListener("click", () => this.clear());
  }

  /** Set the fabric, its state with the links' indices if they are in it, and its version; paths that are shown are requested again when it changes. */
  update(tree, state, numbers, version) {
    const changed = this.version !== version;
    if (this.tree !== tree) {
      const hosts = numbers ? [...tree.hosts()] : [];
      byId("host-names").replaceChildren(...hosts.map((host) => html("option", { value: host.name }, aliasOf(host.name) ?? null)));
    }
    [this.tree, this.state, this.numbers, this.version] = [tree, state, numbers, version];
    this.describe();
    if (changed && this.ends) this.ask(...this.ends);
  }

  /** Select a host: first the source, then the destination, then a new source. */
  pick(name) {
    const [source, destination] = [byId("source"), byId("destination")];
    const first = !source.value || destination.value;
    if (first) this.clear();
    this.set(name, first ? "source" : "destination");
  }

  /** Make a host one end of the paths. */
  set(name, end) {
    byId(end).value = name;
    const [source, destination] = [byId("source").value.trim(), byId("destination").value.trim()];
    if (source && destination) this.show(source, destination);
    else {
      this.drawing().ends(source, destination);
      setText(byId("paths-summary"), `${source ? "From" : "To"} ${name}: select the other host.`);
    }
  }

  clear() {
    this.ends = null;
    this.asked += 1; // invalidates a pending answer
    byId("source").value = byId("destination").value = "";
    say(byId("paths-error"), "");
    setText(byId("paths-summary"), "");
    this.render([], []);
    this.drawing().ends("", "");
  }

  show(source, destination) {
    this.ends = [source, destination];
    this.pinned = null;
    this.ask(source, destination);
  }

  /** Highlight again after the drawing was replaced. */
  redraw() {
    this.light();
    if (this.ends) this.drawing().ends(...this.ends.map((end) => this.nameOf(end)));
  }

  async ask(source, destination) {
    const number = ++this.asked;
    let answer;
    try {
      answer = await read(`/sopa/v1/paths?${new URLSearchParams({ src: source, dst: destination })}`);
      if (number !== this.asked) return;
      if (!answer.ok) {
        const words = await detail(answer);
        if (number === this.asked) this.fail(words);
        return;
      }
      const body = await answer.json();
      if (number === this.asked) this.take(body);
    } catch {
      if (number === this.asked) this.fail("The controller does not answer; the paths are requested again when it does.");
    }
  }

  fail(words) {
    say(byId("paths-error"), words);
    setText(byId("paths-summary"), "");
    this.render([], []);
    this.drawing().ends("", "");
  }

  take(body) {
    const ends = [this.nameOf(body.src), this.nameOf(body.dst)];
    const keys = new Set();
    const row = (path) => ({ ...path, key: newKey(keys, path), nodes: this.nodesOf(path, ends) });
    say(byId("paths-error"), "");
    const usable = `${count(body.candidates.length, "candidate path")} of ${body.total}`;
    const mute = this.tree.noLabel.has(ends[0]) ? ` ${ends[0]} may not choose paths: switches choose one for each of its flows.` : "";
    setText(byId("paths-summary"), `${ends[0]} to ${ends[1]}, ${body.kind}: ${usable}, at version ${body.version}.${mute}`);
    this.render(body.candidates.map(row), body.excluded.map(row));
    this.drawing().ends(...ends);
  }

  /** Return the names of a path's nodes. A path to a destination outside the fabric ends at a gateway, if the answer names it. */
  nodesOf(path, [source, destination]) {
    const end = path.gateway ? this.nameOf(path.gateway) : destination;
    if (path.hops) return [source, ...path.hops, ...(this.tree.parse(end) ? [end] : [])];
    return this.tree.parse(end) ? this.tree.path(source, end, path.up) : [source];
  }

  render(candidates, excluded) {
    this.rows = [...candidates, ...excluded];
    if (!this.rows.some((row) => row.key === this.pinned)) this.pinned = null;
    this.excludedTitle.hidden = excluded.length === 0;
    const weights = candidates.map((row) => row.weight ?? 1 / candidates.length);
    this.weighted = Math.max(...weights) - Math.min(...weights) > SAME;
    const make = (row) => this.item(row);
    follow(this.candidates, candidates, (row) => row.key, make, (item, row) => {
      this.fill(item, row.option, this.shown(row), this.weighted ? share(row.weight) : "");
    });
    follow(this.excluded, excluded, (row) => row.key, make, (item, row) => {
      this.fill(item, `up ${row.up.join(", ")}`, this.shown(row), "", row.reason);
    });
    this.light();
    this.describe();
  }

  item(row) {
    const { key } = row;
    const over = () => this.light(key);
    const away = () => this.light();
    const press = () => {
      this.pinned = this.pinned === key ? null : key;
      this.light();
      this.describe();
    };
    return html("li", {},
      html("button", { type: "button", class: "path", onclick: press, onfocus: over, onblur: away, onpointerenter: over, onpointerleave: away },
        html("code"), html("b"), html("span"), html("em"), html("small")));
  }

  /** Return the nodes of a path that the list shows: its switches, and the gateway to which it leads. */
  shown(row) {
    const switches = row.nodes.filter((name) => !name.startsWith("h"));
    return row.gateway ? [...switches, this.nameOf(row.gateway)] : switches;
  }

  fill(item, label, nodes, weight, reason = "") {
    const [code, b, span, em] = item.firstElementChild.children;
    setText(code, label);
    setText(b, weight);
    setText(span, nodes.join(" → "));
    setText(em, reason);
  }

  /** Show the details of the pressed path. */
  describe() {
    const pinned = this.rows.find((row) => row.key === this.pinned);
    for (const item of [...this.candidates.children, ...this.excluded.children]) {
      const words = pinned && item.dataset.key === pinned.key ? this.detailsOf(pinned) : "";
      setText(item.firstElementChild.lastElementChild, words);
    }
  }

  /** Return a path's share of a flow's packets, its slowest link where rates are known, and its busiest link. */
  detailsOf(row) {
    const links = linksOn(row.nodes).map((name) => this.tree.link(name)).filter(Boolean);
    const rated = links.map((link) => ({ ...link, bits: this.tree.rateOf(link).bits })).filter(({ bits }) => bits !== null);
    const slowest = least(rated.filter(({ lower }) => !lower.startsWith("h")), ({ bits }) => bits);
    const loads = links.map((link) => ({ ...link, traffic: this.numbers && this.state.traffic(this.numbers.get(link.name)) }));
    const busiest = least(loads.filter(({ traffic }) => traffic && traffic.share !== null), ({ traffic }) => -traffic.share);
    const words = [
      row.weight === undefined ? "" : `${share(row.weight)} of a flow’s packets`,
      slowest ? `slowest link ${slowest.name}: ${this.tree.rateInWords(slowest, true)}` : "",
      busiest ? `busiest link ${busiest.name}: ${percent(busiest.traffic.share)}` : "load unknown",
    ];
    return words.filter(Boolean).join("; ");
  }

  /** Return each link's share of the packets that the widest line between switches has; null if all paths have the same share. */
  sharesOf(rows) {
    if (!this.weighted) return null;
    const sums = new Map();
    for (const row of rows) for (const name of linksOn(row.nodes)) sums.set(name, (sums.get(name) ?? 0) + row.weight);
    const between = [...sums].filter(([name]) => !name.startsWith("h")).map(([, sum]) => sum);
    const widest = Math.max(...between);
    return new Map([...sums].map(([name, sum]) => [name, Math.min(1, sum / widest)]));
  }

  /** Highlight one path, or the pinned one, or all. */
  light(key = this.pinned) {
    const shown = key === null ? this.rows : this.rows.filter((row) => row.key === key);
    const candidates = shown.filter((row) => row.option);
    this.drawing().light(
      candidates.map((row) => row.nodes),
      shown.filter((row) => !row.option).map((row) => row.nodes),
      key === null ? this.sharesOf(candidates) : null);
    for (const item of [...this.candidates.children, ...this.excluded.children]) {
      setAttribute(item.firstElementChild, "aria-pressed", String(item.dataset.key === this.pinned));
    }
  }

  /** Return the name of a host given by name, alias or address. */
  nameOf(text) {
    return this.tree?.hostAt(text) ?? own(text);
  }
}

/** Return a key for a path that none of `keys` equals, and add it: paths to several gateways may have the same uplinks. */
function newKey(keys, path) {
  const key = [path.up.join("_") || "rack", path.gateway ?? ""].join(" ").trim();
  for (let number = 0; ; number++) {
    const unique = number ? `${key} ${number}` : key;
    if (!keys.has(unique)) {
      keys.add(unique);
      return unique;
    }
  }
}

/** Return a share of a flow's packets in words; small ones differ by less than one percent. */
const share = (weight) => (weight >= 0.1 ? percent(weight) : `${(100 * weight).toPrecision(2)} %`);

/** Return the item whose value is least; null if there is none. */
function least(items, value) {
  return items.reduce((best, item) => (best && value(best) <= value(item) ? best : item), null);
}
