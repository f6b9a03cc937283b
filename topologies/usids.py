"""The uSIDs of a fabric's switches (SRv6, RFC 9800): 16 bits each, inside a block of 32. Pure."""

from __future__ import annotations

from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any

from topologies.identity import Identities, Level, Shape, Switch, TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = IPv6Network("fcbb:bb00::/32")
"""The usual block: unique local addresses."""
BLOCK_BITS, USID_BITS = 32, 16
GROUP = 64
"""Switches of a pod and level, or core switches of a group, that have a uSID."""
_KIND = {Level.EDGE: (0x1000, 6), Level.AGGREGATION: (0x4000, 6), Level.CORE: (0x8000, 8)}


def usid(switch: Switch) -> int:
    """Return the uSID of a switch, which `problems` says is its own.

    >>> [f"{usid(switch):x}" for switch in (Switch(Level.EDGE, 1, 0), Switch(Level.AGGREGATION, 1, 1), Switch(Level.CORE, 1, 2))]
    ['1040', '4041', '8102']
    """
    base, shift = _KIND[switch.level]
    return base | switch.pod << shift | switch.index


def edge_sids(block: IPv6Network, pod: int | None = None) -> IPv6Network:
    """Return the prefix of all edge switches' SIDs, or of those of one pod.

    >>> str(edge_sids(BLOCK)), str(edge_sids(BLOCK, 2))
    ('fcbb:bb00:1000::/36', 'fcbb:bb00:1080::/42')
    """
    base, shift = _KIND[Level.EDGE]
    first = base | (pod or 0) << shift
    length = BLOCK_BITS + USID_BITS - (shift if pod is not None else shift + (GROUP - 1).bit_length())
    return IPv6Network((int(block[0]) | first << 128 - BLOCK_BITS - USID_BITS, length))


def switch_of(value: int) -> Switch:
    """Return the switch whose uSID this is, in a fabric that may not have it; `ValueError` if it is none of a switch.

    >>> switch_of(0x8102) == Switch(Level.CORE, 1, 2), usid(switch_of(0x1FFF)) == 0x1FFF
    (True, True)
    """
    for level, (base, shift) in _KIND.items():
        group, index = divmod(value - base, 1 << shift)
        if 0 <= group < GROUP and index < GROUP:
            return Switch(level, group, index)
    raise ValueError(f"{value:#x} is no switch's uSID")


def block_of(described: Any) -> IPv6Network:
    """Return the block of a fabric's ``srv6``; `TopologyError` if it has none."""
    if not isinstance(described, dict) or described.keys() != {"block"}:
        raise TopologyError(f"srv6 must be an object with block, not {described!r:.60}")
    try:
        block = IPv6Network(described["block"])
    except ValueError as error:
        raise TopologyError(f"srv6 {described['block']!r:.60} is no block: {error}") from None
    if block.prefixlen != BLOCK_BITS or block.is_multicast or block.overlaps(IPv6Network("fe80::/10")) or not int(block[0]):
        raise TopologyError(f"srv6 {block} is no block: a /{BLOCK_BITS} of unicast addresses, as {BLOCK}")
    return block


def problems(shape: Shape, block: IPv6Network, prefix6: IPv6Network | None) -> Iterator[str]:
    """Yield why the switches of a fabric cannot all have a uSID in a block: each names the two that do not go together."""
    identities = Identities(shape)
    for level in Level:
        if identities.group_size(level) > GROUP:
            first, last, beyond = (identities.name(Switch(level, 0, index)) for index in (0, GROUP - 1, GROUP))
            yield f"{beyond} has no uSID: a group has {GROUP} at most, {first} to {last}"
        taken: dict[int, Switch] = {}
        for pod in range(identities.groups(level) if identities.group_size(level) else 0):
            first_of = Switch(level, pod, 0)
            other = taken.setdefault(usid(first_of), first_of)
            if other != first_of:
                yield f"{identities.name(first_of)} and {identities.name(other)} have the same uSID {usid(first_of):#x}"
                break
    if prefix6 is not None and prefix6.overlaps(block):
        yield f"the block {block} has the hosts' prefix6 {prefix6} in it"


def require(shape: Shape, block: IPv6Network, prefix6: IPv6Network | None) -> None:
    """Raise `TopologyError` with the first of the `problems`."""
    problem = next(problems(shape, block, prefix6), None)
    if problem:
        raise TopologyError(f"srv6: {problem}")
