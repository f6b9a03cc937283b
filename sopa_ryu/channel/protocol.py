"""The push channel's messages, as controller and agents write, check and refuse them. Pure.

The controller sends a ``snapshot`` first and then ``delta``s, one for each change that the agent has not been sent, or one for
several; the agent answers each with an ``ack``. Every message carries the controller's epoch and the fabric's version. A delta
says which version it changes (``base``), so that an agent sees a gap and asks for a snapshot (``resync``). ``ping`` asks for
an ``ack``.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from sopa_ryu.fabric.view import View, changes
from topologies import Failures, FatTree, TopologyError

# A snapshot of a k=48 fabric of which every link has failed has some 3 MB.
MAX_MESSAGE_BYTES = 32 << 20
# What an agent sends is short.
MAX_ANSWER_BYTES = 4096
_MAX_NUMBER = 1 << 63
_SHOWN = 60  # characters of a value that is refused


class ProtocolError(ValueError):
    """A message that is refused; the text says why, and nothing has changed."""


class GapError(ProtocolError):
    """A delta that does not follow what the agent holds: a snapshot is needed."""


class Ack(NamedTuple):
    """An agent's answer: what it holds now, and how many messages it has refused since it started."""

    epoch: int
    version: int
    refused: int


# -- the controller's side ----------------------------------------------------------------------------------------------


def snapshot(view: View, address: IPv4Address) -> str:
    """The message that tells one host's agent everything."""
    return json.dumps(
        {
            "type": "snapshot",
            "epoch": view.epoch,
            "version": view.version,
            "host": str(address),
            "k": view.failures.tree.k,
            "failures": dict(view.failures),
        }
    )


def delta(before: View, after: View) -> str:
    """The message that brings any agent from one version to a later one."""
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


def answer(text: str | bytes, now: View) -> Ack | None:
    """Read what an agent sent: its acknowledgement, or None if it asks for a snapshot.

    Raises
    ------
    ProtocolError
        If it is neither, or acknowledges a version that does not exist yet.
    """
    message = _read(text)
    kind = message.get("type")
    if kind == "resync":
        return None
    if kind != "ack":
        raise ProtocolError(f"it is no ack or resync: type {_shown(kind)}")
    ack = Ack(_number(message, "epoch"), _number(message, "version"), _number({"refused": 0, **message}, "refused"))
    if ack.epoch == now.epoch and ack.version > now.version:
        raise ProtocolError(f"it acknowledges version {ack.version}, but the fabric is at {now.version}")
    return ack


# -- the agent's side ---------------------------------------------------------------------------------------------------


def ack(view: View | None, refused: int) -> str:
    """The agent's acknowledgement of what it holds."""
    epoch, version = (view.epoch, view.version) if view else (0, 0)
    return json.dumps({"type": "ack", "epoch": epoch, "version": version, "refused": refused})


RESYNC = json.dumps({"type": "resync"})


def receive(text: str | bytes, view: View | None, address: IPv4Address) -> View | None:
    """Take in what the controller sent.

    Parameters
    ----------
    text : str or bytes
    view : View or None
        What the agent holds; None before its first snapshot.
    address : IPv4Address
        The agent's own host.

    Returns
    -------
    View or None
        What it holds after that; None if there is nothing to hold yet.

    Raises
    ------
    GapError
        For a delta of another version or epoch than the agent's, and for a kind of message that a later controller may have:
        a snapshot says the same.
    ProtocolError
        For what is malformed, contradicts itself, or is meant for another host.
    """
    message = _read(text)
    kind = message.get("type")
    if kind == "ping":
        return view
    if kind == "snapshot":
        return _take_snapshot(message, view, address)
    if kind == "delta":
        return _take_delta(message, view)
    raise GapError(f"type {_shown(kind)} is not known here")


def _take_snapshot(message: dict[str, Any], view: View | None, address: IPv4Address) -> View:
    if message.get("host") != str(address):
        raise ProtocolError(f"it is for host {_shown(message.get('host'))}, not for {address}")
    epoch, version = _number(message, "epoch"), _number(message, "version")
    if view is not None and epoch == view.epoch and version < view.version:
        raise ProtocolError(f"it is of version {version}, older than {view.version}, which is held already")
    try:
        tree = FatTree(_number(message, "k"))
        tree.host_by_ip(address)
        failures = Failures(tree, _reasons(message, "failures"))
    except TopologyError as error:
        raise ProtocolError(str(error)) from error
    return View(epoch, version, failures)


def _take_delta(message: dict[str, Any], view: View | None) -> View:
    epoch, base, version = (_number(message, name) for name in ("epoch", "base", "version"))
    if view is None or (epoch, base) != (view.epoch, view.version):
        held = f"version {view.version} of epoch {view.epoch}" if view else "nothing"
        raise GapError(f"it changes version {base} of epoch {epoch}, but {held} is held")
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
        return View(epoch, version, Failures(view.failures.tree, left | failed))
    except TopologyError as error:
        raise ProtocolError(str(error)) from error


# -- both ---------------------------------------------------------------------------------------------------------------


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
