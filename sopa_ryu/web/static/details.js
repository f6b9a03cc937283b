// Details of one switch, link or host: its state, the traffic of its links, and its drain.

import { EDGE, HOST } from "./clos.js";
import { byId, count, follow, html, say, sentence, setText } from "./elements.js";
import { Confirm } from "./confirm.js";
import { own, rackOf } from "./names.js";
import { drain } from "./operator.js";
import { STATES } from "./state.js";
import { OF_LINK, cellsOfLink } from "./tables.js";

export class Details {
  /**
   * @param {(name: string) => void} select selects a switch, link or host
   * @param {(name: string, end: "source" | "destination") => void} pick selects a host as an end of the paths
   */
  constructor(select, pick) {
    this.select = select;
    this.tree = null;
    this.state = null;
    this.name = "";
    this.title = html("h3", { "aria-live": "polite" });
    this.words = html("p");
    this.change = html("button", { type: "button", onclick: () => this.changed() });
    this.confirm = new Confirm(this.change);
    this.from = html("button", { type: "button", onclick: () => pick(this.name, "source") }, "Paths from here");
    this.to = html("button", { type: "button", onclick: () => pick(this.name, "destination") }, "Paths to here");
    this.links = html("tbody");
    const head = ["Link", ...OF_LINK].map((title) => html("th", { scope: "col" }, title));
    const table = html("table", { class: "links-list", "aria-label": "Its links" }, html("thead", {}, html("tr", {}, ...head)), this.links);
    byId("chosen").append(html("div", { hidden: true }, this.title, this.words,
      html("span", { class: "buttons" }, this.change, this.from, this.to), this.confirm.form, html("div", { class: "rows", tabindex: 0, role: "region", "aria-label": "Its links" }, table)));
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find(byId("name").value.trim());
    });
  }

  /** Restore what is drained; ask first before a drain. */
  changed() {
    if (this.state.drained.has(this.name)) drain(this.name, false);
    else this.confirm.open(this.name);
  }

  /** Select what a name names; return whether there is such a thing. */
  find(text) {
    const name = own(text);
    const found = Boolean(this.tree && (this.tree.parse(name) || this.tree.link(name)));
    say(byId("find-error"), found ? "" : this.unknown(name));
    if (found) this.select(name);
    return found;
  }

  /** Explain that a name is none of a switch, link or host. */
  unknown(name) {
    if (this.tree && this.tree.absent.has(name)) return `${name} is absent: the fabric has no cable there.`;
    const { source, link, switches } = this.tree ? this.tree.examples() : { source: "h0_0_2", link: "e0_0-a0_0", switches: "e0_0 or a0_0" };
    return `There is no ${name || "such name"} here: a switch is ${switches}, a link ${link}, a host ${source}.`;
  }

  /** Show the switch, link or host of that name. */
  show(name) {
    if (this.confirm.name !== name) this.confirm.close();
    this.name = name;
    byId("name").value = name;
    say(byId("find-error"), "");
    this.render();
  }

  update(tree, state, numbers) {
    [this.tree, this.state, this.numbers] = [tree, state, numbers];
    this.render();
  }

  render() {
    const { name, tree, state } = this;
    byId("chosen").firstElementChild.hidden = !name;
    if (!name || !state) return;
    const node = tree.parse(name);
    const link = node ? null : tree.link(name);
    this.title.parentElement.hidden = !node && !link; // a smaller fabric may come after a restart
    if (!node && !link) return;
    const host = node && node.level === HOST;
    const drainable = !host && !(link && link.lower.startsWith("h"));
    this.change.hidden = !drainable;
    setText(this.change, state.drained.has(name) ? `Restore ${name}` : `Drain ${name}`);
    this.from.hidden = this.to.hidden = !host;
    if (link) {
      setText(this.title, `Link ${name}`);
      const { reason } = state.ofLink(link);
      setText(this.words, sentence([reason || STATES.ok, tree.rateInWords(link)].filter(Boolean).join("; ")));
    } else if (host) {
      setText(this.title, `Host ${name}`);
      const gateways = tree.addressesOf({ ...node, host: 1 });
      const words = `${tree.addressesOf(node).join(" and ")}, ${gateways.length > 1 ? "gateways" : "gateway"} ${gateways.join(" and ")}`;
      setText(this.words, `${words}.${this.role(name)}${rackOf(name) ? ` Rack: ${rackOf(name)}.` : ""}`);
    } else {
      setText(this.title, `${sentence(tree.levelOf(node))} ${name}`);
      const place = node.level === EDGE ? `rack 10.${node.pod}.${node.index}.0/24` : "";
      const absent = tree.absentOf(node).map((each) => each.name);
      const without = absent.length ? `${count(absent.length, "link")} absent: ${absent.join(", ")}` : "";
      setText(this.words, sentence([state.ofSwitch(name).reason || STATES.ok, place, without, rackOf(name) && `rack: ${rackOf(name)}`].filter(Boolean).join("; ")));
    }
    const links = link ? [link] : [...tree.linksOf(node)];
    follow(this.links, links, (each) => each.name, (each) => this.item(each), (line, each) => {
      line.classList.toggle("wrong", state.ofLink(each).state !== "ok");
      const slower = !link && tree.rateOf(each).share < 1 ? `; ${tree.rateInWords(each, true)}` : "";
      cellsOfLink(state, each, this.numbers?.get(each.name)).forEach(({ text }, at) => setText(line.cells[at + 1], at ? text : text + slower));
    });
  }

  /** Return what the fabric file says of a host. */
  role(name) {
    const leads = this.tree.gateways.has(name) ? " It leads out of the fabric." : "";
    const mute = this.tree.noLabel.has(name) ? " It may not choose paths: switches choose them by flow." : "";
    return leads + mute;
  }

  item(link) {
    return html("tr", {}, html("td", {}, html("button", { type: "button", class: "name", onclick: () => this.select(link.name) }, link.name)),
      ...OF_LINK.map(() => html("td")));
  }
}
