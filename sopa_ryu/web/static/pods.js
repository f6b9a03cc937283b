// A fabric that is too large for a drawing of its links: a card for each pod, or for each switch if there are few pods.

import { AGGREGATION, CORE, EDGE } from "./clos.js";
import { count, follow, html, percent, sentence, setAttribute, setText } from "./elements.js";

const SHOWN = ["failed", "drained", "miswired"];
const LEVELS = { c: CORE, a: AGGREGATION, e: EDGE };
const ALSO = { [AGGREGATION]: " (spines)", [EDGE]: " (leaves)" };

/** The replacement of `Drawing`; single links and hosts are in the lists only. */
export class Pods {
  /**
   * @param {Element} container
   * @param {Clos} tree
   * @param {(name: string) => void} chosen called with the switch whose card was clicked
   */
  constructor(container, tree, chosen) {
    [this.tree, this.chosen] = [tree, chosen];
    this.groups = html("div");
    container.append(this.groups);
  }

  update(state) {
    const { pods, switch_summaries: switches } = state.message;
    const ofLevel = ([letter, level]) => ({
      title: `${sentence(level)} switches${(this.tree.leafSpine && ALSO[level]) || ""}`,
      cards: switches.filter(({ name }) => name.startsWith(letter)),
    });
    const groups = switches
      ? Object.entries(LEVELS).map(ofLevel)
      : [{ title: "Pods", cards: pods.map((pod, number) => ({ ...pod, title: `Pod ${number}` })) }];
    const shown = groups.filter(({ cards }) => cards.length);
    follow(this.groups, shown, ({ title }) => title, ({ title }) => makeGroup(title, switches !== undefined), (group, { cards }) => this.fill(group, cards));
  }

  fill(group, cards) {
    const list = group.lastElementChild;
    follow(list, cards, (card) => card.name ?? card.title, (card) => this.make(card), (element, card) => {
      const worst = SHOWN.find((name) => card[name]) || "ok";
      setAttribute(element, "data-state", worst);
      const words = SHOWN.filter((name) => card[name]).map((name) => `${card[name]} ${name}`);
      setText(element.children[1], words.join(", ") || (card.name ? "in use" : "all in use"));
      const busiest = card.name ? "busiest" : "busiest link";
      setText(element.children[2], card.peak === null ? "load unknown" : `${busiest} ${percent(card.peak)}`);
      element.children[3].value = card.peak || 0;
    });
    if (!cards[0].name) setAttribute(list, "aria-label", count(cards.length, "pod"));
  }

  make({ name, title }) {
    const press = () => this.chosen(name);
    return html("li", { class: "pod-card" },
      name ? html("button", { type: "button", class: "name", onclick: press }, name) : html("strong", {}, title),
      html("span"),
      html("span"),
      html("progress", { max: 1, value: 0, "aria-hidden": "true" }));
  }

  layout() {}
  light() {}
  select() {}
  ends() {}
}

function makeGroup(title, titled) {
  return html("section", {}, html("h3", { class: "pods-title", hidden: !titled }, title), html("ol", { class: titled ? "pod-cards small" : "pod-cards", "aria-label": title }));
}
