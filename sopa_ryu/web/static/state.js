// The state of each switch and link by name, from a message of the feed.

import { percent, rate } from "./elements.js";

/** The states of a link or switch with their texts. The drawing has a dash pattern and a colour for each. */
export const STATES = {
  ok: "in use",
  failed: "failed",
  drained: "drained",
  miswired: "miswired",
  missing: "not connected",
};

/** The least shares of lost probes that have colours of their own. */
export const LOSSES = [0.0005, 0.01, 0.1];

/** The least delays that have colours of their own, in medians of all links. */
export const DELAYS = [2, 5, 20];

/** What links can be coloured by. */
export const COLOURINGS = ["load", "loss", "delay"];

/** The marks of links and switches that are not in use, so that colour is not required. */
export const MARKS = { failed: "×", drained: "D", miswired: "≠", missing: "?" };

/** The steps of utilisation in the drawing: the upper limit of the share, and the text. */
export const STEPS = [
  [0.01, "idle"],
  [0.25, "to 25 %"],
  [0.5, "to 50 %"],
  [0.75, "to 75 %"],
  [Infinity, "above 75 %"],
];

/** The fabric in one message of the feed. */
export class FabricState {
  constructor(message) {
    this.message = message;
    this.reasons = new Map(message.failures.map((failure) => [failure.name, failure]));
    this.drained = new Set(message.drains);
    this.missing = new Set(message.missing);
    this.noChannel = new Set(message.no_channel);
  }

  /** Return {state, reason} of a switch. */
  ofSwitch(name) {
    const failure = this.reasons.get(name);
    if (failure) return { state: stateOf(failure.reason), reason: inWords(failure) };
    if (this.missing.has(name)) return { state: "missing", reason: this.whyMissing(name) };
    return { state: "ok", reason: "" };
  }

  /** Return what is known of a switch without an OpenFlow channel. */
  whyMissing(name) {
    return this.noChannel.has(name) ? "without an OpenFlow channel; it forwards by the rules it has" : "not connected, or its rules are not confirmed";
  }

  /** Return {state, reason} of a link; those of a switch at its end if the link itself has not failed. */
  ofLink(link) {
    const failure = this.reasons.get(link.name);
    if (failure) return { state: stateOf(failure.reason), reason: inWords(failure), own: true };
    for (const end of [link.lower, link.upper]) {
      const ending = this.reasons.get(end);
      if (ending) return { state: stateOf(ending.reason), reason: `its switch ${end} is ${inWords(ending)}`, own: false };
    }
    return { state: "ok", reason: "", own: true };
  }

  /** Return {up, down, capacity, share} of a link by its index, in bits/s, null where unknown; null if nothing is known. */
  traffic(number) {
    const link = this.message.links && this.message.links[number];
    if (!link) return null;
    const [up, down, capacity] = link;
    return { up, down, capacity, share: capacity ? Math.max(up, down) / capacity : null };
  }

  /** Return the index in STEPS of a link's utilisation; -1 if it is unknown. */
  step(number) {
    const traffic = this.traffic(number);
    if (!traffic || traffic.share === null) return -1;
    return STEPS.findIndex(([most]) => traffic.share <= most);
  }

  /** Describe the traffic of a link. */
  trafficInWords(number) {
    const traffic = this.traffic(number);
    if (!traffic) return "traffic unknown";
    const words = `${rate(traffic.up)} up, ${rate(traffic.down)} down`;
    return traffic.share === null ? words : `${words}: ${percent(traffic.share)} of ${rate(traffic.capacity)}`;
  }

  /** Return {up, down, delay} of a link by its index, as shares and microseconds by probes; null if nothing is known. */
  health(number) {
    const hosts = this.message.agents.hosts;
    const links = this.message.health?.links;
    const known = hosts && links ? links[number - hosts.length] : null;
    return known && known[0] !== null ? { up: known[0], down: known[1], delay: known[2] } : null;
  }

  /** Return the index in LOSSES of what probes lose on a link; -1 if that is nothing worth a colour, -2 if it is unknown. */
  lossStep(number) {
    const health = this.health(number);
    return health ? LOSSES.findLastIndex((least) => Math.max(health.up, health.down) >= least) : -2;
  }

  /** The median of all links' delays in microseconds; 0 if none is known. */
  get medianDelay() {
    const delays = (this.message.health?.links ?? []).map((link) => link[2]).filter((delay) => delay !== null).sort((a, b) => a - b);
    const median = delays.length ? delays[Math.floor(delays.length / 2)] : 0;
    Object.defineProperty(this, "medianDelay", { value: median });
    return median;
  }

  /** Return the index in DELAYS of a link's delay; -1 if it is usual, -2 if it is unknown. */
  delayStep(number) {
    const delay = this.health(number)?.delay ?? null;
    if (delay === null || !this.medianDelay) return -2;
    return DELAYS.findLastIndex((least) => delay >= least * this.medianDelay);
  }

  /** Describe what probes say of a link; nothing if they say nothing. */
  healthInWords(number) {
    const health = this.health(number);
    if (!health) return "";
    const words = `probes: ${lossInWords(health.up)} lost up, ${lossInWords(health.down)} down`;
    if (health.delay === null) return words;
    const times = this.medianDelay ? `, ${(health.delay / this.medianDelay).toFixed(1)} times the median of all links` : "";
    return `${words}, ${Math.round(health.delay)} us there and back${times}`;
  }

  /** Return whether a host has an agent; null if that is not in the message. */
  hasAgent(number) {
    const hosts = this.message.agents.hosts;
    return hosts ? hosts[number] === "1" : null;
  }
}

/** Format a share of lost probes. */
export const lossInWords = (share) => `${(100 * share).toFixed(2)}%`;

function stateOf(reason) {
  if (reason === "drained" || reason === "miswired") return reason;
  return reason === "not connected" ? "missing" : "failed";
}

function inWords(failure) {
  return failure.held_seconds ? `${failure.reason} until now, held down for ${Math.ceil(failure.held_seconds)} s` : failure.reason;
}
