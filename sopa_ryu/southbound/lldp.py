"""LLDP frames (IEEE 802.1AB): the probes of link discovery, and the names of other neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.runtime.foreign_text import printable
from sopa_ryu.runtime.library import ETH_TYPE_LLDP, lldp
from topologies.structure import GATEWAY_MAC

SECONDS_VALID = 120
# Shown by neighbours that support LLDP. It also distinguishes the probes from those of other controllers, some of which encode a
# datapath id in the same way.
MARK = b"SOPA wiring probe"

_ETHERNET_SIZE = 14
_CHASSIS = re.compile(rb"\x07dpid:([0-9a-f]{16})")
_PORT = re.compile(rb"\x07([1-9][0-9]{0,9})")
_UNPRINTABLE = re.compile(rb"[^ -~]")
_MANDATORY = (lldp.LLDP_TLV_CHASSIS_ID, lldp.LLDP_TLV_PORT_ID, lldp.LLDP_TLV_TTL)
_FIELDS = ("chassis id", "port id", "time to live")
# three of these with their separators have fewer than 80 characters
_CLIP = 23


def frame(dpid: int, port: int) -> bytes:
    """Return the probe that a switch sends out of one of its ports, as a whole Ethernet frame."""
    return _BEFORE + _tlv(lldp.LLDP_TLV_CHASSIS_ID, _LOCAL + b"dpid:%016x" % dpid) + _port_tlv(port) + _AFTER


@lru_cache
def _port_tlv(port: int) -> bytes:
    return _tlv(lldp.LLDP_TLV_PORT_ID, _LOCAL + b"%d" % port)


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << lldp.LLDP_TLV_TYPE_SHIFT | len(value)).to_bytes(lldp.LLDP_TLV_SIZE) + value


_LOCAL = bytes([lldp.ChassisID.SUB_LOCALLY_ASSIGNED])  # the same for chassis and port
_BEFORE = bytes.fromhex((lldp.LLDP_MAC_NEAREST_BRIDGE + GATEWAY_MAC).replace(":", "")) + ETH_TYPE_LLDP.to_bytes(2)
_AFTER = (
    _tlv(lldp.LLDP_TLV_TTL, SECONDS_VALID.to_bytes(2)) + _tlv(lldp.LLDP_TLV_SYSTEM_DESCRIPTION, MARK) + _tlv(lldp.LLDP_TLV_END, b"")
)


def parse(data: bytes) -> Heard:
    """Parse an LLDP frame of any sender; `ValueError` if ``data`` is not an LLDP frame, or is malformed.

    The text of one that is no probe is its system name, chassis id and port id, in at most 80 printable ASCII characters.
    """
    if len(data) < _ETHERNET_SIZE:
        raise ValueError(f"not an Ethernet frame: {len(data)} bytes")
    ethertype = int.from_bytes(data[12:_ETHERNET_SIZE], "big")
    if ethertype != ETH_TYPE_LLDP:
        raise ValueError(f"not an LLDP frame: ethertype {ethertype:#06x}")
    tlvs = list(_tlvs(data))
    for (kind, value), wanted, field in zip(tlvs, _MANDATORY, _FIELDS, strict=False):
        if kind != wanted:
            raise ValueError(f"malformed LLDP frame: TLV type {kind} instead of the {field}")
        if len(value) < 2:
            raise ValueError(f"malformed LLDP frame: {field} of {len(value)} bytes")
    if len(tlvs) < len(_MANDATORY):
        raise ValueError(f"malformed LLDP frame: the {_FIELDS[len(tlvs)]} is missing")
    chassis_id, port_id = tlvs[0][1], tlvs[1][1]
    if (lldp.LLDP_TLV_SYSTEM_DESCRIPTION, MARK) in tlvs:
        chassis, port = _CHASSIS.fullmatch(chassis_id), _PORT.fullmatch(port_id)
        if chassis and port:
            return Heard(int(chassis[1], 16), int(port[1]), "")
    where = (
        f"{_identifier(chassis_id, lldp.ChassisID.SUB_MAC_ADDRESS, lldp.ChassisID.SUB_NETWORK_ADDRESS)} "
        f"port {_identifier(port_id, lldp.PortID.SUB_MAC_ADDRESS, lldp.PortID.SUB_NETWORK_ADDRESS)}"
    )
    name = next((value.strip(b" \0") for kind, value in tlvs if kind == lldp.LLDP_TLV_SYSTEM_NAME), b"")
    if name:
        where = f"{printable(name.decode('latin-1'), _CLIP)}, {where}"
    return Heard(None, None, where)


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    # Ryu's parser rejects the whole frame for one TLV that it does not know, and vendors' frames contain such TLVs.
    offset = _ETHERNET_SIZE
    while offset < len(data):
        head = int.from_bytes(data[offset : offset + lldp.LLDP_TLV_SIZE], "big")
        kind, start = head >> lldp.LLDP_TLV_TYPE_SHIFT, offset + lldp.LLDP_TLV_SIZE
        offset = start + (head & lldp.LLDP_TLV_LENGTH_MASK)
        if start > len(data) or offset > len(data):
            raise ValueError(f"malformed LLDP frame: truncated at {len(data)} bytes")
        if kind == lldp.LLDP_TLV_END:
            return
        yield kind, data[start:offset]


def _identifier(value: bytes, mac_subtype: int, network_subtype: int) -> str:
    subtype, content = value[0], value[1:]
    if subtype == mac_subtype and len(content) == 6:
        return content.hex(":")
    if subtype == network_subtype:
        # the first byte is IANA's address family number
        if content[0] == 1 and len(content) == 5:
            return str(IPv4Address(content[1:]))
        if content[0] == 2 and len(content) == 17:
            return printable(str(IPv6Address(content[1:])), _CLIP)
    return _text(content)


def _text(value: bytes) -> str:
    stripped = value.strip(b" \0")
    return printable(value.hex() if not stripped or _UNPRINTABLE.search(stripped) else stripped.decode("ascii"), _CLIP)
