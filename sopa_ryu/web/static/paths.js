// The paths between two hosts: the candidate paths with their labels, the excluded ones with the reason.

import { byId, count, follow, html, say, setAttribute, setText } from "./elements.js";
import { detail } from "./operator.js";

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

  /** Set the fabric and its version; paths that are shown are requested again when it changes. */
  update(tree, version) {
    const changed = this.version !== version;
    if (!this.tree || this.tree.k !== tree.k) {
      const hosts = tree.k > 16 ? [] : [...tree.hosts()];
      byId("host-names").replaceChildren(...hosts.map((host) => html("option", { value: host.name })));
    }
    [this.tree, this.version] = [tree, version];
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
      answer = await fetch(`/sopa/v1/paths?${new URLSearchParams({ src: source, dst: destination })}`);
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
    const row = (path) => ({ ...path, key: path.up.join("_") || "rack", nodes: this.tree.path(...ends, path.up) });
    say(byId("paths-error"), "");
    const usable = `${count(body.candidates.length, "candidate path")} of ${body.total}`;
    setText(byId("paths-summary"), `${ends[0]} to ${ends[1]}, ${body.kind}: ${usable}, at version ${body.version}.`);
    this.render(body.candidates.map(row), body.excluded.map(row));
    this.drawing().ends(...ends);
  }

  render(candidates, excluded) {
    this.rows = [...candidates, ...excluded];
    if (!this.rows.some((row) => row.key === this.pinned)) this.pinned = null;
    this.excludedTitle.hidden = excluded.length === 0;
    const make = (row) => this.item(row);
    follow(this.candidates, candidates, (row) => row.key, make, (item, row) => this.fill(item, row.option, row.nodes));
    follow(this.excluded, excluded, (row) => row.key, make, (item, row) => {
      this.fill(item, `up ${row.up.join(", ")}`, row.nodes, row.reason);
    });
    this.light();
  }

  item(row) {
    const { key } = row;
    const over = () => this.light(key);
    const away = () => this.light();
    const press = () => {
      this.pinned = this.pinned === key ? null : key;
      this.light();
    };
    return html("li", {},
      html("button", { type: "button", class: "path", onclick: press, onfocus: over, onblur: away, onpointerenter: over, onpointerleave: away },
        html("code"), html("span"), html("em")));
  }

  fill(item, label, nodes, reason = "") {
    const [code, span, em] = item.firstElementChild.children;
    setText(code, label);
    setText(span, nodes.slice(1, -1).join(" → "));
    setText(em, reason);
  }

  /** Highlight one path, or the pinned one, or all. */
  light(key = this.pinned) {
    const shown = key === null ? this.rows : this.rows.filter((row) => row.key === key);
    this.drawing().light(
      shown.filter((row) => row.option).map((row) => row.nodes),
      shown.filter((row) => !row.option).map((row) => row.nodes));
    for (const item of [...this.candidates.children, ...this.excluded.children]) {
      setAttribute(item.firstElementChild, "aria-pressed", String(item.dataset.key === this.pinned));
    }
  }

  /** Return the name of a host given by name or address. */
  nameOf(text) {
    const parts = text.split(".");
    return parts.length === 4 ? `h${parts[1]}_${parts[2]}_${parts[3]}` : text;
  }
}
