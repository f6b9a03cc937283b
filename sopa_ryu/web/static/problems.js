// The lists of problems, and of drains, which are an operator's intention and no problem; each is hidden while it is empty.

import { byId, count, follow, html, setAttribute, setText } from "./elements.js";
import { drain } from "./operator.js";

const MAX_LINES = 100; // of one list

export class Problems {
  /** @param {(name: string) => void} select selects a switch or link */
  constructor(select) {
    this.select = select;
  }

  /** Show the lists; return the number of problems. */
  update(state) {
    const { message } = state;
    const wiring = message.wiring.problems;
    const miswired = new Set(wiring.map((problem) => problem.link));
    const failures = [...state.reasons.values()].filter(({ name, reason }) => reason !== "drained" && !miswired.has(name));
    const lists = [
      list("failed", "Failed", message.failures_total - state.reasons.size + failures.length, failures, (each) => ({
        name: each.name,
        text: each.reason + since(each.since) + (each.held_seconds ? `; healed, held down for ${Math.ceil(each.held_seconds)} s` : ""),
      })),
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
    const wrong = shown.reduce((sum, each) => sum + each.total, 0) + message.setup.problems.length;
    byId("healthy").hidden = wrong > 0 || !message.settled;
    this.show(byId("problem-lists"), shown);
    const drains = list("drained", "Drained", message.drains_total, message.drains, (name) => ({ name, text: otherReason(state, name), restore: true }));
    this.show(byId("drain-lists"), drains.items.length ? [drains] : []);
    return wrong;
  }

  show(container, lists) {
    follow(container, lists, (each) => each.id, makeList, (section, each) => {
      setText(section.firstElementChild, `${each.title} (${each.total})`);
      const items = each.items.slice(0, MAX_LINES);
      follow(section.children[1], items, (item) => item.key || item.name, (item) => this.item(item), (line, item) => {
        setAttribute(line, "data-state", each.id);
        setText(line.children[1], item.text);
      });
      const more = each.total - items.length;
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

function list(id, title, total, members, describe) {
  const items = members.map(describe);
  return { id, title, total: id === "missing" ? items.length : total, items };
}

function makeList(each) {
  const title = html("h3", { id: `list-${each.id}` });
  return html("div", {}, title, html("ul", { class: "list", "aria-labelledby": `list-${each.id}` }), html("p", { class: "hint" }));
}

function otherReason(state, name) {
  const failure = state.reasons.get(name);
  const { actor = "", reason = "", until = null } = failure?.drain ?? {};
  const whose = [reason || "for maintenance", actor && `by ${actor}${since(failure.drain.since)}`, until && `until ${clock(until)}`];
  return [failure && failure.reason !== "drained" ? `and ${failure.reason}` : "", ...whose].filter(Boolean).join("; ");
}

function since(at) {
  return at ? ` since ${clock(at)}` : "";
}

/** Return a time of the browser's clock, with its date unless it is today's. */
function clock(at) {
  const moment = new Date(1000 * at);
  const today = moment.toDateString() === new Date().toDateString();
  return today ? moment.toLocaleTimeString() : moment.toLocaleString();
}
