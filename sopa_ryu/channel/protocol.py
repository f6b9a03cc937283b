"""The rules of the push channel: what a message brings into force, and which messages contradict what is known. Pure.

The controller sends a ``snapshot`` first and then ``delta``s, each of one version or of several. The agent answers each message
with an ``ack``. Every message carries the controller's epoch and the fabric's version. A delta names the version that it changes
(``base``); an agent that has another one in force has found a gap and asks for a snapshot (``resync``). A ``ping`` asks for an
``ack``. Agents that run MCS are also sent which hosts do (`mcs`), and those that probe paths which.

A snapshot of a cluster names it, and its epoch is the leader's term. An agent that has a view of that cluster refuses a lower term,
and keeps its view where a snapshot of the same term is older: a relay may be behind another.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address

from msgspec import UNSET, UnsetType

from sopa_ryu.channel import messages
from sopa_ryu.channel.mcs import HostList
from sopa_ryu.channel.messages import Ack, Delta, GapError, HostChange, LowerTermError, ProtocolError, Snapshot, encode
from sopa_ryu.fabric.view import View, changes
from topologies import Clos, Failures, FatTree, TopologyError

PROBES = "probes"
"""The parameter of the channel's query with which an agent says that it probes and answers probes."""
# A snapshot of a k=48 fabric of which every link has failed has some 3 MB.
MAX_MESSAGE_BYTES = 32 << 20
# The longest message of an agent is a report of `messages.MAX_STREAMS` streams, of 8,192 bytes in base64.
MAX_ANSWER_BYTES = 16_384
LEADER_HEADER = "SOPA-Leader"
"""Header of the answer (409) with which a member of a cluster that stands by rejects a channel: the leader's URL, or empty."""
LOWER_TERM = 4001
"""The close code with which a channel is left that has a lower term than the view in force (RFC 6455, section 7.4.2)."""
FIRST = "first"
"""The field of a channel's query in which an agent names the URL that comes first for its host, if it asks another one."""
SPRAY, MAX_SPRAY = "spray", 120
"""The field in which an agent names the flows that it sprays, and the characters of it that are kept."""
SURPLUS = 4002
"""The close code with which a relay sends an agent to the URL that comes first for it, as shares are uneven."""

# -- the controller's side ----------------------------------------------------------------------------------------------

PING = encode(messages.Ping())


def snapshot(view: View, address: IPv4Address | None, hosts: HostList | None = None, term: int | None = None) -> str:
    """Return the message that brings the agent of one host, or the arbiter, to a version from any other or from none.

    Args:
        address: The host's; None for the arbiter.
        hosts: The hosts that run the same MCS.
        term: The arbiter's.
    """
    tree = view.failures.tree
    document = tree.document()
    prefix6 = document.pop("prefix6", None)
    return encode(
        Snapshot(
            epoch=view.epoch,
            version=view.version,
            cluster=view.cluster,
            host=None if address is None else str(address),
            term=term,
            k=tree.k if tree.is_plain else None,
            fabric=None if tree.is_plain else document,
            prefix6=prefix6,
            failures=dict(view.failures),
            mcs=UNSET if hosts is None else _in_order(hosts.hosts),
            mcs_number=UNSET if hosts is None else hosts.number,
            mcs_known=UNSET if hosts is None else hosts.known,
            mcs_complete=UNSET if hosts is None else hosts.complete,
        )
    )


def delta(before: View, after: View) -> str:
    """Return the message that brings every agent from one version to a later one of the same epoch."""
    failed, healed = changes(before.failures, after.failures)
    return encode(Delta(after.epoch, before.version, after.version, failed, tuple(healed)))


def host_change(before: HostList, after: HostList) -> str:
    """Return the message that leads from one list of the hosts that run MCS to a later one."""
    added, removed = (_in_order(hosts) for hosts in (after.hosts - before.hosts, before.hosts - after.hosts))
    return encode(HostChange(after.number, added, removed, after.known, after.complete))


def answer(text: str | bytes, now: View) -> messages.FromAgent:
    """Read an agent's message.

    Args:
        now: What the controller knows now.

    Raises:
        ProtocolError: If it is malformed, or acknowledges a version that does not exist yet: in a cluster it does, if this relay is
            behind.
    """
    message = messages.from_agent(text)
    if isinstance(message, Ack) and message.epoch == now.epoch and message.version > now.version and not now.cluster:
        raise ProtocolError(f"it acknowledges version {message.version}, but the fabric is at {now.version}")
    return message


def _in_order(hosts: frozenset[IPv4Address]) -> tuple[IPv4Address, ...]:
    return tuple(sorted(hosts, key=int))


FORGET_SECONDS = 300.0
"""A term that nothing but lower ones have followed for so long is forgotten."""

# -- the agent's side ---------------------------------------------------------------------------------------------------

RESYNC = encode(messages.Resync())


def ack(
    view: View | None,
    refused: int,
    hosts: int | None = None,
    report: messages.ArbiterReport | UnsetType = UNSET,
    links: int | UnsetType = UNSET,
) -> str:
    """Return the acknowledgement of the version that an agent has in force, or of none, and of the list of that number.

    Args:
        report, links: The arbiter's (`Ack`).
    """
    epoch, version = (view.epoch, view.version) if view else (0, 0)
    return encode(Ack(epoch, version, refused, UNSET if hosts is None else hosts, report, links))


def follow(message: messages.FromController, view: View | None, address: IPv4Address | None) -> View | None:
    """Return what a message of the controller puts in force, or ``view`` itself if it changes nothing.

    Args:
        view: What the agent has in force; None before its first snapshot.
        address: The agent's own host; None for the arbiter.

    Raises:
        GapError: If it is a delta of another version or epoch than the agent's.
        LowerTermError: If it is a snapshot of the cluster of the agent's view, with a lower epoch.
        ProtocolError: If it contradicts itself or the view, or is meant for another host.

    >>> from sopa_ryu.channel.messages import from_controller
    >>> tree, address = FatTree(4), IPv4Address("10.0.0.2")
    >>> healthy, failed = View(1, 1, Failures(tree)), View(1, 2, Failures(tree, {"a0_0-c0_1": "down"}))
    >>> view = follow(from_controller(snapshot(healthy, address)), None, address)
    >>> view = follow(from_controller(delta(healthy, failed)), view, address)
    >>> view.version, dict(view.failures)
    (2, {'a0_0-c0_1': 'down'})
    """
    try:
        if isinstance(message, Snapshot):
            return _take_snapshot(message, view, address)
        return _take_delta(message, view) if isinstance(message, Delta) else view
    except TopologyError as error:
        raise ProtocolError(str(error)) from error


class LowerTerms:
    """Decides when the term in force is forgotten: if its sender never returns, no other sender would ever be accepted.

    Args:
        now: Return the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None

    def ended(self) -> None:
        """Note a view that was taken."""
        self._since = None

    def last(self) -> bool:
        """Note a snapshot of a lower term; tell whether there was nothing else for `FORGET_SECONDS`."""
        now = self._now()
        self._since = now if self._since is None else self._since
        return now - self._since >= FORGET_SECONDS


def _take_snapshot(message: Snapshot, view: View | None, address: IPv4Address | None) -> View:
    if message.host != (None if address is None else str(address)):
        raise ProtocolError(f"it is for host {message.host!r:.60}, not for {address or 'an arbiter'}")
    if view is not None and message.cluster and message.cluster == view.cluster:
        if message.epoch < view.epoch:
            raise LowerTermError(
                f"it is of term {message.epoch} of cluster {message.cluster!r:.60}, but a view of term {view.epoch} is in force"
            )
        if message.epoch == view.epoch and message.version < view.version:
            return view
    elif view is not None and message.epoch == view.epoch and message.version < view.version:
        raise ProtocolError(f"it is of version {message.version}, older than {view.version}, which is in force")
    tree = _fabric(message)
    if address is not None:
        tree.host_by_ip(address)
    return View(message.epoch, message.version, Failures(tree, message.failures), message.cluster)


def _fabric(message: Snapshot) -> Clos:
    if message.fabric is not None:
        return Clos.from_document(message.fabric if message.prefix6 is None else {**message.fabric, "prefix6": message.prefix6})
    if not isinstance(message.k, int):
        raise ProtocolError("it has neither k nor fabric")
    return FatTree(message.k, message.prefix6)


def _take_delta(message: Delta, view: View | None) -> View:
    if view is None or (message.epoch, message.base) != (view.epoch, view.version):
        ours = f"version {view.version} of epoch {view.epoch}" if view else "nothing"
        raise GapError(f"it changes version {message.base} of epoch {message.epoch}, but {ours} is in force")
    if message.version <= message.base:
        raise ProtocolError(f"it leads from version {message.base} back to {message.version}")
    healed = frozenset(message.healed)
    unknown = [name for name in message.healed if name not in view.failures or name in message.failed]
    if unknown:
        raise ProtocolError(f"it heals what has not failed: {unknown[0]!r:.60}")
    left = {name: reason for name, reason in view.failures.items() if name not in healed}
    return View(message.epoch, message.version, Failures(view.failures.tree, left | message.failed), view.cluster)
