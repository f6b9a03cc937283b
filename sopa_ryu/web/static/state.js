// What the feed says, by name: how each switch and link is, and in which words.

import { percent, rate } from "./elements.js";

/** How a link or switch can be, with the word for it. The drawing has a dash pattern and a colour for each. */
export const STATES = {
  ok: "in use",
  failed: "failed",
  drained: "drained",
  miswired: "miswired",
  missing: "not connected",
};

/** The steps of utilisation that the drawing tells apart: up to which share, and its name. */
export const STEPS = [
  [0.01, "idle"],
  [0.25, "to 25 %"],
  [0.5, "to 50 %"],
  [0.75, "to 75 %"],
  [Infinity, "above 75 %"],
];

/** One message of the feed. */
export class FabricState {
  constructor(message) {
    this.message = message;
    this.reasons = new Map(message.failures.map((failure) => [failure.name, failure]));
    this.drained = new Set(message.drains);
    this.missing = new Set(message.missing);
  }

  /** {state, reason} of a switch. */
  ofSwitch(name) {
    const failure = this.reasons.get(name);
    if (failure) return { state: stateOf(failure.reason), reason: inWords(failure) };
    if (this.missing.has(name)) return { state: "missing", reason: STATES.missing };
    return { state: "ok", reason: "" };
  }

  /** {state, reason} of a link; that of a switch at its end if the link itself is well. */
  ofLink(link) {
    const failure = this.reasons.get(link.name);
    if (failure) return { state: stateOf(failure.reason), reason: inWords(failure), own: true };
    for (const end of [link.lower, link.upper]) {
      const ending = this.reasons.get(end);
      if (ending) return { state: stateOf(ending.reason), reason: `its switch ${end} is ${inWords(ending)}`, own: false };
    }
    return { state: "ok", reason: "", own: true };
  }

  /** Of a link by its number: bits/s both ways, capacity and share of it where they are known; null if nothing is. */
  traffic(number) {
    const told = this.message.links && this.message.links[number];
    if (!told) return null;
    const [up, down, capacity] = told;
    return { up, down, capacity, share: capacity ? Math.max(up, down) / capacity : null };
  }

  /** Which of STEPS a link is on; -1 if that is not known. */
  step(number) {
    const traffic = this.traffic(number);
    if (!traffic || traffic.share === null) return -1;
    return STEPS.findIndex(([most]) => traffic.share <= most);
  }

  /** What a link carries, in words. */
  trafficInWords(number) {
    const traffic = this.traffic(number);
    if (!traffic) return "traffic unknown";
    const words = `${rate(traffic.up)} up, ${rate(traffic.down)} down`;
    return traffic.share === null ? words : `${words}: ${percent(traffic.share)} of ${rate(traffic.capacity)}`;
  }

  /** Whether a host has an agent; null if that is not told. */
  hasAgent(number) {
    const hosts = this.message.agents.hosts;
    return hosts ? hosts[number] === "1" : null;
  }
}

function stateOf(reason) {
  if (reason === "drained" || reason === "miswired") return reason;
  return reason === "not connected" ? "missing" : "failed";
}

function inWords(failure) {
  return failure.held_seconds ? `${failure.reason} until now, held down ${Math.ceil(failure.held_seconds)} s more` : failure.reason;
}
