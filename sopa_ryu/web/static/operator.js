// What an operator may change: drains. The token is typed in, and kept for this tab only, until it is closed.

import { byId, say, setText } from "./elements.js";

const KEPT = "sopa-operator-token";

/** Attach the token's form. */
export function start() {
  byId("operator").addEventListener("submit", (event) => {
    event.preventDefault();
    keep();
  });
  byId("forget").addEventListener("click", () => {
    sessionStorage.removeItem(KEPT);
    byId("token").value = "";
    tell();
  });
  byId("dismiss").addEventListener("click", dismiss);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") dismiss();
  });
  tell();
}

function keep() {
  const typed = byId("token").value.trim();
  byId("token").value = "";
  const sendable = /^[\x21-\x7e]*$/.test(typed); // a header takes nothing else
  refuse(sendable ? "" : "That is no token: it has letters, digits, - and _ only.");
  if (typed && sendable) sessionStorage.setItem(KEPT, typed);
  tell();
}

function tell() {
  const kept = sessionStorage.getItem(KEPT) !== null;
  setText(byId("token-state"), kept ? "kept until this tab is closed" : "needed to drain and restore; it is in the controller’s state directory, file token");
  byId("forget").disabled = !kept;
}

/** Drain a link or switch, or restore it, and say what came of it. */
export async function drain(name, drained) {
  succeed("");
  refuse("");
  if (byId("token").value) keep(); // typed, but Keep was not pressed
  const token = sessionStorage.getItem(KEPT);
  if (!token) {
    refuse("Type in the operator token first.");
    byId("token").focus();
    return;
  }
  let answer;
  try {
    answer = await fetch(`/sopa/v1/drains/${encodeURIComponent(name)}`, {
      method: drained ? "PUT" : "DELETE",
      headers: { Authorization: `Bearer ${token}` },
    });
  } catch {
    refuse("The controller does not answer; the page shows what has become of it as soon as it does.");
    return;
  }
  if (answer.ok) succeed(drained ? `${name} is drained.` : `${name} is no longer drained.`);
  else refuse(await detail(answer));
  if (answer.status === 401) byId("token").focus();
}

function succeed(text) {
  setText(byId("outcome"), text);
  notice();
}

function refuse(text) {
  say(byId("refusal"), text);
  notice();
}

function notice() {
  byId("notice").hidden = !byId("outcome").textContent && !byId("refusal").textContent;
}

function dismiss() {
  setText(byId("outcome"), "");
  say(byId("refusal"), "");
  notice();
}

/** What a problem document says, or else the status. */
export async function detail(answer) {
  try {
    const problem = await answer.json();
    return `${problem.title}: ${problem.detail}`;
  } catch {
    return `The controller answers ${answer.status} ${answer.statusText}.`;
  }
}
