"""The label: four bytes, ``0x9e 0x04 up1 up2``, that name a packet's path upwards.

As an IPv4 option it is type 158 (copied bit set, class 0, number 30: IANA's experimental value, RFC 4727) with length 4
(RFC 791, section 3.1) and the paper's hop bytes (section 3.3). OpenFlow cannot match IPv4 options, so switches match the label
as the low 32 bits of ``eth_src``; the ``mac`` carrier writes it there directly, behind the locally administered ``02:53``.
"""

from __future__ import annotations

from enum import StrEnum

OPTION_TYPE = 0x9E
OPTION_LENGTH = 0x04
UNUSED = 0xFF
CARRIER_PREFIX = "02:53"


class Carrier(StrEnum):
    """The place in a packet where the sending host writes the label."""

    MAC = "mac"
    """The Ethernet source address, where switches match it."""
    OPTION = "option"
    """The IPv4 header, as in the paper; an XDP program at the edge switch's port copies it to the Ethernet source address."""
    ID = "id"
    """The Ethernet source address, once for a burst of TCP; an XDP program at the edge switch's port gives each of its packets the
    candidate path of its IPv4 identification."""
    SRV6 = "srv6"
    """No label: an outer IPv6 header whose destination lists the path's switches (`topologies.srv6`), for routers."""

    @property
    def overhead(self) -> int:
        """Bytes by which a labelled packet is larger than an unlabelled one."""
        return {Carrier.OPTION: OPTION_LENGTH, Carrier.SRV6: 40}.get(self, 0)  # RFC 8200: an IPv6 header


_HEAD = f"{CARRIER_PREFIX}:{OPTION_TYPE:02x}:{OPTION_LENGTH:02x}"

LABELLED = (f"{_HEAD}:00:00", "ff:ff:ff:ff:00:00")
"""Value and mask of ``eth_src`` that match any labelled packet."""


def hop_bytes(up: tuple[int, ...]) -> tuple[int, int]:
    """Return the two hop bytes of a path by its uplink indices: none, one or two; `UNUSED` for a hop that it does not take.

    Raises `ValueError` for more than two hops, or an uplink index outside 0..254.
    """
    if len(up) > 2 or not all(0 <= index < UNUSED for index in up):
        raise ValueError(f"a path has at most two uplink indices from 0 to 254, not {up}")
    up1, up2 = (*up, UNUSED, UNUSED)[:2]
    return up1, up2


def option(up: tuple[int, ...]) -> str:
    """Return the label in hexadecimal, as the REST interface shows it; parameters and errors as of `hop_bytes`.

    >>> option((0, 1)), option((1,))
    ('9e040001', '9e0401ff')
    """
    up1, up2 = hop_bytes(up)
    return f"{OPTION_TYPE:02x}{OPTION_LENGTH:02x}{up1:02x}{up2:02x}"


def carrier_mac(up: tuple[int, ...]) -> str:
    """Return the Ethernet source address that carries the label; parameters and errors as of `hop_bytes`.

    >>> carrier_mac((0, 1))
    '02:53:9e:04:00:01'
    """
    up1, up2 = hop_bytes(up)
    return f"{_HEAD}:{up1:02x}:{up2:02x}"


def match_hop(hop: int, index: int) -> tuple[str, str]:
    """Return value and mask of ``eth_src`` that match labels whose hop byte ``hop`` (0 for up1, 1 for up2) is ``index``."""
    value, mask = ["00", "00"], ["00", "00"]
    value[hop], mask[hop] = f"{index:02x}", "ff"
    return f"{_HEAD}:{':'.join(value)}", f"ff:ff:ff:ff:{':'.join(mask)}"


def parse_mac(mac: str) -> tuple[int, int] | None:
    """Return the hop bytes in an Ethernet source address, or None if it carries no label.

    >>> parse_mac("02:53:9e:04:01:ff"), parse_mac("02:00:0a:00:00:02")
    ((1, 255), None)
    """
    octets = mac.lower().split(":")
    if ":".join(octets[:4]) != _HEAD or len(octets) != 6:
        return None
    return int(octets[4], 16), int(octets[5], 16)
