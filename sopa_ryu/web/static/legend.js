// The legend of the drawing.

import { diamond, html, percent, svg } from "./elements.js";
import { MARKS, STATES, STEPS } from "./state.js";

/** Create the legend of dashes, widths, marks and hosts; what the fabric has none of is left out. */
export function legend(container, tree) {
  const sample = (attributes, share = null) => {
    const line = svg("line", { x1: 2, y1: 6, x2: 32, y2: 6, ...attributes });
    if (share !== null) line.style.setProperty("--share", share);
    return svg("svg", { class: "tree sample", width: 34, height: 12, "aria-hidden": "true" }, line);
  };
  const host = (shape, agent, kind = "") => svg("svg", { class: "tree sample", width: 14, height: 14, "aria-hidden": "true" },
    svg("g", { class: `sign ${kind}`, transform: "translate(7 7)", "data-agent": agent }, shape));
  const circle = () => svg("circle", { r: 4.5 });
  const entry = (line, text) => html("li", {}, line, text);
  const list = (label, ...entries) => (entries.length ? html("ul", { "aria-label": label }, ...entries) : null);
  const parts = [
    list("Links by state", ...["failed", "drained", "miswired"].map((state) =>
      entry(sample({ "data-state": state, "data-step": "-1" }), `${MARKS[state]} ${STATES[state]}`))),
    list("Links by utilisation",
      entry(sample({ "data-state": "ok", "data-step": "-1" }), "load unknown"),
      ...STEPS.map(([, text], step) => entry(sample({ "data-state": "ok", "data-step": step }), text))),
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
