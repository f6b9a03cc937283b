"""The instructions of flow entries: from rules to OpenFlow 1.3 with Open vSwitch's extensions, and back."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from flowrules import label
from flowrules.model import (
    Action,
    AnswerArp,
    AnswerSolicitation,
    Choose,
    ConsumeHop,
    Does,
    Flow,
    HashOver,
    LearnNeighbour,
    LearnNoMore,
    LearnNoNeighbour,
    LearnSender,
    LookUp,
    Output,
    OutputHop,
    SendNoMore,
    SendNoMore6,
    SendStart,
    SetField,
    Table,
    ToController,
    ToGroup,
)
from sopa_ryu.fabric.messages import UNKNOWN_INSTRUCTIONS
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE
from sopa_ryu.runtime.library import nicira_ext, ofproto_v1_3, ofproto_v1_3_parser

OPENFLOW = ofproto_v1_3
PARSER = ofproto_v1_3_parser

LEARNED_PRIORITY = 1
# nx_hash_fields in OVS's nicira-ext.h; Ryu knows only the first three. This one takes in the ports of UDP too.
NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP = 3
NX_HASH_FIELDS_SYMMETRIC_L3 = 6
NX_IN_PORT = 0xFFF8  # OFPP_IN_PORT of OpenFlow 1.0, in Open vSwitch's own actions
ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_ARP = 0x0806
ETH_TYPE_IPV6, ICMPV6 = 0x86DD, 58
ND_TYPE = {"nd_sll": 135, "nd_tll": 136}
"""Types of the messages that have these fields."""
CHOICE_REGISTER = "reg1"
CHOICE_BITS = 31  # the whole register: first bit << 6 | number of bits - 1
WHOLE_METADATA = 0xFFFFFFFFFFFFFFFF
# Open vSwitch's fields nd_options_type and nd_reserved (ovs-fields(7)), of which Ryu knows the numbers only, and their values in
# base64: a target link-layer address (RFC 4861, section 4.6.1); router, solicited and override (section 4.4)
ND_OPTIONS_TYPE, ND_RESERVED = (f"field_{0x1000 << 7 | number}" for number in (2, 1))
_ND_TARGET_ADDRESS, _ND_FLAGS = (base64.b64encode(value).decode() for value in (b"\2", b"\xe0\0\0\0"))
HOP_BITS = (0x0207, 0x0007)  # of up1 and up2 in eth_src, as the action has them: first bit << 6 | number of bits - 1


@lru_cache(maxsize=1 << 16)
def encode(flow: Flow) -> tuple[Any, ...]:
    """Return a flow entry's instructions as Ryu's objects."""
    made: list[Any] = []
    if flow.apply:
        made.append(PARSER.OFPInstructionActions(OPENFLOW.OFPIT_APPLY_ACTIONS, _actions(flow.apply)))
    if flow.write:
        made.append(PARSER.OFPInstructionActions(OPENFLOW.OFPIT_WRITE_ACTIONS, _actions(flow.write)))
    if flow.metadata is not None:
        made.append(PARSER.OFPInstructionWriteMetadata(flow.metadata, WHOLE_METADATA))
    if flow.goto is not None:
        made.append(PARSER.OFPInstructionGotoTable(flow.goto))
    return tuple(made)


def decode(instructions: Iterable[Any]) -> Does:
    """Return what instructions that a switch reports do; `UNKNOWN_INSTRUCTIONS` if no rule has such instructions."""
    done = Does((), (), None, None)
    for each in instructions:
        if isinstance(each, PARSER.OFPInstructionActions):
            actions = tuple(_decoded(each.actions))
            if None in actions:
                return UNKNOWN_INSTRUCTIONS
            known = tuple(action for action in actions if action is not None)
            if each.type == OPENFLOW.OFPIT_APPLY_ACTIONS:
                done = done._replace(apply=known)
                continue
            if each.type == OPENFLOW.OFPIT_WRITE_ACTIONS:
                done = done._replace(write=known)
                continue
        elif isinstance(each, PARSER.OFPInstructionWriteMetadata) and each.metadata_mask == WHOLE_METADATA:
            done = done._replace(metadata=each.metadata)
            continue
        elif isinstance(each, PARSER.OFPInstructionGotoTable) and each.table_id in iter(Table):
            done = done._replace(goto=Table(each.table_id))
            continue
        return UNKNOWN_INSTRUCTIONS
    return done


def _actions(actions: Iterable[Action]) -> list[Any]:
    return [made for action in actions for made in _ENCODE[type(action)](action)]


def _answer_arp(action: AnswerArp) -> list[Any]:
    # fields by the names that Open vSwitch reports
    move = PARSER.NXActionRegMove
    return [
        move(src_field="eth_src_nxm", dst_field="eth_dst_nxm", n_bits=48),
        PARSER.OFPActionSetField(eth_src=action.mac),
        PARSER.OFPActionSetField(arp_op=2),
        move(src_field="arp_sha_nxm", dst_field="arp_tha_nxm", n_bits=48),
        PARSER.OFPActionSetField(arp_sha=action.mac),
        # sender and target change places by way of a register
        move(src_field="arp_spa_nxm", dst_field="reg0", n_bits=32),
        move(src_field="arp_tpa_nxm", dst_field="arp_spa_nxm", n_bits=32),
        move(src_field="reg0", dst_field="arp_tpa_nxm", n_bits=32),
        PARSER.OFPActionOutput(OPENFLOW.OFPP_IN_PORT),
    ]


def _answer_solicitation(action: AnswerSolicitation) -> list[Any]:
    move = PARSER.NXActionRegMove
    return [
        move(src_field="ipv6_src_nxm", dst_field="ipv6_dst_nxm", n_bits=128),
        move(src_field="nd_target", dst_field="ipv6_src_nxm", n_bits=128),
        PARSER.OFPActionSetField(**{ND_OPTIONS_TYPE: _ND_TARGET_ADDRESS}),
        PARSER.OFPActionSetField(**{ND_RESERVED: _ND_FLAGS}),
        PARSER.OFPActionSetField(ipv6_nd_tll=action.mac),
        move(src_field="eth_src_nxm", dst_field="eth_dst_nxm", n_bits=48),
        PARSER.OFPActionSetField(eth_src=action.mac),
        PARSER.OFPActionOutput(OPENFLOW.OFPP_IN_PORT),
    ]


def _learn(table: Table, seconds: int, *specs: Any, priority: int = LEARNED_PRIORITY) -> list[Any]:
    learn = PARSER.NXActionLearn
    return [learn(table_id=table, specs=list(specs), hard_timeout=seconds, priority=priority, cookie=LEARNED_COOKIE)]


def _learn_sender(seconds: int, field: str = "arp_sha_nxm") -> list[Any]:
    return _learn(
        Table.DELIVER,
        seconds,
        PARSER.NXFlowSpecMatch(src=("in_port_nxm", 0), dst=("metadata", 0), n_bits=16),
        PARSER.NXFlowSpecLoad(src=(field, 0), dst=("eth_dst_nxm", 0), n_bits=48),
    )


def _learn_no_more(bits: int, field: str = "arp_sha_nxm") -> list[Any]:
    constants = [("eth_type_nxm", ETH_TYPE_ARP, 16)]
    if field in ND_TYPE:
        constants = [("eth_type_nxm", ETH_TYPE_IPV6, 16), ("ip_proto_nxm", ICMPV6, 8), ("icmpv6_type_nxm", ND_TYPE[field], 8)]
        constants.append(("icmpv6_code_nxm", 0, 8))
    return _learn(
        Table.LEARN,
        1,
        PARSER.NXFlowSpecMatch(src=("in_port_nxm", 0), dst=("in_port_nxm", 0), n_bits=16),
        *(PARSER.NXFlowSpecMatch(src=value, dst=(name, 0), n_bits=size) for name, value, size in constants),
        PARSER.NXFlowSpecMatch(src=(field, 0), dst=(field, 0), n_bits=bits),
        priority=LEARNED_PRIORITY + 1,
    )


def _send_no_more(bits: int, ethertype: int, source: str) -> list[Any]:
    return _learn(
        Table.DOWN,
        1,
        PARSER.NXFlowSpecMatch(src=ethertype, dst=("eth_type_nxm", 0), n_bits=16),
        PARSER.NXFlowSpecMatch(src=(source, 0), dst=(source, 0), n_bits=bits),
    )


def _choose(action: Choose) -> list[Any]:
    return [
        PARSER.NXActionMultipath(
            fields=NX_HASH_FIELDS_SYMMETRIC_L3 if action.addresses else NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP,
            basis=action.basis,
            algorithm=nicira_ext.NX_MP_ALG_MODULO_N,
            max_link=action.number - 1,
            arg=0,
            ofs_nbits=CHOICE_BITS,
            dst=CHOICE_REGISTER,
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


_ENCODE: dict[type, Callable[[Any], list[Any]]] = {
    Output: lambda action: [PARSER.OFPActionOutput(action.port)],
    ToGroup: lambda action: [PARSER.OFPActionGroup(action.group)],
    ToController: lambda _action: [PARSER.OFPActionOutput(OPENFLOW.OFPP_CONTROLLER, OPENFLOW.OFPCML_NO_BUFFER)],
    SendStart: lambda action: [PARSER.OFPActionOutput(OPENFLOW.OFPP_CONTROLLER, action.bytes)],
    SendNoMore: lambda action: _send_no_more(action.bits, ETH_TYPE_IPV4, "ipv4_src_nxm"),
    SendNoMore6: lambda action: _send_no_more(action.bits, ETH_TYPE_IPV6, "ipv6_src_nxm"),
    SetField: lambda action: [PARSER.OFPActionSetField(**{action.field: action.value})],
    Choose: _choose,
    ConsumeHop: lambda action: [PARSER.NXActionRegLoad(ofs_nbits=HOP_BITS[action.hop], dst="eth_src_nxm", value=label.UNUSED)],
    OutputHop: lambda action: [PARSER.NXActionOutputReg(ofs_nbits=HOP_BITS[action.hop], src="eth_src_nxm", max_len=0)],
    AnswerArp: _answer_arp,
    AnswerSolicitation: _answer_solicitation,
    LearnSender: lambda action: _learn_sender(action.seconds),
    LearnNoMore: lambda action: _learn_no_more(action.bits),
    LearnNeighbour: lambda action: _learn_sender(action.seconds, action.field),
    LearnNoNeighbour: lambda action: _learn_no_more(action.bits, action.field),
    LookUp: lambda action: [PARSER.NXActionResubmitTable(in_port=NX_IN_PORT, table_id=action.table)],
    HashOver: _hash_over,
}


def _decoded(actions: Sequence[Any]) -> Iterator[Action | None]:
    """Yield the actions of the rules that OpenFlow's actions are, None for one that is part of no rule."""
    start = 0
    while start < len(actions):
        action = _guess(actions, start)
        if action is None:
            yield None
            return
        expected = _ENCODE[type(action)](action)
        # by their bytes: a guess looks at one field or two only
        if [*map(_bytes, actions[start : start + len(expected)])] != [*map(_bytes, expected)]:
            yield None
            return
        yield action
        start += len(expected)


def _guess(actions: Sequence[Any], start: int) -> Action | None:
    first = actions[start]
    if isinstance(first, PARSER.OFPActionOutput):
        if first.port != OPENFLOW.OFPP_CONTROLLER:
            return Output(first.port)
        return ToController() if first.max_len == OPENFLOW.OFPCML_NO_BUFFER else SendStart(first.max_len)
    if isinstance(first, PARSER.OFPActionGroup):
        return ToGroup(first.group_id)
    if isinstance(first, PARSER.OFPActionSetField):
        return SetField(first.key, first.value)
    if isinstance(first, PARSER.NXActionRegLoad) and first.ofs_nbits in HOP_BITS:
        return ConsumeHop(HOP_BITS.index(first.ofs_nbits))
    if isinstance(first, PARSER.NXActionOutputReg) and first.ofs_nbits in HOP_BITS:
        return OutputHop(HOP_BITS.index(first.ofs_nbits))
    if isinstance(first, PARSER.NXActionBundle):
        return HashOver(tuple(first.slaves), first.basis)
    if isinstance(first, PARSER.NXActionMultipath):
        return Choose(first.max_link + 1, first.basis, first.fields == NX_HASH_FIELDS_SYMMETRIC_L3)
    if isinstance(first, PARSER.NXActionLearn):
        return _guess_learn(first)
    if isinstance(first, PARSER.NXActionResubmitTable) and first.table_id in iter(Table):
        return LookUp(Table(first.table_id))
    if isinstance(first, PARSER.NXActionRegMove) and first.src_field == "ipv6_src_nxm":
        return next((AnswerSolicitation(its.value) for its in actions[start:] if getattr(its, "key", "") == "eth_src"), None)
    following = actions[start + 1 : start + 2]
    if isinstance(first, PARSER.NXActionRegMove) and following and isinstance(following[0], PARSER.OFPActionSetField):
        return AnswerArp(str(following[0].value))
    return None


def _guess_learn(action: Any) -> Action:
    last = action.specs[-1] if action.specs else None
    field = last.src[0] if last and isinstance(last.src, tuple) else ""
    if action.table_id == Table.LEARN and last:
        return LearnNoNeighbour(last.n_bits, field) if field in ND_TYPE else LearnNoMore(last.n_bits)
    if action.table_id == Table.DOWN and last:
        return (SendNoMore6 if field == "ipv6_src_nxm" else SendNoMore)(last.n_bits)
    return LearnNeighbour(action.hard_timeout, field) if field in ND_TYPE else LearnSender(action.hard_timeout)


def _bytes(action: Any) -> bytes:
    buffer = bytearray()
    action.serialize(buffer, 0)
    return bytes(buffer)
