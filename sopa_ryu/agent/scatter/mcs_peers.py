"""The hosts that run MCS as one agent knows them, and what its programs may do with each. Pure."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address

from sopa_ryu.channel.mcs import ChannelKind
from sopa_ryu.channel.messages import HostChange

LEASE_SECONDS = 60.0
"""With the kind ``ports`` an agent scatters for so long after it has lost its controller: a host that leaves meanwhile would not
translate the ports back, and the agent could not hear of it."""


class Use(IntEnum):
    """The relation to a host, as the programs read it in ``mcs_hosts``."""

    SCATTERS = 1
    """Packets to it are scattered, and those that it scatters are accepted."""
    ACCEPTS = 2
    """Packets that it scatters are accepted: it has run MCS, and may not have heard of a change yet, or this host may not."""


class McsPeers:
    """The state of one agent.

    Args:
        address: The agent's host.

    Attributes:
        number: The number of the controller's list that is in force; 0 before the first.
    """

    def __init__(self, address: IPv4Address, kind: ChannelKind) -> None:
        self.address, self.kind = address, kind
        self.number = 0
        self._listed: frozenset[IPv4Address] = frozenset()
        self._kept: frozenset[IPv4Address] = frozenset()
        self._ever: frozenset[IPv4Address] = frozenset()
        self._scattered_to: frozenset[IPv4Address] = frozenset()
        self._since: int | None = None

    @property
    def listed(self) -> frozenset[IPv4Address]:
        """The hosts that run MCS now, as far as is known, without the agent's own."""
        return (self._listed | self._kept) - {self.address}

    def connected(self) -> None:
        """Note a new channel: numbers of the one before mean nothing there."""
        self._since = None

    def follow(self, change: HostChange, *, whole: bool = False) -> None:
        """Follow what the controller says, of a list that is ``whole`` or of what has changed."""
        if whole:
            self._kept |= self._listed
            self._listed = frozenset(change.added)
        else:
            self._listed = self._listed.union(change.added).difference(change.removed)
            self._kept = self._kept.difference(change.removed)
        if change.complete:
            self._kept = frozenset()
        self._ever |= self._listed
        self.number = change.number
        if self.address not in self._listed:
            self._since = None
        elif self._since is None:
            self._since = change.number
        if self.kind is ChannelKind.PATHS or (self._since is not None and self._since <= change.known):
            self._scattered_to = self.listed
        else:
            self._scattered_to &= self.listed  # they know already

    def forget_permission(self) -> bool:
        """Stop scattering, with the kind ``ports``, until a controller has spoken; return True if that is a change."""
        changes = self.kind is ChannelKind.PORTS and bool(self._scattered_to)
        if changes:
            self._scattered_to = frozenset()
        return changes

    def uses(self) -> dict[IPv4Address, Use]:
        """Return what the programs may do with each host."""
        return {host: Use.SCATTERS if host in self._scattered_to else Use.ACCEPTS for host in self._ever - {self.address}}
