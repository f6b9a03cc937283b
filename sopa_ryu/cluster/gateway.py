"""Requests and answers of etcd's JSON gateway (etcd 3.4, Documentation/dev-guide/api_grpc_gateway.md). Pure.

`Engine` sends them; a client on asyncio can send the same. Every request has the headers of `headers`: with ``hasleader``
a node that has lost the others rejects requests at once, and ends watches after three election timeouts. Without it a watch at such
a node would stay silent for ever.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from sopa_ryu.cluster.records import leased

T = TypeVar("T")

MAX_LINE = 64 << 20
"""Bytes of a message of a watch: as many changes as a client may have to catch up with."""

_DECODER = json.JSONDecoder()
_OK, _HTTP_NOT_FOUND = 200, 404
# numbers of gRPC, https://grpc.io/docs/guides/status-codes/
_INVALID, _NOT_FOUND, _DENIED, _PRECONDITION, _UNIMPLEMENTED = 3, 5, 7, 9, 12
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16
_SHOWN = 200  # characters of an answer that is no message of etcd's
_PREFIXES = re.compile(r"rpc error: code = \w+ desc = |etcdserver: |mvcc: |auth: |\[Errno -?\d+\] ")


# -- what goes wrong ----------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    """What is wrong."""

    UNREACHABLE = "unreachable"
    """No node answers."""
    NO_QUORUM = "no quorum"
    """A node answers, but cannot reach most of the nodes, or not in time."""
    FULL = "full"
    """The engine's database has reached its quota: reads and leases' renewals go on, writes do not."""
    REFUSED = "refused"
    """The engine does not let the client in: user, password, rights, certificate; or it is another engine than before."""
    MALFORMED = "malformed"
    """What answers is no etcd of version 3.4 or later, or a request or an answer is not as it has to be."""


HINTS = {
    Kind.UNREACHABLE: "Check that etcd runs there, and the network to it",
    Kind.NO_QUORUM: "Most nodes of etcd have to run, to reach each other, and to write to their disks in time. See `etcdctl "
    "endpoint status --cluster` and etcd's log",
    Kind.FULL: "The database of etcd has reached its quota. Compact and defragment it, then `etcdctl alarm "
    "disarm` (docs/controllers.md), and give it --auto-compaction-retention",
    Kind.REFUSED: "Check the user, its password file and its rights to the cluster's keys, and the certificates",
    Kind.MALFORMED: "Check the engine's address, and that it is etcd 3.4 or later with its JSON gateway",
}
"""What an operator does about it."""


TOO_LARGE = "A value is larger than etcd accepts. Give it a larger --max-request-bytes"
COMMON_NAME = (
    "While users are enabled, etcd's gateway refuses client certificates that have a common name. Make one without, or use the "
    "user alone (docs/controllers.md)"
)


@dataclass(eq=False)
class EngineError(RuntimeError):
    """A request of the engine failed, at one node or at all; the text is for the operator."""

    text: str
    kind: Kind
    unknown: bool = False
    """It was a write that may have been done all the same."""
    late: bool = False
    """A node has not answered in time: it may need more."""
    cause: str = ""
    """What is wrong, whichever nodes say so: the same in all errors of one cause. The text, if not given."""
    hint: str = ""
    """What an operator does about it, if it is not what `HINTS` says."""
    sign_in: bool = False
    """A new token may help."""
    no_lease: bool = False
    """A lease does not exist."""
    no_users: bool = False
    """The engine has no users enabled."""

    def __post_init__(self) -> None:
        self.cause = self.cause or self.text
        self.hint = self.hint or HINTS[self.kind]

    def __str__(self) -> str:
        return self.text


def error_of(status: int, message: str, code: int, otherwise: str) -> EngineError:
    """Return what a node's answer means: HTTP's status (0 in a stream), etcd's message (rpctypes/error.go), gRPC's code or 0.

    ``otherwise`` is shown if it is no message of etcd's.

    >>> error_of(503, "etcdserver: no leader", 14, "").kind
    <Kind.NO_QUORUM: 'no quorum'>
    >>> error_of(503, "etcdserver: request timed out", 14, "").unknown
    True
    """
    text = shortened(message)
    if "database space exceeded" in message:
        return EngineError(text, Kind.FULL)
    if "requested lease not found" in message:
        return EngineError(text, Kind.MALFORMED, no_lease=True)
    if "authentication is not enabled" in message:
        return EngineError(text, Kind.REFUSED, no_users=True)
    if any(words in message for words in ("invalid auth token", "revision of auth store is old", "revision in header is old")):
        return EngineError(text, Kind.REFUSED, sign_in=True)
    if code in (_DENIED, _UNAUTHENTICATED) or "permission denied" in message or "user name is empty" in message:
        return EngineError(text, Kind.REFUSED, sign_in=True)
    if "authentication failed" in message:
        return EngineError(text, Kind.REFUSED)
    if "CommonName" in message:
        return EngineError(text, Kind.REFUSED, hint=COMMON_NAME)
    if "larger than max" in message or "request is too large" in message:
        return EngineError(text, Kind.MALFORMED, hint=TOO_LARGE)
    if "no leader" in message or "too many requests" in message:
        return EngineError(text, Kind.NO_QUORUM)
    if "etcdserver: " in message and code == _UNAVAILABLE:
        return EngineError(text, Kind.NO_QUORUM, unknown=True)
    if code in (_INVALID, _NOT_FOUND, _PRECONDITION, _UNIMPLEMENTED) or status == _HTTP_NOT_FOUND:
        return EngineError(text, Kind.MALFORMED)
    if code == 0 and status != 0:  # no message of etcd's
        return EngineError(f"HTTP status {status}, {shortened(otherwise)}", Kind.MALFORMED, unknown=status == _OK)
    return EngineError(text, Kind.UNREACHABLE, unknown=True)


def shortened(text: str) -> str:
    """Return a message without what says only where in etcd it comes from.

    >>> shortened("etcdserver: mvcc: database space exceeded")
    'database space exceeded'
    """
    text = " ".join(_PREFIXES.sub("", text).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# -- what is written and read -------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A key's value, the revisions at which it was created and changed last, and its lease (0: none)."""

    value: str
    created: int
    modified: int
    lease: int


class Condition(NamedTuple):
    """What a key must be for a write to happen; a revision of 0 means that it does not exist."""

    key: str
    created: int | None = None
    modified: int | None = None


class Written(NamedTuple):
    """A write that happened: its revision is the ``create_revision`` of keys that it made."""

    revision: int


class Contents(NamedTuple):
    """Keys as of a revision; None for a key that was deleted.

    ``whole`` says that these are all keys: what is not among them does not exist, whatever was known before.
    """

    revision: int
    keys: Mapping[str, Kept | None]
    whole: bool = False


class Answer(NamedTuple):
    """An answer of the gateway: which engine it is, at which revision the node is, and the body, of a stream the first message."""

    cluster: int
    revision: int
    body: dict[str, Any]


class Request(NamedTuple, Generic[T]):
    """A request of the gateway: a POST of an object, repeatable if it does no harm twice; ``read`` is what an answer says."""

    path: str
    body: Mapping[str, Any]
    read: Callable[[Answer], T]
    repeatable: bool = True

    def content(self) -> bytes:
        return json.dumps(self.body, separators=(",", ":")).encode()

    def result(self, answer: Answer) -> T:
        """Return what the answer says; raises `EngineError` if it is not as etcd writes it."""
        with _well_formed("an answer is not as etcd writes it"):
            return self.read(answer)


def headers(token: str = "") -> dict[str, str]:
    """Return the headers of every request; ``token`` is what the answer to `sign_in` says."""
    return {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true", **({"Authorization": token} if token else {})}


# -- requests -----------------------------------------------------------------------------------------------------------


def all_keys(name: str) -> Request[Contents]:
    """Return the request for all keys of a cluster, as of one revision that no finished write is missing from."""

    def contents(answer: Answer) -> Contents:
        return Contents(answer.revision, dict(_pair(pair, name) for pair in answer.body.get("kvs", ())), whole=True)

    return Request("/v3/kv/range", _below(name), contents)


def count(name: str) -> Request[int]:
    """Return a cheap request that only a node with a quorum answers, with its revision."""
    return Request("/v3/kv/range", {**_below(name), "count_only": True}, _revision)


def transaction(
    name: str, puts: Mapping[str, str], unless: Sequence[Condition] = (), lease: int = 0, deletes: Sequence[str] = ()
) -> Request[Written | None]:
    """Return the request for a write; None is the answer if a condition did not hold, and nothing was written.

    The lease is that of keys that end with their writer (`records.leased`); others, such as the term, are never bound to it.
    """
    compares = [compare for condition in unless for compare in _compares(name, condition)]
    writes: list[dict[str, Any]] = [
        {
            "request_put": {
                "key": _key(name, key),
                "value": _encoded(value),
                **({"lease": str(lease)} if lease and leased(key) else {}),
            }
        }
        for key, value in puts.items()
    ]
    writes += [{"request_delete_range": {"key": _key(name, key)}} for key in deletes]

    def written(answer: Answer) -> Written | None:
        return Written(answer.revision) if answer.body.get("succeeded") else None

    return Request("/v3/kv/txn", {"compare": compares, "success": writes, "failure": []}, written, repeatable=False)


def grant(seconds: int) -> Request[tuple[int, int]]:
    """Return the request for a lease: its id, and the seconds for which it was granted.

    One that nobody knows of ends by itself, so the request may be repeated.
    """
    body = {"TTL": str(seconds), "ID": "0"}
    return Request("/v3/lease/grant", body, lambda answer: (int(answer.body["ID"]), int(answer.body["TTL"])))


def renewal(lease: int) -> Request[bool]:
    """Return the request that renews a lease; False is the answer if it is gone."""
    return Request("/v3/lease/keepalive", {"ID": str(lease)}, lambda answer: int(answer.body.get("TTL", 0)) > 0)


def revocation(lease: int) -> Request[int]:
    """Return the request that ends a lease and deletes its keys."""
    return Request("/v3/lease/revoke", {"ID": str(lease)}, _revision)


def watch(name: str, revision: int) -> Request[int]:
    """Return the request for the changes of all keys after a revision; the answer is read by `WatchReader`."""
    return Request("/v3/watch", {"create_request": {**_below(name), "start_revision": str(revision + 1)}}, _revision)


def sign_in(user: str, password: str) -> Request[str]:
    """Return the request for a token."""
    body = {"name": user, "password": password}
    return Request("/v3/auth/authenticate", body, lambda answer: str(answer.body["token"]))


# -- answers ------------------------------------------------------------------------------------------------------------


def answer_of(status: int, content: bytes) -> Answer:
    """Read an answer; raise `EngineError` if it says that something went wrong, or is none of etcd's."""
    try:
        body, _ = _DECODER.raw_decode(content.decode().lstrip())
        if status == _OK and "error" not in body:
            return _answer(body.get("result", body))
        error = _error(status, body)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as problem:
        message = content.decode(errors="replace")
        error = error_of(status, message, 0, f"not an answer of etcd's ({type(problem).__name__}: {problem})")
    raise error


class HistoryGone(Exception):
    """The engine has no history back to the revision that was asked for: everything has to be read anew."""


class WatchReader:
    """What a watch says, as its bytes come in.

    Attributes:
        created: True when the node has accepted the watch.
        cluster: The identity of the engine; 0 before the first message.
        revision: That of the last change that was read: where another watch has to go on. What etcd names in each message is
            the node's own revision, to which changes may still come.
    """

    def __init__(self, name: str, revision: int) -> None:
        self.created = False
        self.cluster = 0
        self.revision = revision
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Contents]:
        """Yield the changes; an empty one for a message without any.

        `HistoryGone` says that the changes after the revision have been compacted; `EngineError` that the node ends the watch, or
        what it says is no message of a watch.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise EngineError(f"a message of a watch is longer than {MAX_LINE} bytes", Kind.MALFORMED)
        for line in filter(None, lines):
            yield self._read(line)

    def ended(self) -> None:
        """Raise `EngineError` if the node has said why it closes the connection: its last message has no end of line."""
        with suppress(ValueError):
            body = json.loads(self._rest)
            if isinstance(body, dict) and isinstance(body.get("error"), dict):
                raise _error(0, body)

    def _read(self, line: bytes) -> Contents:
        with _well_formed("not a message of a watch"):
            body = json.loads(line)
            if "error" in body:
                raise _error(0, body)
            answer = _answer(body["result"])
            if answer.body.get("canceled"):
                if int(answer.body.get("compact_revision", 0)):
                    raise HistoryGone
                reason = str(answer.body.get("cancel_reason", "")) or "it ended the watch and says no reason"
                raise error_of(0, reason, 0, reason)
            events = answer.body.get("events", ())
            keys = dict(self._event(event) for event in events)
            self.revision = max([self.revision, *(int(event["kv"]["mod_revision"]) for event in events)])
        self.created = self.created or bool(answer.body.get("created"))
        self.cluster = answer.cluster
        return Contents(self.revision, keys)

    def _event(self, event: Mapping[str, Any]) -> tuple[str, Kept | None]:
        key, value = _pair(event["kv"], self._name)
        return key, None if event.get("type") == "DELETE" else value


# -- what both share ----------------------------------------------------------------------------------------------------


@contextmanager
def _well_formed(otherwise: str) -> Iterator[None]:
    """Raise `EngineError` about what is not as it has to be."""
    try:
        yield
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise EngineError(f"{otherwise} ({type(error).__name__}: {error})", Kind.MALFORMED) from error


def _below(name: str) -> dict[str, str]:
    # the range ends before the prefix with its last byte raised by one
    return {"key": _encoded(f"/{name}/"), "range_end": _encoded(f"/{name}0")}


def _key(name: str, key: str) -> str:
    return _encoded(f"/{name}/{key}")


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode("ascii")


def _decoded(text: str) -> str:
    # what is not UTF-8 was not written by SOPA: the record's reader says so
    return b64decode(text).decode(errors="replace")


def _compares(name: str, condition: Condition) -> Iterator[dict[str, Any]]:
    key = _key(name, condition.key)
    if condition.created is not None:
        yield {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": str(condition.created)}
    if condition.modified is not None:
        yield {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(condition.modified)}


def _answer(body: dict[str, Any]) -> Answer:
    header = body["header"]
    return Answer(int(header.get("cluster_id", 0)), int(header.get("revision", 0)), body)


def _revision(answer: Answer) -> int:
    return answer.revision


def _pair(pair: Mapping[str, Any], name: str) -> tuple[str, Kept]:
    key = _decoded(pair["key"]).removeprefix(f"/{name}/")
    revisions = (int(pair.get(field, 0)) for field in ("create_revision", "mod_revision", "lease"))
    return key, Kept(_decoded(pair.get("value", "")), *revisions)


def _error(status: int, body: Mapping[str, Any]) -> EngineError:
    error = body.get("error")
    if isinstance(error, dict):  # the first message of a stream
        body, error = error, None
    message = str(body.get("message") or error or body)
    return error_of(status, message, int(body.get("code", body.get("grpc_code", 0))), message)
