// Links, switches and agents as tables: sorted by a column, filtered by a text, or only what is not well.

import { byId, count, follow, html, percent, rate, setAttribute, setText } from "./elements.js";
import { within } from "./names.js";
import { STATES, lossInWords } from "./state.js";

const MAX_ROWS = 200; // more are said by their number
const USE = 2; // the column of links
const WELL = STATES.ok;
const number = (value, inWords) => ({ value: value ?? null, text: value === null || value === undefined ? "" : inWords(value) });
const words = (text) => ({ value: text, text });

/** The columns about a link, after its name. */
export const OF_LINK = ["State", "Use", "Lost", "Up", "Down", "Delay"];

/** Return the cells of these columns, of a link by its index; what is not known is empty. */
export function cellsOfLink(state, link, at) {
  const traffic = state.traffic(at);
  const health = state.health(at);
  return [words(state.ofLink(link).reason || WELL), number(traffic?.share, percent), number(health && Math.max(health.up, health.down), lossInWords),
    number(traffic?.up, rate), number(traffic?.down, rate), number(health?.delay, (us) => `${Math.round(us)} us`)];
}

/** By table: the columns, and the rows, {name, cells, wrong}, of a fabric's state. A cell has a value to sort by, and a text. */
const TABLES = {
  links: {
    columns: ["Link", ...OF_LINK],
    rows: (tree, state, drawn) => [...(drawn ? tree.links() : [])].map((link, at) =>
      row(link.name, state.ofLink(link).state !== "ok" || state.lossStep(at) >= 0, cellsOfLink(state, link, at))),
  },
  switches: {
    columns: ["Switch", "Level", "State", "Links not in use"],
    rows: (tree, state) => ["c", "a", "e"].flatMap((letter) => [...tree.switches(letter)]).map((node) => {
      const how = state.ofSwitch(node.name);
      const out = [...tree.linksOf(node)].filter((link) => state.ofLink(link).state !== "ok").length;
      return row(node.name, how.state !== "ok" || out > 0, [words(tree.levelOf(node)), words(how.reason || WELL), number(out, String)]);
    }),
  },
  agents: {
    columns: ["Host", "Address", "Agent"],
    rows: (tree, state, drawn) => {
      const missed = state.message.troubles.some(({ kind }) => kind === "agents"); // otherwise no host needs one
      const late = new Map(state.message.agents.lagging.map((agent) => [agent.host, agent]));
      return [...(drawn ? tree.hosts() : [])].map((host, at) => {
        const behind = late.get(host.name);
        const has = state.hasAgent(at);
        const needs = missed && !tree.noLabel.has(host.name) && !tree.gateways.has(host.name);
        const text = behind ? `version ${behind.version}, behind for ${Math.round(behind.lag_seconds)} s` : has ? "connected" : needs ? "none" : "none, not needed";
        return row(host.name, Boolean(behind) || (!has && needs), [number(10000 * host.pod + 100 * host.index + host.host, () => tree.addressesOf(host).join(", ")), words(text)]);
      });
    },
  },
};

const row = (name, wrong, cells) => ({ name, wrong, cells: [words(name), ...cells] });
const collator = new Intl.Collator("en", { numeric: true });

export class Tables {
  /** @param {(name: string) => void} select selects a switch, link or host */
  constructor(select) {
    this.select = select;
    this.tree = null;
    this.wrong = byId("table-wrong");
    this.filter = byId("table-filter");
    this.filter.form.addEventListener("submit", (event) => event.preventDefault());
    for (const input of [this.filter, this.wrong]) input.addEventListener("input", () => this.render());
    const option = (what) => html("label", {}, html("input", { type: "radio", name: "table", value: what, onchange: () => this.choose(what) }), what);
    byId("table-kinds").append(...Object.keys(TABLES).map(option));
    byId("table-kinds").querySelector("input").checked = true;
    this.choose("links");
  }

  choose(what) {
    [this.what, this.column, this.falls] = [what, 0, false];
    const head = (title, at) => html("th", { scope: "col" }, html("button", { type: "button", onclick: () => this.sort(at) }, title));
    byId("table-head").replaceChildren(...TABLES[what].columns.map(head));
    byId("table-body").replaceChildren();
    this.render();
  }

  /** Begin with the busiest links. */
  busiest() {
    this.choose("links");
    [this.column, this.falls] = [USE, true];
  }

  /** Sort by a column; again by the same one turns the order. Numbers begin with the largest. */
  sort(column) {
    this.falls = column === this.column ? !this.falls : this.rows.some(({ cells }) => typeof cells[column].value === "number");
    this.column = column;
    this.render();
  }

  update(tree, state, drawn) {
    [this.tree, this.state, this.drawn] = [tree, state, drawn];
    this.render();
  }

  render() {
    if (!this.tree) return;
    const { column, falls } = this;
    [...byId("table-head").children].forEach((head, at) => setAttribute(head, "aria-sort", at !== column ? "none" : falls ? "descending" : "ascending"));
    this.rows = TABLES[this.what].rows(this.tree, this.state, this.drawn);
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.rows.filter(({ wrong, cells }) =>
      (wrong || !this.wrong.checked) && (!wanted || cells.some(({ text }) => within(text).toLowerCase().includes(wanted))));
    // as planned is the order of names
    if (column || falls) found.sort((a, b) => compare(a.cells[column].value, b.cells[column].value, falls));
    const shown = found.slice(0, MAX_ROWS);
    follow(byId("table-body"), shown, ({ name }) => name, (each) => this.make(each), (line, { wrong, cells }) => {
      line.classList.toggle("wrong", wrong);
      cells.slice(1).forEach(({ text }, at) => setText(line.cells[at + 1], text));
    });
    const none = this.drawn || this.what === "switches" ? "" : "this fabric is too large for this page: sopa health and sopa agents list them";
    setText(byId("table-count"), none || `${count(found.length, "row")} of ${this.rows.length}${found.length > shown.length ? `, the first ${shown.length} are shown` : ""}`);
  }

  make({ name, cells }) {
    const press = () => this.select(name);
    return html("tr", {}, html("td", {}, html("button", { type: "button", class: "name", onclick: press }, name)),
      ...cells.slice(1).map(() => html("td")));
  }
}

/** Compare two values; what is not known is last in either order. */
function compare(a, b, falls) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" ? a - b : collator.compare(a, b);
  return falls ? -order : order;
}
