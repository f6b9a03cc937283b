"""Rules to OpenFlow 1.3 messages and back: the only module that knows Ryu's message classes and Open vSwitch's extensions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from ryu.ofproto import nicira_ext, ofproto_v1_3, ofproto_v1_3_parser

from flowrules.model import (
    Action,
    AnswerArp,
    Flow,
    Group,
    HashOver,
    LearnSender,
    Output,
    SetField,
    SwitchRules,
    Table,
    ToController,
    ToGroup,
    digest,
)
from sopa_ryu.fabric.state import DOWN, SILENT
from sopa_ryu.fabric.traffic import PortCounters

OPENFLOW = ofproto_v1_3
PARSER = ofproto_v1_3_parser

COOKIE_MARK = 0x50
LEARNED_COOKIE = COOKIE_MARK << 56
LEARNED_PRIORITY = 1
# nx_hash_fields in OVS's nicira-ext.h; Ryu knows only the first three. This one takes in the ports of UDP too.
NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP = 3


def cookie(flow: Flow, version: int) -> int:
    """A flow entry's cookie: our mark (8 bits), what the entry says (24 bits), and the fabric version it came with (32 bits)."""
    return COOKIE_MARK << 56 | digest(flow) << 32 | version & 0xFFFFFFFF


class Installed(NamedTuple):
    """A flow entry that a switch reports: where it stands, what its cookie says of it, and its match as reported."""

    table: int
    priority: int
    cookie: int
    match: Any


class InstalledState(NamedTuple):
    """What a switch holds: its flow entries, and its groups, each with the ports of its buckets in order."""

    flows: list[Installed]
    groups: dict[int, tuple[int, ...]]


class Changes(NamedTuple):
    """What brings a switch from what it holds to what it should hold."""

    groups: list[tuple[int, Group]]
    flows: list[Flow]
    stale_flows: list[Installed]
    stale_groups: list[int]

    @property
    def size(self) -> int:
        """How many messages that takes."""
        return len(self.groups) + len(self.flows) + len(self.stale_flows) + len(self.stale_groups)


def is_ours(entry: Installed) -> bool:
    """Whether a flow entry came from a controller like this one."""
    return entry.cookie >> 56 == COOKIE_MARK


def compare(wanted: SwitchRules, installed: InstalledState) -> Changes:
    """Tell what is missing and what is stale, so that a switch is reconciled without touching what is right.

    Entries that the switch learned itself are left alone.
    """
    groups = installed.groups
    missing = {(int(flow.table), flow.priority, digest(flow)): flow for flow in wanted.flows}
    stale = []
    for entry in installed.flows:
        if entry.table == Table.DELIVER and entry.cookie == LEARNED_COOKIE:
            continue
        if (
            not is_ours(entry)
            or missing.pop((entry.table, entry.priority, entry.cookie >> 32 & 0xFFFFFF), None) is None
        ):
            stale.append(entry)
    group_changes = []
    for group in wanted.groups:
        ports = tuple(bucket.port for bucket in group.buckets)
        if group.id not in groups:
            group_changes.append((OPENFLOW.OFPGC_ADD, group))
        elif groups[group.id] != ports:
            group_changes.append((OPENFLOW.OFPGC_MODIFY, group))
    stale_groups = sorted(set(groups) - {group.id for group in wanted.groups})
    # the last tables first: an entry that sends packets on never stands before what it sends them to
    return Changes(group_changes, sorted(missing.values(), key=lambda f: -f.table), stale, stale_groups)


def difference(before: SwitchRules, after: SwitchRules) -> Changes:
    """Tell how to go from one rule set to another, for a switch that is known to hold the first."""
    old, new = set(before.flows), set(after.flows)
    gone = [flow for flow in before.flows if flow not in new]
    return Changes(
        [(OPENFLOW.OFPGC_MODIFY, group) for group in after.groups if group not in before.groups],
        [flow for flow in after.flows if flow not in old],
        [Installed(flow.table, flow.priority, 0, flow_match(flow)) for flow in gone],
        [],
    )


def messages(datapath: Any, changes: Changes, version: int) -> list[Any]:
    """The messages that carry out changes, in an order that never leaves a packet without a rule it had."""
    # ADD overwrites an entry of the same table, priority and match at once; only what no new entry replaces is deleted.
    new = {(flow.table, flow.priority, _match_key(flow_match(flow))) for flow in changes.flows}
    stale = [e for e in changes.stale_flows if (e.table, e.priority, _match_key(e.match)) not in new]
    return [
        *(group_mod(datapath, group, command) for command, group in changes.groups),
        *(flow_mod(datapath, flow, version) for flow in changes.flows),
        *(flow_delete(datapath, entry) for entry in stale),
        *(
            PARSER.OFPGroupMod(datapath, OPENFLOW.OFPGC_DELETE, OPENFLOW.OFPGT_FF, group_id)
            for group_id in changes.stale_groups
        ),
    ]


def flow_mod(datapath: Any, flow: Flow, version: int) -> Any:
    """The message that installs a flow entry."""
    return PARSER.OFPFlowMod(
        datapath,
        cookie=cookie(flow, version),
        table_id=flow.table,
        command=OPENFLOW.OFPFC_ADD,
        priority=flow.priority,
        match=flow_match(flow),
        instructions=list(_instructions(flow)),
    )


def flow_delete(datapath: Any, entry: Installed) -> Any:
    """The message that removes exactly one flow entry."""
    return PARSER.OFPFlowMod(
        datapath,
        table_id=entry.table,
        command=OPENFLOW.OFPFC_DELETE_STRICT,
        priority=entry.priority,
        match=entry.match,
        out_port=OPENFLOW.OFPP_ANY,
        out_group=OPENFLOW.OFPG_ANY,
    )


def group_mod(datapath: Any, group: Group, command: int) -> Any:
    """The message that installs or changes a fast-failover group."""
    return PARSER.OFPGroupMod(datapath, command, OPENFLOW.OFPGT_FF, group.id, list(_buckets(group)))


@lru_cache(maxsize=1 << 12)
def _buckets(group: Group) -> tuple[Any, ...]:
    return tuple(
        PARSER.OFPBucket(watch_port=bucket.port, actions=[PARSER.OFPActionOutput(bucket.port)])
        for bucket in group.buckets
    )


@lru_cache(maxsize=1 << 16)
def flow_match(flow: Flow) -> Any:
    """A flow entry's match in Ryu's form."""
    return PARSER.OFPMatch(**dict(flow.match))


def _match_key(match: Any) -> frozenset[tuple[str, Any]]:
    return frozenset(match.items())


def _actions(flow: Iterable[Action]) -> list[Any]:
    return [made for action in flow for made in _ACTIONS[type(action)](action)]


@lru_cache(maxsize=1 << 16)
def _instructions(flow: Flow) -> tuple[Any, ...]:
    made: list[Any] = []
    if flow.apply:
        made.append(PARSER.OFPInstructionActions(OPENFLOW.OFPIT_APPLY_ACTIONS, _actions(flow.apply)))
    if flow.write:
        made.append(PARSER.OFPInstructionActions(OPENFLOW.OFPIT_WRITE_ACTIONS, _actions(flow.write)))
    if flow.metadata is not None:
        made.append(PARSER.OFPInstructionWriteMetadata(flow.metadata, 0xFFFFFFFFFFFFFFFF))
    if flow.goto is not None:
        made.append(PARSER.OFPInstructionGotoTable(flow.goto))
    return tuple(made)


def _answer_arp(action: AnswerArp) -> list[Any]:
    move = PARSER.NXActionRegMove
    return [
        move(src_field="eth_src", dst_field="eth_dst", n_bits=48),
        PARSER.OFPActionSetField(eth_src=action.mac),
        PARSER.OFPActionSetField(arp_op=2),
        move(src_field="arp_sha", dst_field="arp_tha", n_bits=48),
        PARSER.OFPActionSetField(arp_sha=action.mac),
        # sender and target change places by way of a register
        move(src_field="arp_spa", dst_field="reg0", n_bits=32),
        move(src_field="arp_tpa", dst_field="arp_spa", n_bits=32),
        move(src_field="reg0", dst_field="arp_tpa", n_bits=32),
        PARSER.OFPActionOutput(OPENFLOW.OFPP_IN_PORT),
    ]


def _learn_sender(action: LearnSender) -> list[Any]:
    return [
        PARSER.NXActionLearn(
            table_id=Table.DELIVER,
            specs=[
                PARSER.NXFlowSpecMatch(src=("in_port_nxm", 0), dst=("metadata", 0), n_bits=16),
                PARSER.NXFlowSpecLoad(src=("arp_sha", 0), dst=("eth_dst_nxm", 0), n_bits=48),
            ],
            hard_timeout=action.seconds,
            priority=LEARNED_PRIORITY,
            cookie=LEARNED_COOKIE,
        )
    ]


def _hash_over(action: HashOver) -> list[Any]:
    return [
        PARSER.NXActionBundle(
            algorithm=nicira_ext.NX_BD_ALG_HRW,
            fields=NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP,
            basis=action.basis,
            slave_type=nicira_ext.NXM_OF_IN_PORT,
            n_slaves=len(action.ports),
            ofs_nbits=0,
            dst=0,
            slaves=list(action.ports),
        )
    ]


_ACTIONS: dict[type, Callable[[Any], list[Any]]] = {
    Output: lambda action: [PARSER.OFPActionOutput(action.port)],
    ToGroup: lambda action: [PARSER.OFPActionGroup(action.group)],
    ToController: lambda _action: [PARSER.OFPActionOutput(OPENFLOW.OFPP_CONTROLLER, OPENFLOW.OFPCML_NO_BUFFER)],
    SetField: lambda action: [PARSER.OFPActionSetField(**{action.field: action.value})],
    AnswerArp: _answer_arp,
    LearnSender: _learn_sender,
    HashOver: _hash_over,
}


def installed_flows(bodies: Iterable[Any]) -> list[Installed]:
    """The flow entries of a switch's flow statistics."""
    return [Installed(body.table_id, body.priority, body.cookie, body.match) for body in bodies]


def installed_groups(bodies: Iterable[Any]) -> dict[int, tuple[int, ...]]:
    """The groups of a switch's group descriptions; a bucket that is not one of ours makes the group differ."""
    return {body.group_id: tuple(_bucket_port(bucket) for bucket in body.buckets) for body in bodies}


def _bucket_port(bucket: Any) -> int:
    outputs = [action.port for action in bucket.actions if isinstance(action, PARSER.OFPActionOutput)]
    ours = len(bucket.actions) == 1 and outputs == [bucket.watch_port]
    return outputs[0] if ours else -1


def port_trouble(port: Any) -> str | None:
    """Why a port, as a switch describes it, carries no packets: `DOWN`, `SILENT`, or None if it does.

    Open vSwitch clears LIVE while BFD does not hear the other end, though the port itself is up.
    """
    if port_is_down(port):
        return DOWN
    return None if port.state & OPENFLOW.OFPPS_LIVE else SILENT


def port_is_down(port: Any) -> bool:
    """Whether a port has been taken down or has no link."""
    return bool(port.config & OPENFLOW.OFPPC_PORT_DOWN or port.state & OPENFLOW.OFPPS_LINK_DOWN)


def port_speed(port: Any) -> float | None:
    """What fits through a port, as a switch describes it, in bits per second; None if it does not tell."""
    return 1000.0 * port.curr_speed or None


def port_counters(bodies: Iterable[Any]) -> dict[int, PortCounters]:
    """The counters of a switch's port statistics, by port number."""
    return {
        body.port_no: PortCounters(
            _counted(body.rx_bytes),
            _counted(body.tx_bytes),
            _counted(body.rx_packets),
            _counted(body.tx_packets),
            _counted(body.rx_dropped),
            _counted(body.tx_dropped),
            _counted(body.rx_errors),
            _counted(body.tx_errors),
            None if body.duration_sec == _NO_SECONDS else body.duration_sec + body.duration_nsec / 1e9,
        )
        for body in bodies
        if body.port_no <= OPENFLOW.OFPP_MAX
    }


def _counted(value: int) -> int | None:
    return None if value == _NO_COUNT else value


# Every bit is set where a switch does not count (OpenFlow 1.3, section 7.3.5.6).
_NO_COUNT = (1 << 64) - 1
_NO_SECONDS = (1 << 32) - 1


def packet_out(datapath: Any, port: int, data: bytes) -> Any:
    """The message that has a switch send a frame out of a port."""
    return PARSER.OFPPacketOut(
        datapath,
        buffer_id=OPENFLOW.OFP_NO_BUFFER,
        in_port=OPENFLOW.OFPP_CONTROLLER,
        actions=[PARSER.OFPActionOutput(port)],
        data=data,
    )


ERROR_TYPES = {
    value: name[len("OFPET_") :].lower().replace("_", " ")
    for name, value in vars(OPENFLOW).items()
    if name.startswith("OFPET_")
}


ERROR_LABELS = [kind.replace(" ", "_") for kind in ERROR_TYPES.values()]


def error_type(message: Any) -> str:
    """The type of an OpenFlow error message as one word: ``flow_mod_failed``."""
    return ERROR_TYPES.get(message.type, "unknown").replace(" ", "_")


def error_text(message: Any) -> str:
    """An OpenFlow error message in words."""
    kind = ERROR_TYPES.get(message.type, f"type {message.type}")
    refused = ""
    if len(message.data) >= 4:
        refused = f", refused message type {struct.unpack_from('!BB', message.data)[1]}"
    return f"{kind}, code {message.code}{refused}"
