"""The MTUs that make room for what a carrier adds to packets: those of an interface and of all that send through it."""

from __future__ import annotations

from typing import NamedTuple

from sopa_ryu.agent.host.saved_settings import SettingsError, State
from sopa_ryu.agent.kernel import link_attributes, segmentation

MIN_MTU = 68  # RFC 791, section 3.2

Mtus = dict[int, tuple[int, int]]
"""By interface index, the saved MTU and the MTU that an agent has written."""


class MtuPlan(NamedTuple):
    """What is to be done about MTUs: those to set now by interface index, what is to be put back, and the interface's own MTU."""

    wanted: dict[int, int]
    saved: Mtus
    fabric_mtu: int


def plan(ifindex: int, ifname: str, overhead: int, left: Mtus) -> MtuPlan:
    """Plan the MTUs of an interface and of those on top of it.

    Args:
        overhead: Bytes that a packet grows by.
        left: What an agent has set already.

    Raises:
        SettingsError: If too few bytes are left for IPv4.
    """
    now = link_attributes.mtus(ifindex)
    now.pop(segmentation.index_of(ifindex), None)  # through it only packets go that the interface's MTU has limited
    if not overhead:  # of no concern, but for what a killed agent with the other carrier has left
        now = {index: mtu for index, mtu in now.items() if index in (ifindex, *left)}
    own = {index: left[index][0] if index in left and left[index][1] == mtu else mtu for index, mtu in now.items()}
    limit = own[ifindex] - overhead
    if limit < MIN_MTU:
        raise SettingsError(f"{ifname} has an MTU of {own[ifindex]} bytes: {overhead} less are too few for IPv4")
    wanted = {index: min(original, limit) for index, original in own.items()}
    saved = {index: (original, wanted[index]) for index, original in own.items() if wanted[index] < original}
    return MtuPlan({index: mtu for index, mtu in wanted.items() if mtu != now[index]}, saved, own[ifindex])


def restore(ifindex: int, mine: State) -> None:
    """Put back the MTUs that nobody has changed since."""
    now = link_attributes.mtus(ifindex)
    for index, (original, written) in left_by(mine).items():
        if now.get(index) == written:
            link_attributes.write_mtu(index, original)


def left_by(mine: State) -> Mtus:
    """Return the MTUs that an interface's saved state has."""
    return {int(index): (original, written) for index, (original, written) in mine.get("mtus", {}).items()}
