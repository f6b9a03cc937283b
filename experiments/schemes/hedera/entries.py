"""The flow entries of Hedera at edge switches: messages that install them, and their statistics.

=========  ========  ===========================================================================================
table      priority
=========  ========  ===========================================================================================
INGRESS    34        labelled packet of a host: as without Hedera
INGRESS    33        placed flow: write its label into ``eth_src``, go to DOWN; expires
INGRESS    31        TCP of a host: learn an entry that counts the flow, consult `COUNTING`, go to DOWN
COUNTING   1         flow: counter only; expires
=========  ========  ===========================================================================================

SOPA's entries in INGRESS have priority 35 for hosts that may not select paths, and 30 for the address of a host. The cookies of
Hedera's entries contain a mark, by which statistics are requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from experiments.schemes.hedera.flows import HederaFlow, Reading
from experiments.schemes.hedera.placement import Up
from flowrules import label
from flowrules.model import IPV4, Field, Table
from sopa_ryu.fabric.messages import Installed
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.openflow import OPENFLOW, PARSER
from topologies import Clos, Switch, TopologyError

COUNTING = 16
TCP: Field = ("ip_proto", 6)
LABELLED_PRIORITY, PLACED_PRIORITY, COUNTED_PRIORITY = 34, 33, 31

COOKIE_MARK = 0x48
MARK = COOKIE_MARK << 56
MARK_MASK = 0xFF << 56
STANDING, COUNT, PLACED = (MARK | kind << 48 for kind in (1, 2, 3))
KIND_MASK = 0xFFFF << 48
CONSULT_FROM = 0xFFF8  # resubmit with the port that the packet came in by (OpenFlow 1.0's OFPP_IN_PORT)


def standing(datapath: Any, tree: Clos, edge: Switch, seconds: int) -> list[Any]:
    """Return the messages that install the permanent entries of an edge switch; those that count flows idle for ``seconds``."""
    messages = []
    for host in tree.hosts_of(edge):
        own: tuple[Field, ...] = (("in_port", tree.port(edge, host)), IPV4, ("ipv4_src", str(tree.ip(host))))
        labelled = (*own, ("eth_src", label.LABELLED))
        messages.append(_add(datapath, STANDING, LABELLED_PRIORITY, labelled, []))
        count = [_learn(seconds), PARSER.NXActionResubmitTable(in_port=CONSULT_FROM, table_id=COUNTING)]
        messages.append(_add(datapath, STANDING, COUNTED_PRIORITY, (*own, TCP), count))
    return messages


def standing_count(tree: Clos) -> int:
    """Return the number of permanent entries of an edge switch."""
    return 2 * tree.hosts_per_edge


def place(datapath: Any, tree: Clos, flow: HederaFlow, up: Up, seconds: int) -> Any:
    """Return the message that places a flow on a path until it has been idle for ``seconds``."""
    up1, up2 = label.hop_bytes(up)
    actions = [PARSER.OFPActionSetField(eth_src=label.carrier_mac(up))]
    return _add(datapath, PLACED | up1 << 8 | up2, PLACED_PRIORITY, _five(tree, flow), actions, seconds)


def release(datapath: Any, tree: Clos, flow: HederaFlow) -> Any:
    """Return the message that releases a flow to the hash of switches."""
    return openflow.flow_delete(datapath, Installed(Table.INGRESS, PLACED_PRIORITY, 0, _five(tree, flow)))


def request(datapath: Any) -> Any:
    """Return the request for the statistics of Hedera's entries."""
    return PARSER.OFPFlowStatsRequest(datapath, cookie=MARK, cookie_mask=MARK_MASK)


def is_standing(body: Any) -> bool:
    """Return True for statistics of a permanent entry."""
    return bool(body.cookie & KIND_MASK == STANDING)


def readings(tree: Clos, bodies: Iterable[Any]) -> Iterator[Reading]:
    """Yield the counters of flows between hosts of the fabric."""
    for body in bodies:
        kind = body.cookie & KIND_MASK
        if kind in (COUNT, PLACED):
            match = body.match
            try:
                src, dst = tree.host_by_ip(match["ipv4_src"]), tree.host_by_ip(match["ipv4_dst"])
            except TopologyError:
                continue  # to outside of the fabric: no candidate paths
            flow = HederaFlow(src, match["tcp_src"], dst, match["tcp_dst"])
            seconds = body.duration_sec + body.duration_nsec / 1e9
            yield Reading(flow, body.byte_count, seconds, _up(body.cookie) if kind == PLACED else None)


def _up(cookie: int) -> Up:
    return tuple(index for index in (cookie >> 8 & 0xFF, cookie & 0xFF) if index != label.UNUSED)


def _five(tree: Clos, flow: HederaFlow) -> tuple[Field, ...]:
    return (
        ("in_port", tree.port(tree.edge_of(flow.src), flow.src)),
        IPV4,
        ("ipv4_src", str(tree.ip(flow.src))),
        ("ipv4_dst", str(tree.ip(flow.dst))),
        TCP,
        ("tcp_src", flow.src_port),
        ("tcp_dst", flow.dst_port),
    )


def _add(datapath: Any, cookie: int, priority: int, match: tuple[Field, ...], actions: list[Any], seconds: int = 0) -> Any:
    apply = [PARSER.OFPInstructionActions(OPENFLOW.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    return PARSER.OFPFlowMod(
        datapath,
        cookie=cookie,
        table_id=Table.INGRESS,
        command=OPENFLOW.OFPFC_ADD,
        idle_timeout=seconds,
        priority=priority,
        match=PARSER.OFPMatch(**dict(match)),
        instructions=[*apply, PARSER.OFPInstructionGotoTable(Table.DOWN)],
    )


def _learn(seconds: int) -> Any:
    return PARSER.NXActionLearn(
        table_id=COUNTING,
        specs=[
            PARSER.NXFlowSpecMatch(src=0x0800, dst=("eth_type_nxm", 0), n_bits=16),
            PARSER.NXFlowSpecMatch(src=6, dst=("ip_proto_nxm", 0), n_bits=8),
            PARSER.NXFlowSpecMatch(src=("ipv4_src_nxm", 0), dst=("ipv4_src_nxm", 0), n_bits=32),
            PARSER.NXFlowSpecMatch(src=("ipv4_dst_nxm", 0), dst=("ipv4_dst_nxm", 0), n_bits=32),
            PARSER.NXFlowSpecMatch(src=("tcp_src_nxm", 0), dst=("tcp_src_nxm", 0), n_bits=16),
            PARSER.NXFlowSpecMatch(src=("tcp_dst_nxm", 0), dst=("tcp_dst_nxm", 0), n_bits=16),
        ],
        idle_timeout=seconds,
        priority=1,
        cookie=COUNT,
    )
