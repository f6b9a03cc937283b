// Drain and restore, and reads. The operator types in the token, which is stored for this tab until it is closed.

import { byId, say, setText } from "./elements.js";

const KEPT = "sopa-operator-token";

/** Set up the token's form. */
export function start() {
  byId("operator").addEventListener("submit", (event) => {
    event.preventDefault();
    keep();
  });
  byId("forget").addEventListener("click", () => {
    sessionStorage.removeItem(KEPT);
    byId("token").value = "";
    showToken();
  });
  document.querySelector("footer").addEventListener("click", follow);
  byId("dismiss").addEventListener("click", dismiss);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") dismiss();
  });
  showToken();
}

function keep() {
  const typed = byId("token").value.trim();
  byId("token").value = "";
  const sendable = /^[\x21-\x27\x2a-\x7e]*$/.test(typed); // what a header allows, and the feed's subprotocol when encoded
  refuse(sendable ? "" : "This is not a token: a token has only letters, digits, - and _.");
  if (typed && sendable) sessionStorage.setItem(KEPT, typed);
  if (document.body.classList.contains("stale")) location.reload(); // the feed may have waited for it
  showToken();
}

function showToken() {
  const kept = sessionStorage.getItem(KEPT) !== null;
  setText(byId("token-state"), kept ? "stored until this tab is closed" : "required to drain and restore, and to read if the controller wants that; it is in /var/lib/sopa/token on the controller’s machine");
  byId("forget").disabled = !kept;
}

const authorization = () => (sessionStorage.getItem(KEPT) === null ? {} : { Authorization: `Bearer ${sessionStorage.getItem(KEPT)}` });

/** Ask the controller, with the token if there is one. */
export const read = (path, more = {}) => fetch(path, { ...more, headers: authorization() });

/** Follow a link of the controller's with the token, which the browser itself would not send. */
async function follow(event) {
  if (sessionStorage.getItem(KEPT) === null || !event.target.matches("a")) return;
  event.preventDefault();
  const answer = await read(event.target.href).catch(() => ({ ok: false }));
  if (answer.ok) location.assign(URL.createObjectURL(new Blob([await answer.text()], { type: "text/plain" })));
  else location.assign(event.target.href);
}

/** Return the subprotocols of the feed: a browser sends no header of a page's with a WebSocket, so the token is one of them. */
export function offered() {
  const token = sessionStorage.getItem(KEPT);
  return token === null ? [] : ["sopa", `bearer.${encodeURIComponent(token)}`];
}

/** Return why the controller does not let the page read, if that is so. */
export async function refusal() {
  try {
    const known = (await read("/openapi.json", { method: "HEAD" })).status !== 401;
    return known ? "" : "this controller answers only with a token: store it below, as Operator token";
  } catch {
    return "";
  }
}

/** Drain or restore a link or switch, and show the result; `reason` is why it is drained, if that is said. */
export async function drain(name, drained, reason = "") {
  succeed("");
  refuse("");
  if (byId("token").value) keep(); // typed, but not stored yet
  if (sessionStorage.getItem(KEPT) === null) {
    refuse("Type in the operator token first.");
    byId("token").focus();
    return;
  }
  let answer;
  try {
    answer = await fetch(`/sopa/v1/drains/${encodeURIComponent(name)}${reason && `?${new URLSearchParams({ reason })}`}`, {
      method: drained ? "PUT" : "DELETE",
      headers: authorization(),
      redirect: "manual", // a browser takes the token to no other origin
    });
  } catch {
    refuse("The controller does not answer; the page shows the state when it answers again.");
    return;
  }
  if (answer.type === "opaqueredirect") refuse(await elsewhere());
  else if (answer.ok) succeed(drained ? `${name} is drained.` : `${name} is restored.`);
  else refuse(await detail(answer));
  if (answer.status === 401) byId("token").focus();
}

/** Return where a change has to be made, in a cluster whose leader is another controller. */
async function elsewhere() {
  let leader = null;
  try {
    const cluster = await (await read("/sopa/v1/cluster")).json();
    leader = cluster.members.find((member) => member.name === cluster.leader) ?? null;
  } catch {
    // the text without it is right, too
  }
  return `Another controller leads the cluster: drain and restore on its page${leader ? `, ${leader.url}` : ""}.`;
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

/** Return the text of a problem document, or else the status. */
export async function detail(answer) {
  try {
    const problem = await answer.json();
    return `${problem.title}: ${problem.detail}`;
  } catch {
    return `The controller answers ${answer.status} ${answer.statusText}.`;
  }
}
