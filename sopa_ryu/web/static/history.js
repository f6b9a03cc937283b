// The last hour of a link: loss and delay by probes, as two plots.

import { clock, html, say, setAttribute, setText, svg } from "./elements.js";
import { detail } from "./operator.js";
import { lossInWords } from "./state.js";

const SPANS = [8, 20, 40, 60]; // minutes: of a link that is known for a short time the plot has no more
const REFRESH = 10000; // milliseconds: a point is ten seconds
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [320, 92, 46, 6, 16];
const LEAST_LOSS = 0.001; // a scale that ends lower would show single lost probes as mountains

export class LinkHistory {
  constructor() {
    this.name = "";
    this.asked = 0;
    this.timer = null;
    this.loss = plot("loss");
    this.delay = plot("delay");
    this.problem = html("div", { class: "error", role: "alert", hidden: true });
    this.words = html("div", { class: "hint" });
    this.element = html("div", { class: "history", hidden: true },
      html("h4", {}, "Lost probes, last hour"), this.loss,
      html("div", { class: "keys", "aria-hidden": "true" }, key("up"), "upwards", key("down"), "downwards"),
      html("h4", {}, "Delay there and back, last hour"), this.delay, this.words, this.problem);
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.name) this.ask();
    });
  }

  /** Show a link between switches; "" for none. */
  show(name) {
    if (name === this.name) return;
    this.name = name;
    this.element.hidden = !name;
    this.asked += 1; // invalidates a pending answer
    clearInterval(this.timer);
    this.draw([]);
    setText(this.words, "");
    say(this.problem, "");
    if (!name) return;
    this.ask();
    this.timer = setInterval(() => document.hidden || this.ask(), REFRESH);
  }

  async ask() {
    const number = ++this.asked;
    let problem = "The controller does not answer; the last hour is asked for again when it does.";
    try {
      const answer = await fetch(`/sopa/v1/health/${encodeURIComponent(this.name)}`);
      if (answer.ok) {
        const body = await answer.json();
        if (number === this.asked) this.take(body.points);
        problem = "";
      } else problem = await detail(answer);
    } catch {
      // the text says it
    }
    if (number === this.asked) say(this.problem, problem);
  }

  take(points) {
    this.draw(points);
    const known = points.filter((point) => point.loss.up !== null);
    if (!known.length) {
      setText(this.words, "No probe has crossed this link in the last hour.");
      return;
    }
    const sent = known.reduce((sum, point) => sum + point.sent, 0);
    const lost = (way) => known.reduce((sum, point) => sum + point.sent * point.loss[way], 0) / sent;
    const delays = known.map((point) => point.delay_us).filter((value) => value !== null).sort((a, b) => a - b);
    const at = (share) => micros(delays[Math.min(delays.length - 1, Math.floor(share * delays.length))]);
    const since = clock(new Date(1000 * points[0].at));
    const losses = `${lossInWords(lost("up"))} lost up, ${lossInWords(lost("down"))} down, of ${sent} probes since ${since}`;
    setText(this.words, delays.length ? `${losses}; of ten seconds’ delays the median is ${at(0.5)}, the 99th percentile ${at(0.99)}.` : `${losses}.`);
  }

  draw(points) {
    const end = Math.max(Date.now() / 1000, points.length ? points.at(-1).at + 10 : 0);
    const known = points.length ? (end - points[0].at) / 60 : 60;
    const span = SPANS.find((minutes) => minutes >= known) ?? SPANS.at(-1);
    const series = (value) => points.map((point) => [end - point.at - 5, value(point)]);
    const [up, down] = [series((point) => point.loss.up), series((point) => point.loss.down)];
    const most = (lists, least) => Math.max(least, ...lists.flat().map(([, value]) => value ?? 0));
    fill(this.loss, [["up", up], ["down", down]], most([up, down], LEAST_LOSS), lossInWords, `Lost probes of ${this.name}`, span);
    const delay = series((point) => point.delay_us);
    fill(this.delay, [["delay", delay]], most([delay], 1), micros, `Delay of ${this.name}`, span);
  }
}

function key(kind) {
  return svg("svg", { width: 22, height: 10 }, svg("path", { class: `curve ${kind}`, d: "M1 5H21" }));
}

function plot(kind) {
  return svg("svg", { class: `plot ${kind}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
    svg("g", { class: "axes" }), svg("g", { class: "curves" }));
}

/** Draw curves of [seconds ago, value] of so many minutes into a plot; a value of null is a gap. */
function fill(plot, curves, highest, words, label, span) {
  const most = ceiling(highest);
  const x = (ago) => WIDTH - 4 - (WIDTH - LEFT - 4) * Math.min(1, ago / 60 / span);
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * Math.min(1, value / most);
  const [axes, lines] = plot.children;
  axes.replaceChildren(
    ...[0, most / 2, most].flatMap((value) => [
      svg("path", { d: `M${LEFT} ${y(value)}H${WIDTH - 4}` }),
      svg("text", { x: LEFT - 4, y: y(value) + 3, "text-anchor": "end" }, words(value)),
    ]),
    ...[1, 0.75, 0.5, 0.25, 0].map((part) => part * span).map((minutes) =>
      svg("text", { x: x(60 * minutes), y: HEIGHT - 3, "text-anchor": minutes ? "middle" : "end" }, minutes ? `−${minutes} min` : "now")));
  lines.replaceChildren(...curves.map(([kind, points]) => svg("path", { class: `curve ${kind}`, d: outline(points, x, y) })));
  const values = curves.flatMap(([, points]) => points.map(([, value]) => value)).filter((value) => value !== null);
  setAttribute(plot, "aria-label", values.length ? `${label}: at most ${words(Math.max(...values))} in ten seconds` : `${label}: nothing is known`);
}

function outline(points, x, y) {
  let [path, joined] = ["", false];
  for (const [ago, value] of points) {
    if (value !== null) path += `${joined ? "L" : "M"}${x(ago).toFixed(1)} ${y(value).toFixed(1)}${joined ? "" : "h0.5"}`;
    joined = value !== null;
  }
  return path;
}

/** Return the next of 1, 2, 5, 10, ... that is no less. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9));
}

const micros = (value) => (value >= 10000 ? `${Number((value / 1000).toPrecision(3))} ms` : `${Number(value.toPrecision(3))} µs`);
