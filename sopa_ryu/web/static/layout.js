// The positions of everything in the drawing, in pixels, for a given width.

import { AGGREGATION, CORE, EDGE, HOST } from "./clos.js";

const MARGIN = 10;
const CHARACTER = 6.2; // width of a caption's character in pixels
const SWITCH_HEIGHT = 18;
const MAX_NAMED = 32; // switches of a level: above, only their numbers fit
const MAX_WIDE = 8;
const MAX_HOST_ROWS = 8;
const MIN_PITCH = 4.5; // of hosts in a rack
const GOOD_PITCH = 8;

/**
 * Compute the layout.
 * @param {Clos} tree
 * @param {Array} rows the nodes, row by row: core, aggregation, edge, hosts
 * @param {number} available the available width
 * @returns {{width, height, dense, close, crowded, at: Map, pods: number[]}} `at` has {x, y, ...} by name, `pods` the centres of the pods,
 *   `dense` and `close` are drawings of many switches, and a `crowded` one has hosts in several rows
 */
export function place(tree, rows, available) {
  const { pods, edges, aggregations, cores, hostsPerEdge } = tree;
  const widest = Math.max(pods * edges, pods * aggregations, cores);
  const [dense, close] = [widest > MAX_NAMED, widest > MAX_WIDE];
  const podGap = dense ? 6 : close ? 8 : 10;
  const minSwitch = dense ? 11 : 34;
  const most = Math.ceil(hostsPerEdge / MAX_HOST_ROWS); // columns of the narrowest rack
  const minRack = Math.max(minSwitch, most * MIN_PITCH + 2);
  const fixed = 2 * MARGIN + podGap * (pods - 1);
  const width = Math.max(available, fixed + pods * Math.max(edges * minRack, aggregations * minSwitch), 2 * MARGIN + cores * minSwitch);
  const podWidth = (width - fixed) / pods;
  const rack = podWidth / edges;
  const columns = dense ? Math.max(2, most) : columnsIn(rack, hostsPerEdge);
  const hostPitch = Math.min(30, (rack - 2) / columns);
  const radius = Math.max(1.8, Math.min(7, hostPitch / 2 - 0.8));
  const hostRows = Math.ceil(hostsPerEdge / columns);
  const numbered = hostPitch >= 15 && hostRows === 1;

  const top = 22;
  const aggregationY = cores ? top + 80 + 13 * Math.min(pods, 16) : top;
  const edgeY = aggregationY + (cores ? 64 : 120) + Math.min(8 * edges, cores ? 160 : 120);
  const hostY = edgeY + (dense ? 28 : 46);
  const rowPitch = 2 * radius + 3;
  const hostsBottom = hostY + (hostRows - 1) * rowPitch + radius + (numbered ? 14 : 0);
  const podX = (pod) => MARGIN + pod * (podWidth + podGap);
  const room = { [CORE]: (width - 2 * MARGIN) / (cores || 1), [AGGREGATION]: podWidth / aggregations, [EDGE]: rack, [HOST]: rack };
  const heights = { [CORE]: top, [AGGREGATION]: aggregationY, [EDGE]: edgeY };

  const at = new Map();
  for (const node of rows.flat()) {
    const share = room[node.level];
    const first = node.level === CORE ? MARGIN + node.pod * tree.coresOfGroup * share : podX(node.pod);
    const middle = first + (node.index + 0.5) * share;
    if (node.level === HOST) {
      const number = node.host - 2;
      const [row, column] = [Math.floor(number / columns), number % columns];
      const inRow = dense ? columns : Math.min(columns, hostsPerEdge - row * columns); // a last row that is not full is centred
      const x = middle + (column - (inRow - 1) / 2) * hostPitch;
      at.set(node.name, { x, y: hostY + row * rowPitch, radius, caption: numbered ? `.${node.host}` : "" });
      continue;
    }
    const box = Math.min(46, share - (dense ? 1.5 : 3));
    at.set(node.name, { x: middle, y: heights[node.level], width: box, height: SWITCH_HEIGHT, caption: caption(node, box) });
  }
  const centres = Array.from({ length: pods }, (_, pod) => podX(pod) + podWidth / 2);
  return { width, height: hostsBottom + (pods > 1 ? 24 : 12), dense, close, crowded: hostRows > 1 && !dense, at, pods: centres };
}

/** Return the number of columns of a rack's hosts: one row if they fit, and as few rows as legible circles need. */
function columnsIn(rack, hosts) {
  for (let rows = 1; rows < MAX_HOST_ROWS; rows++) {
    const columns = Math.ceil(hosts / rows);
    if ((rack - 2) / columns >= GOOD_PITCH) return columns;
  }
  return Math.ceil(hosts / MAX_HOST_ROWS);
}

/** Return the longest form of a switch's name that fits. */
function caption(node, room) {
  const names = [node.name, `${node.pod}_${node.index}`, `${node.index}`];
  return names.find((name) => name.length * CHARACTER + 2 <= room) || "";
}
