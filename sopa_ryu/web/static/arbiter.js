// The arbiter (CFR), which grants slots to hosts: whether it is there, and what it says of itself. Hidden until there has been one.

import { byId, count, follow, html, percent, say, setAttribute, setText } from "./elements.js";

const GONE = "hosts of policy cfr send without slots once their leases end. Start it again: sopa arbiter";

/** Show the arbiter of a message; it has none until the first has connected. */
export function showArbiter(arbiter, hosts) {
  byId("arbiter").hidden = byId("has-arbiter").hidden = !arbiter;
  if (!arbiter) return;
  const { connected, peer, term, reports } = arbiter;
  setText(byId("fact-arbiter"), connected ? summary(reports, hosts) : "gone");
  setAttribute(byId("fact-arbiter"), "class", connected ? "" : "error");
  say(byId("arbiter-gone"), connected ? "" : `The arbiter is gone, it was at ${peer}: ${GONE}`);
  const facts = [
    ["Arbiter", `${reports.listen ?? peer}, ${connected ? `connected from ${peer}` : "gone"}`],
    ["Term", String(term)],
    ...(reports.participants === undefined ? [] : said(reports, hosts)),
  ];
  follow(byId("arbiter-facts"), facts, ([name]) => name, ([name]) => html("div", {}, html("dt", {}, name), html("dd")), (element, [, text]) => {
    setText(element.lastElementChild, text);
  });
}

function summary(reports, hosts) {
  return reports.participants === undefined ? "connected" : `${reports.participants} of ${hosts} hosts take part, load ${percent(reports.load ?? 0)}`;
}

function said(its, hosts) {
  return [
    ["Hosts that take part", `${its.participants} of ${hosts}`],
    ["Load", `${percent(its.load ?? 0)} of hosts' slots in use`],
    ["Slot; lease", `${its.slot_ms} ms; ${its.lease_ms} ms`],
    ["Granted", `${count(its.granted_cells, "slot")} in ${count(its.batches, "batch", "batches")}`],
    ["Late", count(its.late_batches, "batch", "batches")],
    ["Without a path", count(its.unplaced_cells, "slot")],
    ["Rejected", count(its.rejected_datagrams, "datagram")],
  ];
}
