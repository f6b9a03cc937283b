"""The messages of the push channel: how controller and agents write, check and reject them. Pure.

The controller sends a ``snapshot`` first and then ``delta``s, each of one version or of several. The agent answers each message
with an ``ack``. Every message carries the controller's epoch and the fabric's version. A delta names the version that it changes
(``base``); an agent that has another one in force has found a gap and asks for a snapshot (``resync``). A ``ping`` asks for an
``ack``. Agents that run MCS are also sent which hosts do (`mcs`), and those that probe paths which (`probes`).

A snapshot of a cluster names it, and its epoch is the leader's term. An agent that has a view of that cluster refuses a lower term,
and keeps its view where a snapshot of the same term is older: a relay may be behind another.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from sopa_ryu.channel import mcs, probes, traces
from sopa_ryu.channel.mcs import HostChange, HostList
from sopa_ryu.channel.probes import Assignment
from sopa_ryu.fabric.view import View, changes
from topologies import Clos, Failures, FatTree, TopologyError

# A snapshot of a k=48 fabric of which every link has failed has some 3 MB.
MAX_MESSAGE_BYTES = 32 << 20
# The longest message of an agent is a report of `probes.MAX_STREAMS` streams, of 8,192 bytes in base64.
MAX_ANSWER_BYTES = 16_384
LEADER_HEADER = "SOPA-Leader"
"""Header of the answer (409) with which a member of a cluster that stands by rejects a channel: the leader's URL, or empty."""
LOWER_TERM = 4001
"""The close code with which a channel is left that has a lower term than the view in force (RFC 6455, section 7.4.2)."""
FIRST = "first"
"""The field of a channel's query in which an agent names the URL that comes first for its host, if it asks another one."""
SURPLUS = 4002
"""The close code with which a relay sends an agent to the URL that comes first for it, as shares are uneven."""
_MAX_NUMBER = 1 << 63
_KIND = 40  # characters within which a message says its type
_SHOWN = 60  # characters of a rejected value


class ProtocolError(ValueError):
    """A message that is rejected; the text says why, and nothing has changed."""


class GapError(ProtocolError):
    """A delta of another version than the agent has in force: a snapshot is needed."""


class LowerTermError(ProtocolError):
    """A snapshot of a leader's term before the one whose view is in force: the channel has to be left for another."""


class Ack(NamedTuple):
    """An agent's acknowledgement: the version it has in force, and how many messages it has rejected since it started.

    ``mcs`` is the number of the list of hosts that run MCS that it has in force, 0 if it runs none.
    """

    epoch: int
    version: int
    refused: int
    mcs: int = 0


class Reported(NamedTuple):
    """An agent's report of probes: the number of its list, records as bytes, and packets that its host dropped."""

    number: int
    records: bytes
    dropped: int


# -- the controller's side ----------------------------------------------------------------------------------------------


def snapshot(view: View, address: IPv4Address | None, hosts: HostList | None = None, term: int | None = None) -> str:
    """Return the message that brings the agent of one host, or the arbiter, to a version from any other or from none.

    Args:
        address: The host's; None for the arbiter.
        hosts: The hosts that run the same MCS.
        term: The arbiter's.
    """
    return json.dumps(
        {
            "type": "snapshot",
            "epoch": view.epoch,
            "version": view.version,
            **({"cluster": view.cluster} if view.cluster else {}),
            **({} if address is None else {"host": str(address)}),
            **({} if term is None else {"term": term}),
            **_described(view.failures.tree),
            "failures": dict(view.failures),
            **(mcs.fields(hosts) if hosts is not None else {}),
        }
    )


def _described(tree: Clos) -> dict[str, Any]:
    """Return what tells an agent the fabric: of a fat-tree with equal links ``k`` alone, which older agents read, too."""
    plain = tree.k is not None and tree == FatTree(tree.k)
    return {"k": tree.k} if plain else {"k": None, "fabric": tree.document()}


def delta(before: View, after: View) -> str:
    """Return the message that brings every agent from one version to a later one of the same epoch."""
    failed, healed = changes(before.failures, after.failures)
    return json.dumps(
        {
            "type": "delta",
            "epoch": after.epoch,
            "base": before.version,
            "version": after.version,
            "failed": failed,
            "healed": healed,
        }
    )


PING = json.dumps({"type": "ping"})


def answer(text: str | bytes, now: View) -> Ack | Reported | None:
    """Read an agent's message.

    Args:
        now: What the controller knows now.

    Returns:
        An acknowledgement, a report of probes, or None if the agent asks for a snapshot.

    Raises:
        ProtocolError: If it is none of these, or acknowledges a version that does not exist yet: in a cluster it does, if this
            relay is behind.
    """
    message = _read(text)
    kind = message.get("type")
    if kind == "resync":
        return None
    if kind == "report":
        return _report(message)
    if kind != "ack":
        raise ProtocolError(f"it is no ack or resync: type {_shown(kind)}")
    optional = {"refused": 0, "mcs": 0, **message}
    ack = Ack(*(_number(optional, name) for name in Ack._fields))
    if ack.epoch == now.epoch and ack.version > now.version and not now.cluster:
        raise ProtocolError(f"it acknowledges version {ack.version}, but the fabric is at {now.version}")
    return ack


def traced(text: str | bytes) -> traces.Answer | None:
    """Return what a message of an agent says of a trace; None if it is another message, `ProtocolError` if malformed."""
    if '"traced"' not in _beginning(text):
        return None
    try:
        return traces.read_answer(_read(text))
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def _report(message: dict[str, Any]) -> Reported | None:
    try:
        found = probes.read_report(message)
    except ValueError as error:
        raise ProtocolError(str(error)) from error
    return found and Reported(*found)


# -- the agent's side ---------------------------------------------------------------------------------------------------


def ack(view: View | None, refused: int, hosts: int | None = None) -> str:
    """Return the agent's acknowledgement of the version that it has in force, or of none, and of the list of that number."""
    epoch, version = (view.epoch, view.version) if view else (0, 0)
    more = {} if hosts is None else {"mcs": hosts}
    return json.dumps({"type": "ack", "epoch": epoch, "version": version, "refused": refused, **more})


RESYNC = json.dumps({"type": "resync"})


def receive(text: str | bytes, view: View | None, address: IPv4Address | None) -> View | None:
    """Read a message of the controller.

    Args:
        view: What the agent has in force; None before its first snapshot.
        address: The agent's own host; None for the arbiter.

    Returns:
        What the agent has to put in force, or ``view`` itself if nothing changes.

    Raises:
        GapError: If it is a delta of another version or epoch than the agent's, or of a type that only a later controller
            knows: a snapshot is always understood.
        LowerTermError: If it is a snapshot of the cluster of the agent's view, with a lower epoch.
        ProtocolError: If it is malformed, contradicts itself, or is meant for another host.

    >>> tree, address = FatTree(4), IPv4Address("10.0.0.2")
    >>> healthy, failed = View(1, 1, Failures(tree)), View(1, 2, Failures(tree, {"a0_0-c0_1": "down"}))
    >>> view = receive(snapshot(healthy, address), None, address)
    >>> view = receive(delta(healthy, failed), view, address)
    >>> view.version, dict(view.failures)
    (2, {'a0_0-c0_1': 'down'})
    """
    message = _read(text)
    kind = message.get("type")
    if kind in ("ping", "mcs", "probes", "trace"):
        return view
    if kind == "snapshot":
        return _take_snapshot(message, view, address)
    if kind == "delta":
        return _take_delta(message, view)
    raise GapError(f"type {_shown(kind)} is unknown")


def hosts_named(text: str | bytes) -> HostChange | None:
    """Return what a message of the controller says about the hosts that run MCS; None if nothing, `ProtocolError` if malformed."""
    try:
        return mcs.read(_read(text))
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def trace_asked(text: str | bytes) -> traces.Request | traces.Cancel | None:
    """Return what trace a message of the controller asks for; None if it is another message, `ProtocolError` if malformed."""
    if '"trace"' not in _beginning(text):
        return None
    try:
        return traces.read_request(_read(text))
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def probes_assigned(text: str | bytes) -> Assignment | None:
    """Return what a message of the controller gives an agent to probe; None if nothing, `ProtocolError` if malformed."""
    if not (b'"probes"' in text if isinstance(text, bytes) else '"probes"' in text):
        return None  # a snapshot is large, and need not be read twice
    try:
        return probes.read_assignment(_read(text))
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def _take_snapshot(message: dict[str, Any], view: View | None, address: IPv4Address | None) -> View:
    if message.get("host") != (None if address is None else str(address)):
        raise ProtocolError(f"it is for host {_shown(message.get('host'))}, not for {address or 'an arbiter'}")
    epoch, version = _number(message, "epoch"), _number(message, "version")
    cluster = message.get("cluster", "")
    if not isinstance(cluster, str):
        raise ProtocolError(f"cluster is no name: {_shown(cluster)}")
    if view is not None and cluster and cluster == view.cluster:
        if epoch < view.epoch:
            raise LowerTermError(
                f"it is of term {epoch} of cluster {_shown(cluster)}, but a view of term {view.epoch} is in force"
            )
        if epoch == view.epoch and version < view.version:
            return view
    elif view is not None and epoch == view.epoch and version < view.version:
        raise ProtocolError(f"it is of version {version}, older than {view.version}, which is in force")
    try:
        tree = Clos.from_document(message["fabric"]) if "fabric" in message else FatTree(_number(message, "k"))
        if address is not None:
            tree.host_by_ip(address)
        failures = Failures(tree, _reasons(message, "failures"))
    except TopologyError as error:
        raise ProtocolError(str(error)) from error
    return View(epoch, version, failures, cluster)


def _take_delta(message: dict[str, Any], view: View | None) -> View:
    epoch, base, version = (_number(message, name) for name in ("epoch", "base", "version"))
    if view is None or (epoch, base) != (view.epoch, view.version):
        ours = f"version {view.version} of epoch {view.epoch}" if view else "nothing"
        raise GapError(f"it changes version {base} of epoch {epoch}, but {ours} is in force")
    if version <= base:
        raise ProtocolError(f"it leads from version {base} back to {version}")
    failed, healed = _reasons(message, "failed"), message.get("healed")
    if not isinstance(healed, list) or not all(isinstance(name, str) for name in healed):
        raise ProtocolError(f"healed is no list of names: {_shown(healed)}")
    unknown = [name for name in healed if name not in view.failures or name in failed]
    if unknown:
        raise ProtocolError(f"it heals what has not failed: {_shown(unknown[0])}")
    left = {name: reason for name, reason in view.failures.items() if name not in set(healed)}
    try:
        return View(epoch, version, Failures(view.failures.tree, left | failed), view.cluster)
    except TopologyError as error:
        raise ProtocolError(str(error)) from error


# -- both ---------------------------------------------------------------------------------------------------------------


def _beginning(text: str | bytes) -> str:
    """Return where a message says its type, if it is one of those that are not read more than once."""
    return text[:_KIND] if isinstance(text, str) else text[:_KIND].decode(errors="replace")


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"it is no JSON: {_shown(str(error))}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"it is no JSON object: {_shown(message)}")
    return message


def _number(message: dict[str, Any], name: str) -> int:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise ProtocolError(f"{name} is no number from 0 on: {_shown(value)}")
    return value


def _reasons(message: dict[str, Any], name: str) -> dict[str, str]:
    value = message.get(name)
    if not isinstance(value, dict) or not all(isinstance(reason, str) for reason in value.values()):
        raise ProtocolError(f"{name} is no object of names and reasons: {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
