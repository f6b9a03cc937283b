// The live feed: one WebSocket, reopened whenever it closes.

import { offered, refusal } from "./operator.js";

const PATH = "/sopa/v1/live";
const SILENT_MS = 7000; // messages arrive every 2 s: three are missing
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;

/**
 * Keep the feed open for as long as the page is open.
 * @param {(message: object) => void} received called with every message
 * @param {(reason: string) => void} lost called each time that the feed closes, or cannot be opened
 */
export function listen(received, lost) {
  let wait = FIRST_WAIT_MS;

  function open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${PATH}`, offered());
    let watch = setTimeout(giveUp, SILENT_MS);
    let opened = false;
    let over = false;

    function end(reason) {
      if (over) return;
      over = true;
      clearTimeout(watch);
      lost(reason);
      // random, so that not all pages reconnect at the same time after a restart of the controller
      setTimeout(open, wait * (0.75 + Math.random() / 2));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }

    function giveUp() {
      // a blocked connection would need minutes for an orderly close
      end("no data received");
      socket.close();
    }

    socket.addEventListener("message", (event) => {
      if (over) return;
      clearTimeout(watch);
      watch = setTimeout(giveUp, SILENT_MS);
      wait = FIRST_WAIT_MS;
      received(JSON.parse(event.data));
    });
    socket.addEventListener("open", () => { opened = true; });
    // a browser does not say with which status a WebSocket was rejected
    socket.addEventListener("close", async (event) => end(event.reason || (opened ? "" : await refusal())));
  }

  open();
}
