// The last events, the newest first: what has happened, when, to what, why and by whom, as this controller has kept it.

import { byId, follow, html, say, when } from "./elements.js";
import { detail, read } from "./operator.js";

const SHOWN = 50;
const WRITTEN_MS = 500; // after a version its events are on the controller's disk
const QUIET_MS = 10000; // agents come and go without a version
const FUTURE = 9999999999; // no event is so late: the answer has only the id of the last one

export class Events {
  constructor() {
    this.version = null;
    this.asked = 0;
    this.waiting = false;
    this.last = null;
    this.tree = null;
  }

  /** Ask for events if there may be new ones: after a change of the version, and from time to time. */
  update(tree, version) {
    this.tree = tree;
    const changed = version !== this.version;
    if (this.waiting || document.hidden || (!changed && Date.now() - this.asked < QUIET_MS)) return;
    this.version = version;
    this.waiting = true;
    setTimeout(() => this.ask(), this.last === null ? 0 : WRITTEN_MS);
  }

  async ask() {
    try {
      const { last } = await get({ since: FUTURE, limit: 1 });
      if (last !== this.last) this.show((await get({ after: Math.max(0, last - SHOWN), limit: SHOWN })).events);
      this.last = last;
      say(byId("events-error"), "");
    } catch (error) {
      say(byId("events-error"), `The events cannot be read now: ${error.message}`);
    }
    this.asked = Date.now();
    this.waiting = false;
  }

  show(events) {
    byId("no-events").hidden = events.length > 0;
    follow(byId("events-list"), events.reverse(), ({ id }) => String(id), (event) => this.row(event), () => {});
  }

  row({ at, kind, element, cause, actor }) {
    const known = element && (this.tree.parse(element) || this.tree.link(element));
    const name = known ? html("a", { href: `#${element}` }, element) : element || "";
    return html("tr", { "data-kind": kind },
      html("td", {}, html("time", { datetime: new Date(1000 * at).toISOString() }, when(at))),
      ...[kind, name, cause || "", actor || ""].map((cell) => html("td", {}, cell)));
  }
}

async function get(query) {
  const answer = await read(`/sopa/v1/events?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error(await detail(answer));
  return answer.json();
}
