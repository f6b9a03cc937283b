"""The check of datagrams: demands have the token of the host that they name; what is rejected is counted by reason. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address

from sopa_ryu.arbiter.schedule import RejectedError
from sopa_ryu.channel import slots
from sopa_ryu.channel.host_tokens import host_token
from sopa_ryu.channel.slots import DatagramError, Demand, TokenError

LOG = logging.getLogger("sopa.arbiter")

REASONS = ("early", "malformed", "token", "foreign", "replay", "destination", "term", "clock")
LOG_NS = 10_000_000_000
"""A rejection is logged at most once in this time, of each reason."""


class DemandDoor:
    """The check of every datagram that arrives.

    Args:
        secret: The fabric's, from which the hosts' tokens are derived; None if nothing is authenticated.
        knows: Whether an address is that of a host of the fabric.

    Attributes:
        rejected: Datagrams rejected, by reason.
        strayed: Demands of hosts whose clock is off by more than a batch ahead, or a lease behind. They are followed
            nevertheless.
    """

    def __init__(self, secret: str | None, knows: Callable[[IPv4Address], bool]) -> None:
        self.rejected: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.strayed = 0
        self._secret = secret
        self._knows = knows
        self._tokens: dict[IPv4Address, str] = {}
        self._logged: dict[str, int] = {}
        self._unlogged: Counter[str] = Counter()

    def read(self, datagram: bytes, sender: str) -> Demand:
        """Return the demand in a datagram.

        Args:
            sender: The address that it came from.

        Raises:
            RejectedError: If it is none, of no host of the fabric, from another host, or without the host's token.
        """
        try:
            host = slots.host_of(datagram)
        except DatagramError as error:
            raise RejectedError("malformed", str(error)) from error
        if not self._knows(host):
            raise RejectedError("foreign", f"{host} is no host of the fabric")
        if self._is_other_host(sender, host):
            raise RejectedError("foreign", f"it names {host}, but {sender} is another host of the fabric")
        try:
            return slots.read_demand(datagram, self.token(host))
        except DatagramError as error:
            reason = "token" if isinstance(error, TokenError) else "malformed"
            raise RejectedError(reason, str(error)) from error

    def _is_other_host(self, sender: str, host: IPv4Address) -> bool:
        try:
            address = IPv4Address(sender)
        except AddressValueError:
            return False  # by IPv6, over a management network
        return address != host and self._knows(address)

    def token(self, host: IPv4Address) -> str:
        """Return the token of a host; empty if nothing is authenticated."""
        if self._secret is None:
            return ""
        token = self._tokens.get(host)
        if token is None:
            token = self._tokens[host] = host_token(self._secret, host)
        return token

    def reject(self, error: RejectedError, sender: str, now: int) -> None:
        """Count a rejected datagram, and log it unless one of its reason was logged a short time ago."""
        self.rejected[error.reason] += 1
        if self._is_silent(error.reason, now):
            return
        LOG.warning(
            "datagram from %s rejected: %s (%s, %d more of this reason since the last line)%s",
            sender,
            error,
            error.reason,
            self._unlogged.pop(error.reason, 0),
            _ADVICE.get(error.reason, ""),
        )

    def note_clock(self, host: IPv4Address, off_ms: int, now: int) -> None:
        """Count a demand of a host whose clock is off, and log it unless one was logged a short time ago."""
        self.strayed += 1
        if not self._is_silent("clock", now):
            LOG.warning(
                "clock of %s is off by %d ms (%d more such demands since the last line). It may send in slots of others until its "
                "agent has corrected the clock. If this goes on, the agent has too little processor time",
                host,
                off_ms,
                self._unlogged.pop("clock", 0),
            )

    def _is_silent(self, reason: str, now: int) -> bool:
        """Return whether something was logged for this reason a short time ago; what is not logged is counted."""
        last = self._logged.get(reason)
        if last is not None and 0 <= now - last < LOG_NS:
            self._unlogged[reason] += 1
            return True
        self._logged[reason] = now
        return False


_ADVICE = {
    "token": ". Give the agent there its host's token (sopa token), and the arbiter the same fabric's secret (--secret-file)",
    "foreign": "; look what sends from there",
    "malformed": ". Look what sends from there, and check the agent's version",
    "term": ". End one of the two arbiters",
    "clock": ". Set the clock that is wrong, and restart the agent if it is the host's",
}
