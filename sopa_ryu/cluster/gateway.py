"""Requests and answers of etcd's JSON gateway (etcd 3.4, Documentation/dev-guide/api_grpc_gateway.md). Pure.

`Engine` sends them; a client on asyncio can send the same. Every request has the headers of `headers`: with ``hasleader``
a node that has lost the others rejects requests at once, and ends watches after three election timeouts. Without it a watch at such
a node would stay silent for ever.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sopa_ryu.cluster.records import leased
from sopa_ryu.cluster.troubles import Kind, Trouble, TroubleError, trouble

WATCH = "/v3/watch"
MAX_LINE = 64 << 20
"""Bytes of a message of a watch: as many changes as a client may have to catch up with."""

_DECODER = json.JSONDecoder()
_OK = 200


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


class Request(NamedTuple):
    """A request of the gateway: a POST of an object. ``repeatable``: it does no harm if it is done twice."""

    path: str
    body: Mapping[str, Any]
    repeatable: bool = True

    def content(self) -> bytes:
        """Return the body."""
        return json.dumps(self.body, separators=(",", ":")).encode()


def headers(token: str = "") -> dict[str, str]:
    """Return the headers of every request; ``token`` is what `token_of` has returned."""
    return {
        "Content-Type": "application/json",
        "Grpc-Metadata-hasleader": "true",
        **({"Authorization": token} if token else {}),
    }


# -- requests -----------------------------------------------------------------------------------------------------------


def all_keys(name: str) -> Request:
    """Return the request for all keys of a cluster, as of one revision that no finished write is missing from."""
    return Request("/v3/kv/range", _below(name))


def count(name: str) -> Request:
    """Return a cheap request that only a node with a quorum answers."""
    return Request("/v3/kv/range", {**_below(name), "count_only": True})


def transaction(
    name: str,
    puts: Mapping[str, str],
    unless: Sequence[Condition] = (),
    lease: int = 0,
    deletes: Sequence[str] = (),
) -> Request:
    """Return the request for a write.

    Args:
        name: The cluster's.
        puts: Values by key, without the cluster's name.
        unless: All must hold, or nothing is written.
        lease: Of those keys that end with their writer (`records.leased`); others, such as the term, are never bound to it.
    """
    compares = [compare for condition in unless for compare in _compares(name, condition)]
    done: list[dict[str, Any]] = [
        {
            "request_put": {
                "key": _key(name, key),
                "value": _encoded(value),
                **({"lease": str(lease)} if lease and leased(key) else {}),
            }
        }
        for key, value in puts.items()
    ]
    done += [{"request_delete_range": {"key": _key(name, key)}} for key in deletes]
    return Request("/v3/kv/txn", {"compare": compares, "success": done, "failure": []}, repeatable=False)


def grant(seconds: int) -> Request:
    """Return the request for a lease. One that nobody knows of ends by itself, so it may be repeated."""
    return Request("/v3/lease/grant", {"TTL": str(seconds), "ID": "0"})


def renewal(lease: int) -> Request:
    """Return the request that renews a lease."""
    return Request("/v3/lease/keepalive", {"ID": str(lease)})


def revocation(lease: int) -> Request:
    """Return the request that ends a lease and deletes its keys."""
    return Request("/v3/lease/revoke", {"ID": str(lease)})


def watch(name: str, revision: int) -> Request:
    """Return the request for the changes of all keys after a revision; the answer is read by `WatchReader`."""
    return Request(WATCH, {"create_request": {**_below(name), "start_revision": str(revision + 1)}})


def sign_in(user: str, password: str) -> Request:
    """Return the request for a token."""
    return Request("/v3/auth/authenticate", {"name": user, "password": password})


# -- answers ------------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An answer of the gateway.

    Attributes:
        cluster: The identity of the engine, which another engine does not have.
        revision: At which the node that answers is.
        body: The answer; of a stream, its first message.
    """

    cluster: int
    revision: int
    body: dict[str, Any]


def answer(status: int, content: bytes) -> Answer | Trouble:
    """Read an answer, or what it says went wrong.

    Args:
        status: Of the HTTP response.
    """
    try:
        body, _ = _DECODER.raw_decode(content.decode().lstrip())
        if status == _OK and "error" not in body:
            return _answer(body.get("result", body))
        return _said(status, body)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        text = content.decode(errors="replace")
        return trouble(status, text, 0, f"not an answer of etcd's ({type(error).__name__}: {error})")


def contents_of(told: Answer, name: str) -> Contents:
    """Return all keys from the answer to `all_keys`."""
    kept = dict(_kept(pair, name) for pair in told.body.get("kvs", ()))
    return Contents(told.revision, kept, whole=True)


def written(told: Answer) -> Written | None:
    """Return what the answer to `transaction` says: None if a condition did not hold."""
    return Written(told.revision) if told.body.get("succeeded") else None


def lease_of(told: Answer) -> tuple[int, int]:
    """Return the lease and the seconds for which it was granted."""
    return int(told.body["ID"]), int(told.body["TTL"])


def renewed(told: Answer) -> bool:
    """Return what the answer to `renewal` says: False if the lease is gone."""
    return int(told.body.get("TTL", 0)) > 0


def token_of(told: Answer) -> str:
    """Return the token from the answer to `sign_in`."""
    return str(told.body["token"])


class HistoryGone(Exception):
    """The engine has no history back to the revision that was asked for: everything has to be read anew."""


class WatchReader:
    """What a watch says, as its bytes come in.

    Args:
        name: The cluster's.
        revision: The one that was given to `watch`.

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

        Raises:
            HistoryGone: If the changes after the revision have been compacted.
            TroubleError: If the node ends the watch, or what it says is no message of a watch.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise TroubleError(Trouble(Kind.MALFORMED, f"a message of a watch is longer than {MAX_LINE} bytes"))
        for line in filter(None, lines):
            yield self._read(line)

    def ended(self) -> None:
        """Raise `TroubleError` if the node has said why it closes the connection: its last message has no end of line."""
        with suppress(ValueError):
            body = json.loads(self._rest)
            if isinstance(body, dict) and isinstance(body.get("error"), dict):
                raise TroubleError(_said(0, body["error"]))

    def _read(self, line: bytes) -> Contents:
        try:
            body = json.loads(line)
            if "error" in body:
                said = _said(0, body["error"] if isinstance(body["error"], dict) else body)
                raise TroubleError(said)
            told = _answer(body["result"])
            if told.body.get("canceled"):
                self._ended(told.body)
            events = told.body.get("events", ())
            keys = dict(self._event(event) for event in events)
            self.revision = max([self.revision, *(int(event["kv"]["mod_revision"]) for event in events)])
        except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
            said = Trouble(Kind.MALFORMED, f"not a message of a watch ({type(error).__name__}: {error})")
            raise TroubleError(said) from error
        self.created = self.created or bool(told.body.get("created"))
        self.cluster = told.cluster
        return Contents(self.revision, keys)

    def _ended(self, result: Mapping[str, Any]) -> None:
        if int(result.get("compact_revision", 0)):
            raise HistoryGone
        reason = str(result.get("cancel_reason", "")) or "it ended the watch and says no reason"
        raise TroubleError(trouble(0, reason, 0, reason))

    def _event(self, event: Mapping[str, Any]) -> tuple[str, Kept | None]:
        key, kept = _kept(event["kv"], self._name)
        return key, None if event.get("type") == "DELETE" else kept


# -- what both share ----------------------------------------------------------------------------------------------------


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


def _kept(pair: Mapping[str, Any], name: str) -> tuple[str, Kept]:
    key = _decoded(pair["key"]).removeprefix(f"/{name}/")
    revisions = (int(pair.get(field, 0)) for field in ("create_revision", "mod_revision", "lease"))
    return key, Kept(_decoded(pair.get("value", "")), *revisions)


def _said(status: int, body: Mapping[str, Any]) -> Trouble:
    error = body.get("error")
    if isinstance(error, dict):  # the first message of a stream
        body, error = error, None
    text = str(body.get("message") or error or body)
    return trouble(status, text, int(body.get("code", body.get("grpc_code", 0))), text)
