"""The core's messages to OpenFlow 1.3 and back: the only module that knows Ryu's message classes and Open vSwitch's extensions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from flowrules.model import Field, Flow, Group
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    Answer,
    BarrierRequest,
    DeleteFlow,
    DeleteGroup,
    EchoRequest,
    FlowsRequest,
    GenerationRequest,
    GroupsRequest,
    Installed,
    Message,
    Modification,
    ModifyGroup,
    OtherRequest,
    Refusal,
    Request,
    RoleRequest,
    SendFrame,
    SendProbe,
)
from sopa_ryu.fabric.rule_changes import cookie, is_learned
from sopa_ryu.fabric.traffic import PortCounters
from sopa_ryu.runtime.library import ProtocolDesc, ofproto_v1_3, ofproto_v1_3_parser
from sopa_ryu.southbound import instructions, lldp
from topologies.failures import Reason

OPENFLOW = ofproto_v1_3
PARSER = ofproto_v1_3_parser

_NX_FIELDS = {"nw_ttl", "ip_frag"}
_NX_NAMES = {
    "eth_type": "eth_type_nxm",
    "ip_proto": "ip_proto_nxm",
    "ipv6_src": "ipv6_src_nxm",
    "icmpv6_type": "icmpv6_type_nxm",
    "icmpv6_code": "icmpv6_code_nxm",
    "ipv6_nd_target": "nd_target",
}


def encode(datapath: Any, message: Message) -> Any:
    """Return a message of the core to a switch as Ryu's message object, without a transaction id."""
    return _ENCODE[type(message)](datapath, message)


@lru_cache(maxsize=1 << 13, typed=True)  # to add a group and to change it are equal as tuples
def packed(modification: Modification) -> bytes:
    """Return a modification as a switch reads it, with transaction id 0: many switches are sent the same.

    Every core switch has the same entries, and so have all aggregation switches of a pod, and all edge switches above their hosts'.
    """
    message = encode(_ANY_SWITCH, modification)
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def with_xid(message: bytes, xid: int) -> bytes:
    """Return a packed message with another transaction id (OpenFlow 1.3, section 7.1)."""
    return b"%b%b%b" % (message[:4], xid.to_bytes(4), message[8:])


def packed_probe(dpid: int, port: int) -> bytes:
    """Return the packet-out of a probe as a switch reads it, with transaction id 0 (OpenFlow 1.3, sections 7.2.5 and 7.3.7)."""
    frame = lldp.frame(dpid, port)
    return (
        _PROBE_OUT.pack(
            OPENFLOW.OFP_VERSION,
            OPENFLOW.OFPT_PACKET_OUT,
            _PROBE_OUT.size + len(frame),
            0,
            OPENFLOW.OFP_NO_BUFFER,
            OPENFLOW.OFPP_CONTROLLER,
            OPENFLOW.OFP_ACTION_OUTPUT_SIZE,
            OPENFLOW.OFPAT_OUTPUT,
            OPENFLOW.OFP_ACTION_OUTPUT_SIZE,
            port,
            OPENFLOW.OFPCML_MAX,
        )
        + frame
    )


_PROBE_OUT = struct.Struct("!BBHI IIH6x HHIH6x")


_ANY_SWITCH = ProtocolDesc(OPENFLOW.OFP_VERSION)


def decode(request: Request, replies: Sequence[Any]) -> Answer:
    """Return what a switch's whole reply to a request means: the answer that `messages` names."""
    match request:
        case RoleRequest():
            return bool(replies[0].role == OPENFLOW.OFPCR_ROLE_MASTER)
        case FlowsRequest():
            return [installed_flow(body) for reply in replies for body in reply.body]
        case GroupsRequest():
            return installed_groups(body for reply in replies for body in reply.body)
        case GenerationRequest():
            generation = int(replies[0].generation_id)
            return None if generation == _NO_GENERATION else generation
        case BarrierRequest() | EchoRequest() | OtherRequest():
            return None


_NO_GENERATION = (1 << 64) - 1  # what Open vSwitch answers before the first claim


def is_last(reply: Any) -> bool:
    """Tell whether no further message of a multipart reply follows."""
    return not getattr(reply, "flags", 0) & OPENFLOW.OFPMPF_REPLY_MORE


def has_more(message: bytes | bytearray) -> bool:
    """Tell whether further messages of a multipart reply follow, from its bytes; `ValueError` if it is too short."""
    if len(message) < _MULTIPART.size:
        raise ValueError("multipart reply: too short")
    return bool(_MULTIPART.unpack_from(message)[1] & OPENFLOW.OFPMPF_REPLY_MORE)


def join(joined: bytearray, message: bytes | bytearray) -> None:
    """Add a message of a multipart reply to those before it, as one message; `ValueError` if it is of another kind.

    Its length in the header stays that of the last: it may be more than a header can say.
    """
    if joined and _MULTIPART.unpack_from(joined)[0] != _MULTIPART.unpack_from(message)[0]:
        raise ValueError("multipart reply: its messages are of several kinds")
    joined[: _MULTIPART.size] = message[: _MULTIPART.size]
    joined += message[_MULTIPART.size :]


def port_of_status(message: bytes | bytearray) -> int:
    """Return the port number in a port status (OpenFlow 1.3, section 7.4.3), from its bytes; `ValueError` if it is too short."""
    if len(message) < 20:
        raise ValueError("port status: too short")
    return int.from_bytes(message[16:20], "big")


def flow_mod(datapath: Any, flow: Flow, version: int) -> Any:
    """Return the message that installs a flow entry."""
    return PARSER.OFPFlowMod(
        datapath,
        cookie=cookie(flow, version),
        table_id=flow.table,
        command=OPENFLOW.OFPFC_ADD,
        priority=flow.priority,
        match=flow_match(flow),
        instructions=list(instructions.encode(flow)),
    )


def flow_delete(datapath: Any, entry: Installed) -> Any:
    """Return the message that removes exactly one flow entry."""
    return PARSER.OFPFlowMod(
        datapath,
        table_id=entry.table,
        command=OPENFLOW.OFPFC_DELETE_STRICT,
        priority=entry.priority,
        match=_match(entry.match),
        out_port=OPENFLOW.OFPP_ANY,
        out_group=OPENFLOW.OFPG_ANY,
    )


def group_mod(datapath: Any, group: Group, command: int) -> Any:
    """Return the message that installs or changes a fast-failover group."""
    return PARSER.OFPGroupMod(datapath, command, OPENFLOW.OFPGT_FF, group.id, list(_buckets(group)))


@lru_cache(maxsize=1 << 12)
def _buckets(group: Group) -> tuple[Any, ...]:
    return tuple(
        PARSER.OFPBucket(watch_port=bucket.port, actions=[PARSER.OFPActionOutput(bucket.port)]) for bucket in group.buckets
    )


@lru_cache(maxsize=1 << 12)
def flow_match(flow: Flow) -> Any:
    """Return a flow entry's match as Ryu's object."""
    return _match(flow.match)


def _match(fields: Iterable[Field]) -> Any:
    """Return a match as Ryu's object.

    A field must come after those that it requires, such as the Ethernet type (OpenFlow 1.3, section 7.2.3.6). Ryu sorts fields by
    class, Open vSwitch's first; so with one of them, what it requires has to be named by Open vSwitch's name, too.
    """
    named = dict(fields)
    if named.keys() & _NX_FIELDS:
        named = {_NX_NAMES.get(name, name): value for name, value in named.items()}
    return PARSER.OFPMatch(**named)


def installed_flow(body: Any) -> Installed:
    """Return a flow entry of a switch's flow statistics."""
    entry = Installed(body.table_id, body.priority, body.cookie, tuple(body.match.items()))
    return entry if is_learned(entry) else entry._replace(does=instructions.decode(body.instructions))


def installed_groups(bodies: Iterable[Any]) -> dict[int, tuple[int, ...]]:
    """Return the groups of a switch's group descriptions; a bucket of another kind than ours has port -1."""
    return {body.group_id: tuple(_bucket_port(bucket) for bucket in body.buckets) for body in bodies}


def _bucket_port(bucket: Any) -> int:
    outputs = [action.port for action in bucket.actions if isinstance(action, PARSER.OFPActionOutput)]
    ours = len(bucket.actions) == 1 and outputs == [bucket.watch_port]
    return outputs[0] if ours else -1


def port_trouble(port: Any) -> Reason | None:
    """Return why a port, as a switch describes it, carries no packets: `Reason.DOWN`, `Reason.SILENT`, or None if it does.

    Open vSwitch clears LIVE while BFD does not hear the other end, though the port itself is up.
    """
    if port.config & OPENFLOW.OFPPC_PORT_DOWN or port.state & OPENFLOW.OFPPS_LINK_DOWN:
        return Reason.DOWN
    return None if port.state & OPENFLOW.OFPPS_LIVE else Reason.SILENT


def port_speed(port: Any) -> float | None:
    """Return a port's speed, as a switch describes it, in bits per second, or None if it does not."""
    return 1000.0 * port.curr_speed or None


class PortStatistics(NamedTuple):
    """A message of a reply to `port_stats_request`: the counters of some of a switch's ports, by port number."""

    xid: int
    flags: int
    body: list[tuple[int, PortCounters]]


_MULTIPART = struct.Struct("!8xHH4x")
_PORT_STATISTICS = struct.Struct("!I4xQQQQQQQQ32xII")


def port_statistics(xid: int, message: bytes | bytearray) -> PortStatistics | None:
    """Return what a multipart reply says of ports (OpenFlow 1.3, section 7.3.5.6); None if it is about something else.

    Not by Ryu's parser: a large fabric's switches send tens of thousands of ports' counters each second. `ValueError` if it is
    malformed.
    """
    try:
        kind, flags = _MULTIPART.unpack_from(message)
        if kind != OPENFLOW.OFPMP_PORT_STATS:
            return None
        ports = list(_PORT_STATISTICS.iter_unpack(memoryview(message)[_MULTIPART.size :]))
    except struct.error as error:
        raise ValueError(f"port statistics: {error}") from None
    return PortStatistics(xid, flags, [(port[0], _counters(port)) for port in ports if port[0] <= OPENFLOW.OFPP_MAX])


def _counters(port: tuple[int, ...]) -> PortCounters:
    received, sent, received_bytes, sent_bytes, *losses = [None if n == _NO_COUNT else n for n in port[1:9]]
    seconds = None if port[9] == _NO_SECONDS else port[9] + port[10] / 1e9
    return PortCounters(received_bytes, sent_bytes, received, sent, losses[0], losses[1], losses[2], losses[3], seconds)


# Every bit is set where a switch does not count (OpenFlow 1.3, section 7.3.5.6).
_NO_COUNT = (1 << 64) - 1
_NO_SECONDS = (1 << 32) - 1


def port_stats_request(datapath: Any) -> Any:
    """Return the message that asks for the statistics of every port."""
    return PARSER.OFPPortStatsRequest(datapath, 0, OPENFLOW.OFPP_ANY)


def reply_kind(request: Any) -> str:
    """Return the name of the class of the replies to one of Ryu's request messages."""
    return type(request).__name__.replace("Request", "Reply")


def packet_out(datapath: Any, port: int, data: bytes) -> Any:
    """Return the message that has a switch send a frame out of a port, ``OFPP_TABLE`` for where its tables say."""
    return PARSER.OFPPacketOut(
        datapath,
        buffer_id=OPENFLOW.OFP_NO_BUFFER,
        in_port=OPENFLOW.OFPP_CONTROLLER,
        actions=[PARSER.OFPActionOutput(port)],
        data=data,
    )


def _role_request(datapath: Any, request: RoleRequest) -> Any:
    if request.generation is None:
        return PARSER.OFPRoleRequest(datapath, OPENFLOW.OFPCR_ROLE_NOCHANGE, 0)
    role = OPENFLOW.OFPCR_ROLE_SLAVE if request.slave else OPENFLOW.OFPCR_ROLE_MASTER
    return PARSER.OFPRoleRequest(datapath, role, request.generation)


_ENCODE: dict[type, Callable[[Any, Any], Any]] = {
    RoleRequest: _role_request,
    GenerationRequest: lambda datapath, _message: PARSER.OFPRoleRequest(datapath, OPENFLOW.OFPCR_ROLE_NOCHANGE, 0),
    EchoRequest: lambda datapath, _message: PARSER.OFPEchoRequest(datapath),
    FlowsRequest: lambda datapath, _message: PARSER.OFPFlowStatsRequest(datapath),
    GroupsRequest: lambda datapath, _message: PARSER.OFPGroupDescStatsRequest(datapath, 0),
    BarrierRequest: lambda datapath, _message: PARSER.OFPBarrierRequest(datapath),
    AddFlow: lambda datapath, message: flow_mod(datapath, message.flow, message.version),
    DeleteFlow: lambda datapath, message: flow_delete(datapath, message.entry),
    AddGroup: lambda datapath, message: group_mod(datapath, message.group, OPENFLOW.OFPGC_ADD),
    ModifyGroup: lambda datapath, message: group_mod(datapath, message.group, OPENFLOW.OFPGC_MODIFY),
    DeleteGroup: lambda datapath, message: PARSER.OFPGroupMod(datapath, OPENFLOW.OFPGC_DELETE, OPENFLOW.OFPGT_FF, message.group_id),
    SendProbe: lambda datapath, message: packet_out(datapath, message.port, lldp.frame(datapath.id, message.port)),
    SendFrame: lambda datapath, message: packet_out(datapath, OPENFLOW.OFPP_TABLE, message.frame),
}


ERROR_TYPES = {
    value: name[len("OFPET_") :].lower().replace("_", " ") for name, value in vars(OPENFLOW).items() if name.startswith("OFPET_")
}


ERROR_LABELS = [kind.replace(" ", "_") for kind in ERROR_TYPES.values()]


def refusal(message: Any) -> Refusal:
    """Return an OpenFlow error message as the core reads it."""
    kind = ERROR_TYPES.get(message.type)
    refused = f", refused message type {message.data[1]}" if len(message.data) >= 4 else ""
    text = f"{kind or f'type {message.type}'}, code {message.code}{refused}"
    slave = (message.type, message.code) == (OPENFLOW.OFPET_BAD_REQUEST, OPENFLOW.OFPBRC_IS_SLAVE)
    return Refusal((kind or "unknown").replace(" ", "_"), text, slave)
