// The question before a drain: what the fabric would be left with, and why it is drained.

import { count, html, percent, rate, setText } from "./elements.js";
import { detail, drain, read } from "./operator.js";

const MAX_REASON = 200; // characters, as the controller has it

export class Confirm {
  /** @param {Element} opener the button that asks: it has the focus again afterwards */
  constructor(opener) {
    this.opener = opener;
    this.name = "";
    this.words = html("div", { role: "status" });
    this.reason = html("input", { maxlength: MAX_REASON, size: 24 });
    this.sure = html("button", { type: "submit" });
    this.form = html("form", { id: "confirm", hidden: true, autocomplete: "off", onsubmit: (event) => this.confirmed(event) },
      this.words,
      html("div", { class: "row" }, html("label", {}, "Reason, optional ", this.reason),
        html("span", { class: "buttons" }, this.sure, html("button", { type: "button", onclick: () => this.close(true) }, "Cancel"))));
    this.form.addEventListener("keydown", (event) => event.key === "Escape" && this.close(true));
  }

  /** Ask whether to drain a link or switch. */
  async open(name) {
    this.name = name;
    this.reason.value = "";
    setText(this.sure, `Yes, drain ${name}`);
    setText(this.words, "What it would leave: …");
    this.form.hidden = false;
    this.reason.focus();
    const words = await impact(name);
    if (this.name === name) setText(this.words, words);
  }

  /** Withdraw the question; `back` if the focus was in it. */
  close(back = false) {
    this.name = "";
    this.form.hidden = true;
    if (back) this.opener.focus();
  }

  async confirmed(event) {
    event.preventDefault();
    const { name } = this;
    const reason = this.reason.value.trim();
    this.close(true);
    await drain(name, true, reason);
  }
}

async function impact(name) {
  try {
    const answer = await read(`/sopa/v1/impact?${new URLSearchParams({ without: name })}`);
    return answer.ok ? inWords(name, await answer.json()) : `What it would leave is not known. ${await detail(answer)}`;
  } catch {
    return "What it would leave is not known: the controller does not answer.";
  }
}

function inWords(name, { now, left, in_mbit: inMbit }) {
  const capacity = (value) => (inMbit ? rate(1e6 * value) : count(value, "link"));
  const [before, after] = [now.bisection, left.bisection];
  const lost = left.pairs_without_path - now.pairs_without_path;
  const known = now.pairs_without_path !== null && left.pairs_without_path !== null;
  const cut = left.cut_off.filter((rack) => !now.cut_off.includes(rack));
  const words = [
    !known ? "" : lost ? `${count(lost, "pair")} of racks would lose the last path` : "no pair of racks would lose its last path",
    cut.length ? `cut off: ${cut.join(", ")}` : "",
    left.fewest_paths === now.fewest_paths || left.fewest_paths === null ? "" : `fewest paths of a pair: ${left.fewest_paths} instead of ${now.fewest_paths}`,
    before === null || after === null ? "" : `capacity left between two halves: ${capacity(after)} of ${capacity(before)}${before ? ` (${percent(after / before)})` : ""}`,
  ];
  return `Without ${name}: ${words.filter(Boolean).join("; ")}.`;
}
