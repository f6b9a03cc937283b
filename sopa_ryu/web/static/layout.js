// The positions of everything in the drawing, in pixels, for a given width.

import { CORE, EDGE, HOST } from "./fattree.js";

const MARGIN = 10;
const CHARACTER = 6.2; // width of a caption's character in pixels
const SWITCH_HEIGHT = 18;

/**
 * Compute the layout.
 * @param {FatTree} tree
 * @param {Array} rows the nodes, row by row: core, aggregation, edge, hosts
 * @param {number} available the available width
 * @returns {{width, height, dense, at: Map, pods: number[]}} `at` has {x, y, ...} by name, `pods` the centres of the pods
 */
export function place(tree, rows, available) {
  const { k, half } = tree;
  const dense = k > 8;
  const podGap = k <= 4 ? 10 : dense ? 6 : 8;
  const edges = k * half;
  const fixed = 2 * MARGIN + podGap * (k - 1);
  const width = Math.max(available, fixed + edges * (dense ? 11 : 34));
  const rack = (width - fixed) / edges;
  const columns = dense ? 2 : half;
  const hostPitch = Math.min(30, (rack - 2) / columns);
  const radius = Math.max(1.8, Math.min(7, hostPitch / 2 - 0.8));
  const numbered = hostPitch >= 15;

  const top = 22;
  const aggregationY = top + 80 + 13 * k;
  const edgeY = aggregationY + 64 + 4 * k;
  const hostY = edgeY + (dense ? 28 : 46);
  const rowPitch = 2 * radius + 3;
  const hostsBottom = hostY + (Math.ceil(half / columns) - 1) * rowPitch + radius + (numbered ? 14 : 0);
  const rackX = (pod, index) => MARGIN + pod * (half * rack + podGap) + (index + 0.5) * rack;
  const coreWidth = (width - 2 * MARGIN) / (half * half);

  const at = new Map();
  for (const node of rows.flat()) {
    if (node.level === HOST) {
      const number = node.host - 2;
      const [row, column] = [Math.floor(number / columns), number % columns];
      const x = rackX(node.pod, node.index) + (column - (columns - 1) / 2) * hostPitch;
      at.set(node.name, { x, y: hostY + row * rowPitch, radius, caption: numbered ? `.${node.host}` : "" });
      continue;
    }
    const core = node.level === CORE;
    const room = Math.min(46, (core ? coreWidth : rack) - (dense ? 1.5 : 3));
    const x = core ? MARGIN + (node.pod * half + node.index + 0.5) * coreWidth : rackX(node.pod, node.index);
    const y = core ? top : node.level === EDGE ? edgeY : aggregationY;
    at.set(node.name, { x, y, width: room, height: SWITCH_HEIGHT, caption: caption(node, room) });
  }
  const pods = Array.from({ length: k }, (_, pod) => (rackX(pod, 0) + rackX(pod, half - 1)) / 2);
  return { width, height: hostsBottom + 24, dense, at, pods };
}

/** Return the longest form of a switch's name that fits. */
function caption(node, room) {
  const names = [node.name, `${node.pod}_${node.index}`, `${node.index}`];
  return names.find((name) => name.length * CHARACTER + 2 <= room) || "";
}
