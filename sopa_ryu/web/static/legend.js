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

/** Create the legend of dashes, colours, widths, marks and hosts; what the fabric has none of is left out. */
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
  const list = (label, ...entries) => (entries.length ? html("ul", { "aria-label": label }, ...entries) : null);
  const parts = [
    list("Links by state", ...["failed", "drained", "miswired"].map((state) =>
      entry(sample({ "data-state": state }), `${MARKS[state]} ${STATES[state]}`))),
    colouring !== "load" ? null : list("Links by utilisation",
      entry(sample({ "data-state": "ok" }), "load unknown"),
      ...STEPS.map(([, text], step) => entry(sample({ "data-state": "ok", "data-step": step }), text))),
    colouring === "delay" ? null : list("Links by lost probes",
      colouring === "loss" ? entry(sample({ "data-state": "ok", "data-loss": -2 }), "loss unknown") : null,
      colouring === "loss" ? entry(sample({ "data-state": "ok", "data-loss": -1 }), `below ${100 * LOSSES[0]} % lost`) : null,
      ...LOSSES.map((least, step) => entry(sample({ "data-state": "ok", "data-loss": step }), `${100 * least} % lost or more`))),
    colouring !== "delay" ? null : list("Links by delay",
      entry(sample({ "data-state": "ok", "data-delay": -2 }), "delay unknown"),
      entry(sample({ "data-state": "ok", "data-delay": -1 }), "usual"),
      ...DELAYS.map((least, step) => entry(sample({ "data-state": "ok", "data-delay": step }), `${least} times the median or more`))),
    list("Links by rate", ...tree.shares().map((share) =>
      entry(sample({ "data-band": "" }, share), share === 1 ? "full rate" : `${percent(share)} of it`))),
    list("Hosts",
      entry(host(circle(), "yes"), "host with an agent"),
      entry(host(circle(), "no"), "without"),
      tree.gateways.size ? entry(host(svg("path", { d: diamond(6) }), "no", "gateway"), "gateway") : null,
      tree.noLabel.size ? entry(host(circle(), "no", "no-label"), "may not choose paths") : null),
  ];
  container.replaceChildren(...parts.filter(Boolean));
}
