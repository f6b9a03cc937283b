// The live feed: one WebSocket, opened again whenever it breaks.

const PATH = "/sopa/v1/live";
const SILENT_MS = 7000; // a message comes every 2 s: three are missing
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;

/**
 * Keep the feed open for as long as the page is.
 * @param {(message: object) => void} received told every message
 * @param {(reason: string) => void} lost told each time that the feed breaks, or cannot be opened
 */
export function listen(received, lost) {
  let wait = FIRST_WAIT_MS;

  function open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${PATH}`);
    let watch = setTimeout(giveUp, SILENT_MS);
    let over = false;

    function end(reason) {
      if (over) return;
      over = true;
      clearTimeout(watch);
      lost(reason);
      // not all pages at the same moment, when a controller comes back
      setTimeout(open, wait * (0.75 + Math.random() / 2));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }

    function giveUp() {
      // a connection that is stuck would take minutes to close in good order
      end("it is silent");
      socket.close();
    }

    socket.addEventListener("message", (event) => {
      if (over) return;
      clearTimeout(watch);
      watch = setTimeout(giveUp, SILENT_MS);
      wait = FIRST_WAIT_MS;
      received(JSON.parse(event.data));
    });
    socket.addEventListener("close", (event) => end(event.reason));
  }

  open();
}
