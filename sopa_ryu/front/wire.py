"""What a controller and its front say to each other over a socket. Pure.

Each message is a header, kind and length, and a payload: JSON of a structure declared here, text that is passed on as it is, or
bytes. An envelope about one thing of many (a call, a passed channel) begins with its number. Both ends are of one release, and the
front trusts what the controller says; what it does not understand ends the front.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

HEADER = struct.Struct("<BI")
NUMBER = struct.Struct("<I")
MAX_BYTES = 256 << 20
T = TypeVar("T")


class MessageKind(IntEnum):
    """The kinds of messages: first the controller's, then the front's."""

    CONFIG = 1
    VIEW = 2
    STANDING = 3
    DOWN = 4
    RESULT = 5
    FEED = 6
    VERDICT = 7
    SEND = 8
    PING = 9
    PONG = 32
    LOG = 33
    CALL = 34
    UP = 35
    REPORTS = 36
    SENT = 37
    COMPLETED = 38
    AGENTS = 39
    CLAIM = 40
    MESSAGE = 41
    CLOSED = 42
    WRITABLE = 43
    PAGES = 44


# -- the controller's messages ------------------------------------------------------------------------------------------


class Config(Struct):
    """What a front begins with.

    Attributes:
        fabric: `Clos.document`.
        clustered: Whether the controller is a member of a cluster.
        tls: Certificate and key of the listener; empty without TLS.
        share: Connections without a token that one address may have.
        proxies: Addresses that have no share.
        origins: Pages that may open the feed.
        urls: Where it listens, and where others reach it.
        state_dir: The files with tokens.
        pages: The maximum number of open pages.
    """

    fabric: dict[str, Any]
    carrier: str
    clustered: bool
    tls: tuple[str, ...]
    share: int
    proxies: tuple[str, ...]
    origins: tuple[str, ...]
    urls: tuple[str, ...]
    state_dir: str
    host_tokens_only: bool
    read_token: bool
    pages: int
    log_level: int


class ViewMessage(Struct):
    """A version of the fabric that agents have to know, as `View` has it."""

    epoch: int
    version: int
    cluster: str
    failures: Mapping[str, str]


class Standing(Struct):
    """Whether the controller takes agents.

    Attributes:
        deposed: Another controller is the switches' master, or leads.
        leader: In a cluster, what is said of it to those who are sent away.
        takes_channels: Whether this controller leads, or is of no cluster.
        leader_url: Where the leader is, if another one leads.
    """

    deposed: bool
    leader: str | None
    takes_channels: bool
    leader_url: str | None


class ResultHead(Struct):
    """The answer to a call, before its body."""

    status: int
    headers: list[tuple[str, str]]


class ChannelVerdict(Struct):
    """What becomes of a passed channel: it is accepted, rejected (409), cut, or closed with a code."""

    accept: bool = False
    reject: str | None = None
    cut: bool = False
    close: tuple[int, str] | None = None


# -- the front's messages -----------------------------------------------------------------------------------------------


class CallHead(Struct):
    """A request, before its body."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    peer: str
    scheme: str
    protocol: str


class LogLine(Struct):
    """A line for the controller's log."""

    name: str
    level: int
    text: str


class SentMessage(Struct):
    """A version was sent to so many agents."""

    epoch: int
    version: int
    agents: int


class AgentRow(Struct, array_like=True):
    """One connected agent, as ``GET /agents`` has it; times are seconds before the message."""

    place: int
    peer: str
    carrier: str | None
    policy: str | None
    spray: str | None
    acknowledged: int
    acknowledged_ms: float | None
    behind: float | None
    heard: float
    refused: int
    refuses: int
    probes: bool
    links_left: tuple[str, ...]


class AgentsMessage(Struct):
    """What has changed of the connected agents, and the front's counters.

    Attributes:
        left: The places of hosts whose agents have left.
        refused: ``claims`` and ``messages`` that were rejected.
        turned_away: What was rejected before it was a request, by reason.
    """

    rows: list[AgentRow]
    left: list[int]
    refused: dict[str, int]
    turned_away: dict[str, int]


class ClaimMessage(Struct):
    """A client whose token was checked asks for a channel that the controller serves: the arbiter's, or a relay's.

    Attributes:
        relay: The relay's name; None for an arbiter.
    """

    relay: str | None
    peer: str
    query: str


_encoder = msgspec.json.Encoder()


def plain(kind: MessageKind, value: Struct) -> bytes:
    """Return a message with a structure.

    >>> Envelopes().take(plain(MessageKind.LOG, LogLine("sopa", 20, "x")))[0]
    (<MessageKind.LOG: 33>, b'{"name":"sopa","level":20,"text":"x"}')
    """
    return message(kind, _encoder.encode(value))


def message(kind: MessageKind, payload: bytes) -> bytes:
    """Return a message's bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def numbered(kind: MessageKind, number: int, payload: bytes = b"") -> bytes:
    """Return a message about one of many."""
    return HEADER.pack(kind, NUMBER.size + len(payload)) + NUMBER.pack(number) + payload


def number_of(payload: bytes) -> tuple[int, bytes]:
    """Return the number with which a payload begins, and the rest."""
    return int(NUMBER.unpack_from(payload)[0]), payload[NUMBER.size :]


def with_head(kind: MessageKind, number: int, head: Struct, body: bytes) -> bytes:
    """Return a message about one of many, with a structure and a body."""
    text = _encoder.encode(head)
    return numbered(kind, number, NUMBER.pack(len(text)) + text + body)


def split_head(payload: bytes, kind: type[T]) -> tuple[int, T, bytes]:
    """Return number, structure and body of a message that `with_head` has made."""
    number, rest = number_of(payload)
    size, rest = number_of(rest)
    return number, msgspec.json.decode(rest[:size], type=kind), rest[size:]


def read(payload: bytes, kind: type[T]) -> T:
    """Return the structure that a payload has."""
    return msgspec.json.decode(payload, type=kind)


class Envelopes:
    """The messages of a stream of bytes."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> list[tuple[MessageKind, bytes]]:
        """Return the messages that are complete with these bytes; `ValueError` if they are none."""
        self._data += data
        return list(self._complete())

    def _complete(self) -> Iterator[tuple[MessageKind, bytes]]:
        at = 0
        while len(self._data) - at >= HEADER.size:
            kind, size = HEADER.unpack_from(self._data, at)
            if size > MAX_BYTES:
                raise ValueError(f"a message of kind {kind} has {size} bytes")
            end = at + HEADER.size + size
            if len(self._data) < end:
                break
            yield MessageKind(kind), bytes(self._data[at + HEADER.size : end])
            at = end
        del self._data[:at]
