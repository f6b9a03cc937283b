// The last minutes in small: what hosts send, and how much has failed or is drained, from the messages since the page was opened.

import { byId, rate, setAttribute, setText, when } from "./elements.js";

const SECONDS = 600;
const LEAST_SECONDS = 60; // a shorter time is drawn as its part of this
const STEP = 1.5; // messages without a change come every 2 s: of several within this time the largest values count
const GAP = 10; // without a message for so long nothing is known of the time between

export class Trends {
  constructor() {
    this.samples = [];
  }

  /** Take a message into account. */
  update(state) {
    const { at, agents, failures_total: failed } = state.message;
    const known = [...(agents.hosts ?? "")].map((_, number) => state.traffic(number)?.up).filter((up) => up !== undefined);
    const sent = known.length ? known.reduce((sum, up) => sum + up) : null;
    const before = this.samples.filter((sample) => sample.at > at - SECONDS && sample.at < at);
    if (before.length > 1 && before.at(-1).at - before.at(-2).at < STEP) before.push(larger(...before.splice(-2)));
    this.samples = [...before, { at, sent, failed }];
    show("sent", this.samples.filter((sample) => sample.sent !== null), rate);
    show("failed", this.samples, String);
  }
}

const larger = (one, other) => ({
  at: one.at,
  sent: one.sent === null ? other.sent : Math.max(one.sent, other.sent),
  failed: Math.max(one.failed, other.failed),
});

function show(what, samples, inWords) {
  byId(`has-${what}`).hidden = !samples.length;
  if (!samples.length) return;
  const [first, last] = [samples[0], samples.at(-1)];
  const most = Math.max(...samples.map((sample) => sample[what]));
  const span = Math.max(LEAST_SECONDS, last.at - first.at);
  const x = (at) => (100 * (1 - (last.at - at) / span)).toFixed(1);
  const y = (value) => (19 - (18 * value) / (most || 1)).toFixed(1);
  const steps = samples.map((sample, number) => {
    const goesOn = number > 0 && sample.at - samples[number - 1].at < GAP;
    return `${goesOn ? `H${x(sample.at)}V` : `M${x(sample.at)} `}${y(sample[what])}`;
  });
  const [words, line] = byId(`trend-${what}`).children;
  setText(byId(`fact-${what}`), inWords(last[what]));
  setText(words, `at most ${inWords(most)} since ${when(first.at)}`);
  setAttribute(line, "d", `${steps.join("")}h0.1`);
}
