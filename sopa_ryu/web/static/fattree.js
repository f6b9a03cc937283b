// The fat-tree's members, named and ordered as in topologies/structure.py: the feed identifies links by their index in that order.

export const HOST = "host";
export const EDGE = "edge";
export const AGGREGATION = "aggregation";
export const CORE = "core";
const FIRST_HOST = 2;

const link = (lower, upper) => ({ name: `${lower}-${upper}`, lower, upper });
const LEVELS = { h: HOST, e: EDGE, a: AGGREGATION, c: CORE };

/** A fat-tree of k-port switches. */
export class FatTree {
  constructor(k) {
    this.k = k;
    this.half = k / 2;
  }

  /** Yield the switches of one level ("e", "a" or "c"), in order. */
  *switches(letter) {
    const groups = letter === "c" ? this.half : this.k;
    for (let pod = 0; pod < groups; pod++) for (let i = 0; i < this.half; i++) yield this.parse(`${letter}${pod}_${i}`);
  }

  /** Yield the hosts, in order. */
  *hosts() {
    for (const { pod, index } of this.switches("e")) {
      for (let n = 0; n < this.half; n++) yield this.parse(`h${pod}_${index}_${n + FIRST_HOST}`);
    }
  }

  /** Yield all links, in the feed's order. */
  *links() {
    for (const host of this.hosts()) yield link(host.name, host.edge);
    for (const letter of ["e", "a"]) for (const node of this.switches(letter)) yield* this.above(node);
  }

  /** Yield the links of a node, in the order of its ports. */
  *linksOf(node) {
    if (node.level === EDGE) {
      for (let n = 0; n < this.half; n++) yield link(`h${node.pod}_${node.index}_${n + FIRST_HOST}`, node.name);
    } else if (node.level === AGGREGATION) {
      for (let i = 0; i < this.half; i++) yield link(`e${node.pod}_${i}`, node.name);
    } else if (node.level === CORE) {
      for (let pod = 0; pod < this.k; pod++) yield link(`a${pod}_${node.pod}`, node.name);
    }
    yield* this.above(node);
  }

  *above(node) {
    if (node.level === HOST) yield link(node.name, node.edge);
    for (let i = 0; i < this.half; i++) {
      if (node.level === EDGE) yield link(node.name, `a${node.pod}_${i}`);
      if (node.level === AGGREGATION) yield link(node.name, `c${node.index}_${i}`);
    }
  }

  /** Return the link of that name, {name, lower, upper}; null if there is none. */
  link(name) {
    const lower = this.parse(name.split("-")[0]);
    return (lower && [...this.above(lower)].find((each) => each.name === name)) || null;
  }

  /** Return the node of that name, {name, level, pod, index}, for a host with {edge, host, address}; null if there is none. */
  parse(name) {
    const found = /^([heac])(\d{1,3})_(\d{1,3})(?:_(\d{1,3}))?$/.exec(name);
    if (!found || (found[1] === "h") !== (found[4] !== undefined)) return null;
    const level = LEVELS[found[1]];
    const [pod, index, host] = [found[2], found[3], found[4]].map(Number);
    if (pod >= (level === CORE ? this.half : this.k) || index >= this.half) return null;
    if (level !== HOST) return { name, level, pod, index };
    if (host < FIRST_HOST || host >= FIRST_HOST + this.half) return null;
    return { name, level, pod, index, host, edge: `e${pod}_${index}`, address: `10.${pod}.${index}.${host}` };
  }

  /** Return the names of the nodes on the path from one host to another by these uplinks, both hosts included. */
  path(source, destination, up) {
    const [from, to] = [this.parse(source), this.parse(destination)];
    if (up.length === 0) return [source, from.edge, destination];
    const rise = `a${from.pod}_${up[0]}`;
    if (up.length === 1) return [source, from.edge, rise, to.edge, destination];
    return [source, from.edge, rise, `c${up[0]}_${up[1]}`, `a${to.pod}_${up[0]}`, to.edge, destination];
  }
}

/** Return the names of the links on a path, given by its nodes. */
export function linksOn(path) {
  const rank = { h: 0, e: 1, a: 2, c: 3 };
  return path.slice(1).map((there, number) => {
    const here = path[number];
    return rank[here[0]] < rank[there[0]] ? `${here}-${there}` : `${there}-${here}`;
  });
}
