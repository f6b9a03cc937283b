// The status bar, and the count in the tab's title: what is not well by the controller's rule, which is that of `sopa status`.

import { byId, setAttribute, setText } from "./elements.js";

const INTENDED = ["drained", "agents", "behind"]; // an operator's intention, or what costs no path

/** The word and the mark of each state, so that colour is not required. */
const WORDS = { well: ["✓", "Well"], notice: ["!", "Notice"], trouble: ["×", "Trouble"], unknown: ["?", "Not known yet"], lost: ["?", "No connection"] };

let title = "SOPA";

/** Name the fabric in the tab's title. */
export function name(fabric) {
  title = `SOPA ${fabric}`;
}

/** Show a message's troubles. */
export function showStatus({ troubles, settled }) {
  const bad = troubles.some(({ kind }) => !INTENDED.includes(kind));
  const state = !settled ? "unknown" : bad ? "trouble" : troubles.length ? "notice" : "well";
  const wrong = troubles.reduce((sum, { count }) => sum + count, 0);
  // what follows the colon is a command that lists them: here they are listed below
  show(state, wrong ? `${wrong}: ${troubles.map(({ text }) => text.split(": ")[0]).join(", ")}` : "", settled && wrong ? `(${wrong}) ` : "");
}

/** Show that nothing is known of now. */
export const showLost = () => show("lost", "", "(?) ");

function show(state, words, count) {
  const [mark, word] = WORDS[state];
  setAttribute(byId("status"), "data-state", state);
  setText(byId("status"), `${mark} ${word}${words && ` ${words}`}`);
  if (document.title !== count + title) document.title = count + title;
}
