// The legend of the drawing.

import { diamond, html, percent, svg } from "./elements.js";
import { COLOURINGS, DELAYS, LOSSES, MARKS, STATES, STEPS } from "./state.js";

/** Create the choice of what links are coloured by; `chosen` is called with it. */
export function choice(container, colouring, chosen) {
  const option = (what) => {
    const input = html("input", { type: "radio", name: "colouring", value: what, checked: what === colouring, onchange: () => chosen(what) });
    return html("label", {}, input, what);
  };
  container.replaceChildren(html("legend", {}, "Colour links by"), ...COLOURINGS.map(option));
}

/** Create the legend: seven keys at most of what links are coloured by, and folded the marks; what the fabric has none of is left out. */
export function legend(container, tree, colouring) {
  const sample = (attributes, share = null) => {
    const line = svg("line", { x1: 2, y1: 6, x2: 32, y2: 6, "data-step": "-1", ...attributes });
    if (share !== null) line.style.setProperty("--share", share);
    return svg("svg", { class: "tree sample", width: 34, height: 12, "data-colour": colouring, "aria-hidden": "true" }, line);
  };
  const host = (shape, agent, kind = "") => svg("svg", { class: "tree sample", width: 14, height: 14, "aria-hidden": "true" },
    svg("g", { class: `sign ${kind}`, transform: "translate(7 7)", "data-agent": agent }, shape));
  const circle = () => svg("circle", { r: 4.5 });
  const entry = (line, text) => html("li", {}, line, text);
  const link = (attributes, text) => entry(sample({ "data-state": "ok", ...attributes }), text);
  const list = (label, ...entries) => (entries.length ? html("ul", { "aria-label": label }, ...entries) : null);
  const keys = {
    load: () => list("Links by utilisation",
      link({}, "load unknown"),
      ...STEPS.map(([, text], step) => link({ "data-step": step }, text)),
      link({ "data-loss": 0 }, `${100 * LOSSES[0]} % lost or more`)),
    loss: () => list("Links by lost probes",
      link({ "data-loss": -2 }, "loss unknown"),
      link({ "data-loss": -1 }, `below ${100 * LOSSES[0]} % lost`),
      ...LOSSES.map((least, step) => link({ "data-loss": step }, `${100 * least} % lost or more`))),
    delay: () => list("Links by delay",
      link({ "data-delay": -2 }, "delay unknown"),
      link({ "data-delay": -1 }, "usual"),
      ...DELAYS.map((least, step) => link({ "data-delay": step }, `${least} times the median or more`))),
  };
  const isOpen = container.querySelector("details")?.open;
  const marks = [
    list("Links by state", ...["failed", "drained", "miswired"].map((state) => entry(sample({ "data-state": state }), `${MARKS[state]} ${STATES[state]}`))),
    list("Links by rate", ...tree.shares().map((share) =>
      entry(sample({ "data-band": "" }, share), share === 1 ? "full rate" : `${percent(share)} of it`))),
    list("Hosts",
      entry(host(circle(), "yes"), "host with an agent"),
      entry(host(circle(), "no"), "without"),
      tree.gateways.size ? entry(host(svg("path", { d: diamond(6) }), "no", "gateway"), "gateway") : null,
      tree.noLabel.size ? entry(host(circle(), "no", "no-label"), "may not choose paths") : null),
  ].filter(Boolean);
  container.replaceChildren(keys[colouring](), html("details", { open: isOpen }, html("summary", {}, "Marks of states, rates and hosts"), ...marks));
}
