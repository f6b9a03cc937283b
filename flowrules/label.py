"""The SOPA option word: four bytes, ``0x9e 0x04 up1 up2``, that name a packet's path upwards.

As an IPv4 option it is type 158 (copied bit set, class 0, number 30: IANA's experimental value, RFC 4727) with length 4
(RFC 791, section 3.1) and the paper's hop bytes (section 3.3). OpenFlow cannot match IPv4 options, so switches match the word
as the low 32 bits of ``eth_src``; the ``mac`` carrier writes it there directly, behind the locally administered ``02:53``.
"""

from __future__ import annotations

from enum import StrEnum

OPTION_TYPE = 0x9E
OPTION_LENGTH = 0x04
UNUSED = 0xFF
CARRIER_PREFIX = "02:53"


class Carrier(StrEnum):
    """Where a sending host writes the word."""

    MAC = "mac"
    """Into the Ethernet source address, where switches match it."""
    OPTION = "option"
    """Into the IPv4 header, as the paper does; an edge switch's port copies it to the Ethernet source address."""

    @property
    def overhead(self) -> int:
        """Bytes by which a labelled packet is larger than an unlabelled one."""
        return OPTION_LENGTH if self is Carrier.OPTION else 0


_HEAD = f"{CARRIER_PREFIX}:{OPTION_TYPE:02x}:{OPTION_LENGTH:02x}"

LABELLED = (f"{_HEAD}:00:00", "ff:ff:ff:ff:00:00")
"""Value and mask of ``eth_src`` for any packet that carries a word, whatever its hops."""


def hop_bytes(up: tuple[int, ...]) -> tuple[int, int]:
    """The two hop bytes of a path; a hop that it does not take is 0xff.

    Raises
    ------
    ValueError
        For more than two hops, or an uplink index outside 0..254.
    """
    if len(up) > 2 or not all(0 <= index < UNUSED for index in up):
        raise ValueError(f"a path has at most two uplink indices from 0 to 254, not {up}")
    up1, up2 = (*up, UNUSED, UNUSED)[:2]
    return up1, up2


def option(up: tuple[int, ...]) -> str:
    """The whole word in hexadecimal, such as ``9e040001`` for uplinks 0 and 1."""
    up1, up2 = hop_bytes(up)
    return f"{OPTION_TYPE:02x}{OPTION_LENGTH:02x}{up1:02x}{up2:02x}"


def carrier_mac(up: tuple[int, ...]) -> str:
    """The Ethernet source address in which the ``mac`` carrier sends the word."""
    up1, up2 = hop_bytes(up)
    return f"{_HEAD}:{up1:02x}:{up2:02x}"


def match_hop(hop: int, index: int) -> tuple[str, str]:
    """Value and mask of ``eth_src`` for a word whose hop byte ``hop`` (0 for up1, 1 for up2) is ``index``."""
    value, mask = ["00", "00"], ["00", "00"]
    value[hop], mask[hop] = f"{index:02x}", "ff"
    return f"{_HEAD}:{':'.join(value)}", f"ff:ff:ff:ff:{':'.join(mask)}"


def parse_mac(mac: str) -> tuple[int, int] | None:
    """The hop bytes in an Ethernet source address, or None if it carries no word."""
    octets = mac.lower().split(":")
    if ":".join(octets[:4]) != _HEAD or len(octets) != 6:
        return None
    return int(octets[4], 16), int(octets[5], 16)
