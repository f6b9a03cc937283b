"""Readers of the maps of an agent's program: its path table, and the flows that it keeps."""

import os
import socket
import struct
from array import array
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from sopa_ryu.agent.host.filters import HANDLE, PRIORITY
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_table import GATEWAY_SLOTS, WORD_BYTES, PathTable, Policy, WayOut
from topologies import Host

PROGRAMS = ("sopa_egress", "sopa_option", "sopa_srv6")
HEADER_WORDS = 6
INDEX, FLOW_KEY, FLOW_STATE = struct.Struct("=I"), struct.Struct("=IIII"), struct.Struct("=QQQII")


def decode(data: bytes) -> PathTable:
    """Return the table in a kernel map's bytes (bpf/maps.h), without sets that no destination uses."""
    address, netmask = struct.unpack_from("=II", data)
    seed, count, stride, policy = struct.unpack_from("=IHBB", data, WORD_BYTES)
    (parameter,) = struct.unpack_from("=Q", data, 2 * WORD_BYTES)
    first_slot, has_slots, leads_out = struct.unpack_from("=IBB", data, 3 * WORD_BYTES)
    places = array("Q", data[HEADER_WORDS * WORD_BYTES :][: count * WORD_BYTES])
    distinct = sorted({struct.unpack("=II", struct.pack("=Q", place)) for place in places if place})
    index = {struct.unpack("=Q", struct.pack("=II", *pair))[0]: at for at, pair in enumerate(distinct)}
    sets = tuple(
        tuple((data[at], data[at + 1]) for at in range(first * WORD_BYTES, (first + size) * WORD_BYTES, WORD_BYTES))
        for first, size in distinct
    )
    network = IPv4Network((address, IPv4Address(netmask).exploded))
    destinations = tuple(index.get(place, -1) for place in places)
    exits = sorted({struct.unpack_from("=II", data, (first_slot + at) * WORD_BYTES) for at in range(GATEWAY_SLOTS * has_slots)})
    ways_out = []
    for first, size in exits:
        words = [data[at * WORD_BYTES : (at + 1) * WORD_BYTES] for at in range(first, first + size)]
        ways_out.append(WayOut(words[0][2:], tuple((word[0], word[1]) for word in words)))
    (prefix,) = struct.unpack_from("=Q", data, 4 * WORD_BYTES)
    block, *own = struct.unpack_from("=I3B", data, 5 * WORD_BYTES)
    inside6, srv6 = IPv6Network((prefix << 64, 48)) if prefix else None, (block, Host(*own)) if block else None
    its = seed, Policy(policy), parameter, tuple(ways_out), bool(leads_out), False
    return PathTable(network, stride, sets, destinations, *its, inside6, srv6)


def read_table(labeller: Labeller) -> PathTable | None:
    """Return the table by which a loaded program labels; None before the first swap."""
    return _read(*(labeller._object.map_fd(name) for name in ("path_tables", "turn")))


def table_in_force(ifname: str, netns: str | None = None) -> PathTable | None:
    """Return the table by which an interface's packets are labelled, also by a killed agent's program; None if they are not."""
    with inside(netns):
        program = tc.attached(socket.if_nametoindex(ifname), handle=HANDLE, priority=PRIORITY, point=tc.Point.EGRESS)
    if program is None or libbpf.program_name(program) not in PROGRAMS:
        return None
    with ExitStack() as opened:
        descriptors = []
        for name in ("path_tables", "turn"):
            descriptors.append(libbpf.open_program_map(program, name))
            opened.callback(os.close, descriptors[-1])
        return _read(*descriptors)


def flow_positions(labeller: Labeller) -> dict[FlowKey, int]:
    """Return the number of packets of each kept flow that were labelled in turn.

    With `Policy.FLOWLET` it is the number of flowlets that have ended, with `Policy.FLOWCELL` always 0.
    """
    positions, flows = {}, labeller._object.map_fd("flows")
    for key in libbpf.keys(flows, FLOW_KEY.size):
        value = libbpf.lookup(flows, key, FLOW_STATE.size)
        if value is not None:  # it may have been evicted meanwhile
            positions[FlowKey(*FLOW_KEY.unpack(key))] = int(FLOW_STATE.unpack(value)[0])
    return positions


def set_flow(labeller: Labeller, key: FlowKey, *, turns: int | None = None, mark: int | None = None) -> None:
    """Write parts of a flow's state, all else of which stays as it is, or is that of a new flow."""
    flows, packed = labeller._object.map_fd("flows"), FLOW_KEY.pack(*key)
    state = list(FLOW_STATE.unpack(libbpf.lookup(flows, packed, FLOW_STATE.size) or bytes(FLOW_STATE.size)))
    for at, value in enumerate((turns, mark)):
        if value is not None:
            state[at] = value
    libbpf.update(flows, packed, FLOW_STATE.pack(*state))


def forget_packets(labeller: Labeller) -> None:
    """Have a loaded program know no flow, and have counted nothing; its path table stays."""
    flows = labeller._object.map_fd("flows")
    for key in list(libbpf.keys(flows, FLOW_KEY.size)):
        libbpf.delete(flows, key)
    for name in ("counters", "path_packets", "path_load"):
        fd, value_bytes = labeller._object.map_fd(name), 8 * libbpf.possible_cpus()
        libbpf.fill_array(fd, bytes(map_entries(fd) * value_bytes), value_bytes)


def map_entries(fd: int) -> int:
    """Return a map's max_entries (struct bpf_map_info)."""
    return int(struct.unpack_from("=I", libbpf._info(fd, 80), 16)[0])


def _read(tables: int, active: int) -> PathTable | None:
    in_force = libbpf.lookup(active, INDEX.pack(0), 4) or INDEX.pack(0)
    inner = libbpf.lookup(tables, INDEX.pack(INDEX.unpack(in_force)[0] & 1), 4)
    if inner is None:
        return None
    fd = libbpf.open_map(*INDEX.unpack(inner))
    try:
        words = (libbpf.lookup(fd, INDEX.pack(at), WORD_BYTES) for at in range(map_entries(fd)))
        return decode(b"".join(word or b"" for word in words))
    finally:
        os.close(fd)
