"""What an application and the agent say to each other by the Unix socket of hints (docs/cfr.md): a line of JSON each. Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Any, NamedTuple

MAX_LINE_BYTES = 1024
DEFAULT_WITHIN_MS, MIN_WITHIN_MS, MAX_WITHIN_MS = 1000, 10, 60_000
MAX_SIZE = (1 << 63) - 1
_NAMES = {"destination", "port", "own_port", "bytes", "within_ms"}


class Refusal(StrEnum):
    """The reason why a hint is refused; the value is a metric's label."""

    MALFORMED = "malformed"
    CONNECTION = "connection"
    """This host has no such connection to a host of the fabric."""
    AMBIGUOUS = "ambiguous"
    """It has several."""
    USER = "user"
    """It is another user's."""
    FULL = "full"
    """There are too many hints, or programs that give them."""
    ARBITER = "arbiter"
    """No arbiter grants slots: nothing waits."""
    FAILED = "failed"
    """The agent cannot look at the sockets."""


class HintError(ValueError):
    """A hint that is refused.

    Parameters
    ----------
    reason : Refusal
    text : str
        For who has given it.
    """

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Hint(NamedTuple):
    """What a connection is going to send.

    Parameters
    ----------
    destination : IPv4Address
    port : int
        The other end's.
    own_port : int
        This end's; 0 for the only connection to that port.
    size : int
        Bytes that it has still to send, from what is written and not sent yet on.
    within_ms : int
        When nothing more of that is written for so many milliseconds, the hint is void.
    """

    destination: IPv4Address
    port: int
    own_port: int
    size: int
    within_ms: int = DEFAULT_WITHIN_MS


class Accepted(NamedTuple):
    """A hint that counts.

    Parameters
    ----------
    own_port : int
        Of its connection.
    size : int
        The bytes that count: fewer than in the hint if a link carries fewer in the arbiter's window.
    """

    own_port: int
    size: int


def write_hint(hint: Hint) -> bytes:
    """Return the line of a hint.

    Examples
    --------
    >>> write_hint(Hint(IPv4Address("10.1.0.2"), 5001, 40000, 1000000))
    b'{"destination": "10.1.0.2", "port": 5001, "own_port": 40000, "bytes": 1000000, "within_ms": 1000}\\n'
    """
    its = {"destination": str(hint.destination), "port": hint.port, "own_port": hint.own_port, "bytes": hint.size}
    return json.dumps({**its, "within_ms": hint.within_ms}).encode() + b"\n"


def read_hint(line: bytes) -> Hint:
    """Read the line of a hint.

    Raises
    ------
    HintError
        If it is malformed.
    """
    try:
        its = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"it is no JSON: {error}") from None
    if not isinstance(its, dict):
        raise _malformed("it is no JSON object")
    if unknown := its.keys() - _NAMES:
        raise _malformed(f"{min(unknown)[:40]!r} is none of {', '.join(sorted(_NAMES))}")
    try:
        destination = IPv4Address(str(its.get("destination", "")))
    except ValueError:
        raise _malformed("destination is no IPv4 address") from None
    return Hint(
        destination,
        _number(its, "port", 1, 65535),
        _number(its, "own_port", 0, 65535, 0),
        _number(its, "bytes", 1, MAX_SIZE),
        _number(its, "within_ms", MIN_WITHIN_MS, MAX_WITHIN_MS, DEFAULT_WITHIN_MS),
    )


def write_answer(answer: Accepted | HintError) -> bytes:
    """Return the line of an answer.

    Examples
    --------
    >>> write_answer(Accepted(40000, 1000000))
    b'{"own_port": 40000, "bytes": 1000000}\\n'
    >>> write_answer(HintError(Refusal.USER, "the connection is another user's"))
    b'{"error": "user", "detail": "the connection is another user\\'s"}\\n'
    """
    if isinstance(answer, HintError):
        return json.dumps({"error": str(answer.reason), "detail": str(answer)}).encode() + b"\n"
    return json.dumps({"own_port": answer.own_port, "bytes": answer.size}).encode() + b"\n"


def read_answer(line: bytes) -> Accepted:
    """Read the line of an answer; `HintError` if the hint was refused, or it is no answer."""
    try:
        its = json.loads(line)
        if "error" in its:
            raise HintError(Refusal(its["error"]), str(its["detail"]))
        return Accepted(int(its["own_port"]), int(its["bytes"]))
    except HintError:
        raise
    except (ValueError, TypeError, KeyError):
        raise HintError(Refusal.FAILED, f"no agent's answer: {line[:60]!r}") from None


def _number(its: dict[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    value = its.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _malformed(f"{name} is no whole number from {least} to {most}")
    return value


def _malformed(text: str) -> HintError:
    return HintError(Refusal.MALFORMED, text)
