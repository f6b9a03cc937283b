// A fabric that is too large for a drawing of its links: one card per pod.

import { count, follow, html, percent, setAttribute, setText } from "./elements.js";

const SHOWN = ["failed", "drained", "miswired"];

/** The replacement of `Drawing`; single links and hosts are in the lists only. */
export class Pods {
  constructor(container) {
    this.list = html("ol", { class: "pod-cards", "aria-label": "Pods" });
    container.append(this.list);
  }

  update(state) {
    const pods = state.message.pods.map((pod, number) => ({ ...pod, number }));
    follow(this.list, pods, (pod) => String(pod.number), make, (card, pod) => {
      const worst = SHOWN.find((name) => pod[name]) || "ok";
      setAttribute(card, "data-state", worst);
      const words = SHOWN.filter((name) => pod[name]).map((name) => `${pod[name]} ${name}`);
      setText(card.children[1], words.join(", ") || "all in use");
      setText(card.children[2], pod.peak === null ? "load unknown" : `busiest link ${percent(pod.peak)}`);
      card.children[3].value = pod.peak || 0;
    });
    setAttribute(this.list, "aria-label", count(pods.length, "pod"));
  }

  layout() {}
  light() {}
  select() {}
  ends() {}
}

function make(pod) {
  return html("li", { class: "pod-card" },
    html("strong", {}, `Pod ${pod.number}`),
    html("span"),
    html("span"),
    html("progress", { max: 1, value: 0, "aria-hidden": "true" }));
}
