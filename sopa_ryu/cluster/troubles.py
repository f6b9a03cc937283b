"""What goes wrong with the engine, told apart by what it means to its clients and to the operator. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

_SHOWN = 200  # characters of an answer that is no message of etcd's
_PREFIXES = re.compile(r"rpc error: code = \w+ desc = |etcdserver: |mvcc: |auth: |\[Errno -?\d+\] ")


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
    Kind.UNREACHABLE: "check that etcd runs there, and the network to it",
    Kind.NO_QUORUM: "most nodes of etcd have to run, to reach each other, and to write to their disks in time: see `etcdctl "
    "endpoint status --cluster` and etcd's log",
    Kind.FULL: "etcd's database has reached its quota: compact and defragment it, then `etcdctl alarm disarm` (docs/operating.md), "
    "and give it --auto-compaction-retention",
    Kind.REFUSED: "check the user, its password file and its rights to the cluster's keys, and the certificates",
    Kind.MALFORMED: "check the engine's address, and that it is etcd 3.4 or later with its JSON gateway",
}
"""What an operator does about it."""


class EngineError(RuntimeError):
    """A request of the engine failed; the text is for the operator.

    Attributes:
        unknown: True if it was a write that may have been done all the same.
        late: True if a node has not answered in time: it may need more.
        cause: What is wrong, whichever nodes say so: the same in all errors of one cause.
    """

    def __init__(self, text: str, kind: Kind, unknown: bool = False, late: bool = False, cause: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.unknown = unknown
        self.late = late
        self.cause = cause or text


class Trouble(NamedTuple):
    """What a node's answer says went wrong.

    Attributes:
        perhaps_done: Whether a write may have been done all the same.
        sign_in: Whether a new token may help.
        no_lease: Whether it is that a lease does not exist.
        no_users: Whether it is that the engine has no users enabled.
        late: Whether it is that the node did not answer in time.
        hint: What an operator does about it, if it is not what `HINTS` says.
    """

    kind: Kind
    text: str
    perhaps_done: bool = False
    sign_in: bool = False
    no_lease: bool = False
    no_users: bool = False
    late: bool = False
    hint: str = ""


class TroubleError(Exception):
    """One node cannot serve, because of its `trouble`; another one may."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


LATE = "it does not answer in time"
LATE_HINT = (
    "it is stopped or cut off, or its disk is slow: see etcd's log (`slow fdatasync`, `took too long`), and docs/operating.md, "
    "section 13"
)
TOO_LARGE = "a value is larger than etcd accepts: give it a larger --max-request-bytes"
COMMON_NAME = (
    "while users are enabled, etcd's gateway refuses client certificates that have a common name: make one without, or use the "
    "user alone (docs/operating.md)"
)


# numbers of gRPC, https://grpc.io/docs/guides/status-codes/
_INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION, _UNIMPLEMENTED = 3, 5, 7, 8, 9, 12
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16
_OK, _HTTP_NOT_FOUND = 200, 404


def trouble(status: int, text: str, code: int, otherwise: str) -> Trouble:
    """Tell what an answer means.

    Args:
        status: Of HTTP; 0 within a stream.
        text: What etcd says (rpctypes/error.go).
        code: Of gRPC; 0 if the answer has none.
        otherwise: What to show if it is no message of etcd's.

    >>> trouble(503, "etcdserver: no leader", 14, "").kind
    <Kind.NO_QUORUM: 'no quorum'>
    >>> trouble(503, "etcdserver: request timed out", 14, "").perhaps_done
    True
    """
    said = shortened(text)
    if "database space exceeded" in text:
        return Trouble(Kind.FULL, said)
    if "requested lease not found" in text:
        return Trouble(Kind.MALFORMED, said, no_lease=True)
    if "authentication is not enabled" in text:
        return Trouble(Kind.REFUSED, said, no_users=True)
    if "invalid auth token" in text or "revision of auth store is old" in text or "revision in header is old" in text:
        return Trouble(Kind.REFUSED, said, sign_in=True)
    if code in (_DENIED, _UNAUTHENTICATED) or "permission denied" in text or "user name is empty" in text:
        return Trouble(Kind.REFUSED, said, sign_in=True)
    if "authentication failed" in text:
        return Trouble(Kind.REFUSED, said)
    if "CommonName" in text:
        return Trouble(Kind.REFUSED, said, hint=COMMON_NAME)
    if "larger than max" in text or "request is too large" in text:
        return Trouble(Kind.MALFORMED, said, hint=TOO_LARGE)
    if "no leader" in text or "too many requests" in text:
        return Trouble(Kind.NO_QUORUM, said)
    if "etcdserver: " in text and code == _UNAVAILABLE:
        return Trouble(Kind.NO_QUORUM, said, perhaps_done=True)
    if code in (_INVALID, _NOT_FOUND, _PRECONDITION, _UNIMPLEMENTED) or status == _HTTP_NOT_FOUND:
        return Trouble(Kind.MALFORMED, said)
    if code == 0 and status != 0:  # no message of etcd's
        return Trouble(Kind.MALFORMED, f"HTTP status {status}, {shortened(otherwise)}", perhaps_done=status == _OK)
    return Trouble(Kind.UNREACHABLE, said, perhaps_done=True)


def shortened(text: str) -> str:
    """Return a message without what says only where in etcd it comes from.

    >>> shortened("etcdserver: mvcc: database space exceeded")
    'database space exceeded'
    """
    text = " ".join(_PREFIXES.sub("", text).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
