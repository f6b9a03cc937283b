// The lists of problems, and of drains, which are an operator's intention and no problem; each is hidden while it is empty.

import { byId, count, follow, html, setAttribute, setText, when } from "./elements.js";
import { drain } from "./operator.js";

const MAX_LINES = 100; // of one list
const MAX_NAMES = 8; // of links that have a switch in common

export class Problems {
  /** @param {(name: string) => void} select selects a switch or link */
  constructor(select) {
    this.select = select;
  }

  /** Show the lists. */
  update(state) {
    const { message } = state;
    const wiring = message.wiring.problems;
    const miswired = new Set(wiring.map((problem) => problem.link));
    const failures = [...state.reasons.values()].filter(({ name, reason }) => reason !== "drained" && !miswired.has(name));
    // links with a switch in common are told as that switch
    const common = new Set(message.groups);
    const causes = [...common].map((name) => ({ name, links: failures.filter((each) => each.name.split("-").includes(name)) }));
    const explained = new Set(causes.flatMap(({ links }) => links.map((each) => each.name)));
    const apart = failures.filter((each) => !explained.has(each.name));
    const lists = [
      list("failed", "Failed", message.failures_total - state.reasons.size + failures.length, [...causes, ...apart], (each) => ({
        name: each.name,
        text: each.links ? `all its links have failed: ${namesOf(each.links)}${since(oldest(each.links))}` : each.reason + held(each) + since(each.since),
      }), explained.size - causes.length),
      list("lossy", "Losing packets", message.health?.suspects_total || 0, message.health?.suspects || [], (each) => each),
      list("miswired", "Wiring", message.wiring.problems_total, wiring, (each) => ({ name: each.link, text: each.detail })),
      list("missing", "Not connected", message.missing_total, message.missing.filter((name) => !state.reasons.has(name)), (name) => ({
        name,
        text: state.whyMissing(name),
      })),
      list("rejected", "Ignored switches", message.rejected_total, message.rejected, (each) => ({ key: each.dpid, text: `${each.dpid}: ${each.reason}` })),
      list("lagging", "Lagging agents", message.agents.lagging_total, message.agents.lagging, (agent) => ({
        name: agent.host,
        text: `version ${agent.version}, behind for ${Math.round(agent.lag_seconds)} s; last contact ${Math.round(agent.last_contact_seconds)} s ago`,
      })),
    ];
    // what has no list of its own, but for hosts without an agent, whom the drawing shows
    const others = (message.troubles || []).filter((each) => ["leader", "gateways", "arbiter"].includes(each.kind));
    lists.push(list("others", "Other", others.reduce((sum, each) => sum + each.count, 0), others, (each) => ({ key: each.kind, text: each.text })));
    const shown = lists.filter((each) => each.items.length);
    byId("healthy").hidden = shown.length > 0 || message.setup.problems.length > 0 || !message.settled;
    this.show(byId("problem-lists"), shown);
    const drains = list("drained", "Drained", message.drains_total, message.drains, (name) => ({ name, text: otherReason(state, name), restore: true }));
    this.show(byId("drain-lists"), drains.items.length ? [drains] : []);
  }

  show(container, lists) {
    follow(container, lists, (each) => each.id, makeList, (section, each) => {
      setText(section.firstElementChild, `${each.title} (${each.total})`);
      const items = each.items.slice(0, MAX_LINES);
      follow(section.children[1], items, (item) => item.key || item.name, (item) => this.item(item), (line, item) => {
        setAttribute(line, "data-state", each.id);
        setText(line.children[1], item.text);
      });
      const more = each.total - each.explained - items.length;
      setText(section.lastElementChild, more > 0 ? `and ${count(more, "more", "more")}` : "");
    });
  }

  item({ name, restore }) {
    return html("li", {},
      name ? html("button", { type: "button", class: "name", onclick: () => this.select(name) }, name) : html("span"),
      html("span"),
      restore ? html("button", { type: "button", onclick: () => drain(name, false), "aria-label": `Restore ${name}` }, "Restore") : null);
  }
}

/** Return a list for `show`; `explained` is by how many its items are fewer than what they tell of. */
function list(id, title, total, members, describe, explained = 0) {
  const items = members.map(describe);
  return { id, title, total: id === "missing" ? items.length : total, items, explained };
}

const held = ({ held_seconds: seconds }) => (seconds ? `; healed, held down for ${Math.ceil(seconds)} s` : "");
const since = (at) => (at && at < Infinity ? `; since ${when(at)}` : "");
const oldest = (links) => Math.min(...links.map((each) => each.since ?? Infinity));

function namesOf(links) {
  const names = links.slice(0, MAX_NAMES).map((each) => `${each.name} ${each.reason}`);
  return names.join(", ") + (links.length > names.length ? ` and ${links.length - names.length} more` : "");
}

function makeList(each) {
  const title = html("h3", { id: `list-${each.id}` });
  return html("div", {}, title, html("ul", { class: "list", "aria-labelledby": `list-${each.id}` }), html("p", { class: "hint" }));
}

function otherReason(state, name) {
  const failure = state.reasons.get(name);
  const { reason, actor, since: at, until } = failure?.drain ?? {};
  return [
    reason || "for maintenance",
    failure && failure.reason !== "drained" ? `and ${failure.reason}${since(failure.since)}` : "",
    at ? `drained since ${when(at)}` : "",
    actor ? `by ${actor}` : "",
    until ? `until ${when(until)}` : "",
  ].filter(Boolean).join("; ");
}
