// The fabric's members, named and ordered as in topologies/: the feed identifies links by their index in that order.

import { percent, rate } from "./elements.js";

export const HOST = "host";
export const EDGE = "edge";
export const AGGREGATION = "aggregation";
export const CORE = "core";
const FIRST_HOST = 2;
const MBIT = 1e6;
const MAX_SHARES = 6; // in the legend

const LEVELS = { h: HOST, e: EDGE, a: AGGREGATION, c: CORE };

/** Return the groups of an IPv6 address; not 8 numbers if it is none. */
function groupsOf(text) {
  const [head, tail] = text.split("::").map((part) => (part ? part.split(":") : []));
  const zeros = tail ? Array(Math.max(0, 8 - head.length - tail.length)).fill("0") : [];
  return [...head, ...zeros, ...(tail ?? [])].map((group) => Number(`0x${group}`));
}

/** A Clos fabric: pods of edge and aggregation switches below core switches, or one pod without these, which is leaf-spine. */
export class Clos {
  /**
   * @param {?number} k the ports of a fat-tree's switches; null if it is none
   * @param {object} fabric the numbers and exceptions, as the feed's message has them
   */
  constructor(k, fabric) {
    const { pods, edges, aggregations, cores, hosts_per_edge: hosts, prefix6, absent, mbit, rates, gateways, no_label: noLabel } = fabric;
    Object.assign(this, { k, pods, edges, aggregations, cores, mbit, rates });
    this.hostsPerEdge = hosts;
    this.prefix6 = prefix6 && groupsOf(prefix6.split("/")[0]).slice(0, 3);
    this.coresOfGroup = cores / aggregations;
    this.absent = new Set(absent);
    this.gateways = new Set(gateways);
    this.noLabel = new Set(noLabel);
  }

  get hostCount() {
    return this.pods * this.edges * this.hostsPerEdge;
  }

  get leafSpine() {
    return this.cores === 0;
  }

  /** Return the fabric in a few words, for the title of the window. */
  get title() {
    if (this.k !== null) return `k=${this.k}`;
    return this.leafSpine ? `${this.edges}x${this.aggregations} leaf-spine` : `${this.pods}-pod Clos`;
  }

  /** Return the fabric's numbers, as short as a heading has to be. */
  get numbers() {
    const { pods, edges, aggregations, cores, hostsPerEdge: hosts } = this;
    if (this.k !== null) return `k=${this.k} fat-tree`;
    if (this.leafSpine) return `leaf-spine: ${aggregations} spines, ${edges} leaves × ${hosts} hosts`;
    return `Clos: ${cores} core, ${pods} pods × (${aggregations} aggregation, ${edges} edge × ${hosts} hosts)`;
  }

  /** Return the fabric in words. */
  get words() {
    if (this.k !== null) return `k=${this.k} fat-tree`;
    const hosts = `${this.hostsPerEdge} hosts each`;
    if (this.leafSpine) return `leaf-spine fabric: ${this.edges} leaves with ${hosts}, ${this.aggregations} spines`;
    return `Clos fabric: ${this.pods} pods of ${this.edges} edge switches with ${hosts} and ${this.aggregations} aggregation switches, ${this.cores} core switches`;
  }

  /** Return the words for the level of a node. */
  levelOf(node) {
    if (node.level === HOST) return this.gateways.has(node.name) ? "gateway" : HOST;
    const also = this.leafSpine ? (node.level === EDGE ? " (leaf)" : " (spine)") : "";
    return `${node.level} switch${also}`;
  }

  groups(level) {
    return level === CORE ? this.aggregations : this.pods;
  }

  groupSize(level) {
    return { [AGGREGATION]: this.aggregations, [CORE]: this.coresOfGroup }[level] ?? this.edges;
  }

  /** Yield the switches of one level ("e", "a" or "c"), in order. */
  *switches(letter) {
    const level = LEVELS[letter];
    for (let pod = 0; pod < this.groups(level); pod++) {
      for (let i = 0; i < this.groupSize(level); i++) yield this.parse(`${letter}${pod}_${i}`);
    }
  }

  /** Yield the hosts, in order. */
  *hosts() {
    for (const edge of this.switches("e")) for (const name of this.hostsOf(edge)) yield this.parse(name);
  }

  *hostsOf({ pod, index }) {
    for (let n = 0; n < this.hostsPerEdge; n++) yield `h${pod}_${index}_${n + FIRST_HOST}`;
  }

  /** Yield all links that are there, in the feed's order. */
  *links() {
    for (const host of this.hosts()) yield this.between(host.name, host.edge);
    for (const letter of ["e", "a"]) for (const node of this.switches(letter)) yield* this.above(node);
  }

  between(lower, upper) {
    return { name: `${lower}-${upper}`, lower, upper };
  }

  /** Yield the links of a node that are there, in the order of its ports. */
  *linksOf(node) {
    for (const link of this.planned(node)) if (!this.absent.has(link.name)) yield link;
  }

  /** Return the links of a node that the fabric file leaves out. */
  absentOf(node) {
    return [...this.planned(node)].filter((link) => this.absent.has(link.name));
  }

  *planned(node) {
    if (node.level === EDGE) {
      for (const host of this.hostsOf(node)) yield this.between(host, node.name);
    } else if (node.level === AGGREGATION) {
      for (let i = 0; i < this.edges; i++) yield this.between(`e${node.pod}_${i}`, node.name);
    } else if (node.level === CORE) {
      for (let pod = 0; pod < this.pods; pod++) yield this.between(`a${pod}_${node.pod}`, node.name);
    }
    yield* this.plannedAbove(node);
  }

  *above(node) {
    for (const link of this.plannedAbove(node)) if (!this.absent.has(link.name)) yield link;
  }

  *plannedAbove(node) {
    if (node.level === HOST) yield this.between(node.name, node.edge);
    if (node.level === EDGE) for (let j = 0; j < this.aggregations; j++) yield this.between(node.name, `a${node.pod}_${j}`);
    if (node.level === AGGREGATION) for (let i = 0; i < this.coresOfGroup; i++) yield this.between(node.name, `c${node.index}_${i}`);
  }

  /** Return the link of that name, {name, lower, upper}; null if there is none. */
  link(name) {
    const lower = this.parse(name.split("-")[0]);
    return (lower && [...this.above(lower)].find((each) => each.name === name)) || null;
  }

  /** Return the node of that name, {name, level, pod, index}, for a host with {edge, host}; null if there is none. */
  parse(name) {
    const found = /^([heac])(\d{1,3})_(\d{1,3})(?:_(\d{1,3}))?$/.exec(name);
    if (!found || (found[1] === "h") !== (found[4] !== undefined)) return null;
    const level = LEVELS[found[1]];
    const [pod, index, host] = [found[2], found[3], found[4]].map(Number);
    if (pod >= this.groups(level) || index >= this.groupSize(level)) return null;
    if (level !== HOST) return { name, level, pod, index };
    if (host < FIRST_HOST || host >= FIRST_HOST + this.hostsPerEdge) return null;
    return { name, level, pod, index, host, edge: `e${pod}_${index}` };
  }

  /** Return the addresses, of either family, of a host, or of number 1 of its rack, which is its gateway. */
  addressesOf({ pod, index, host }) {
    const addresses = [`10.${pod}.${index}.${host}`];
    if (this.prefix6) {
      const groups = [...this.prefix6, (pod << 8) | index, 0, 0, 0, host].map((group) => group.toString(16));
      addresses.push(groups.join(":").replace(/(:0)+:(?=[^:]*$)/, "::"));
    }
    return addresses;
  }

  /** Return the name of the host with an address of either family; undefined if there is none. */
  hostAt(text) {
    const octets = text.split(".");
    let [pod, index, host] = octets.length === 4 && octets[0] === "10" ? octets.slice(1) : [];
    if (this.prefix6 && text.includes(":")) {
      const groups = groupsOf(text);
      [pod, index, host] = [groups[3] >> 8, groups[3] & 0xff, groups[7]];
      if (groups.length !== 8 || [...this.prefix6, groups[3], 0, 0, 0].some((group, at) => group !== groups[at])) return undefined;
    }
    return this.parse(`h${pod}_${index}_${host}`)?.name;
  }

  /** Return names that the fabric has, as examples: {source, destination, link, switches}. */
  examples() {
    const other = this.pods > 1 ? "h1_0_2" : this.edges > 1 ? "h0_1_2" : "h0_0_3";
    const lower = this.parse(this.leafSpine ? "e0_0" : "a0_0");
    const link = [...this.above(lower)].slice(0, 2).at(-1) || this.between("h0_0_2", "e0_0");
    return { source: "h0_0_2", destination: other, link: link.name, switches: this.leafSpine ? "e0_0 or a0_0" : "e0_0, a0_0 or c0_0" };
  }

  // -- rates --------------------------------------------------------------------------------------------------------

  /** Return {share, bits}: a link's planned rate as a share of its level's fastest, and in bits/s, null if the file has no rates. */
  rateOf(link) {
    const level = LEVELS[link.name[0]];
    const mbit = this.rates[link.name] ?? this.mbit[level] ?? 1;
    return { share: mbit / this.fastest(level), bits: this.mbit[level] === undefined ? null : mbit * MBIT };
  }

  fastest(level) {
    this.most ??= new Map();
    if (!this.most.has(level)) {
      const others = Object.keys(this.rates).filter((name) => LEVELS[name[0]] === level).map((name) => this.rates[name]);
      this.most.set(level, Math.max(this.mbit[level] ?? 1, ...others));
    }
    return this.most.get(level);
  }

  /** Return a link's planned rate in words, in `short` ones only the rate itself if it is known; "" if there is nothing to say. */
  rateInWords(link, short = false) {
    const { share, bits } = this.rateOf(link);
    if (short && bits !== null) return rate(bits);
    const of = share === 1 ? "" : `${percent(share)} of the fastest of its level`;
    if (bits === null) return of && `a rate of ${of}`;
    return of ? `${rate(bits)}, ${of}` : rate(bits);
  }

  /** Return the different shares that links between switches have of the rate of their level's fastest; none if all have one rate. */
  shares() {
    const found = new Set(Object.keys(this.rates).filter((name) => name[0] !== "h").map((name) => this.rateOf({ name }).share));
    return found.size ? [...found.add(1)].sort((a, b) => b - a).slice(0, MAX_SHARES) : [];
  }

  /** Return whether links between switches of one level have different rates. */
  get uneven() {
    return Object.keys(this.rates).some((name) => name[0] !== "h");
  }

  // -- paths --------------------------------------------------------------------------------------------------------

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
