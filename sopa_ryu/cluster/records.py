"""The values of the engine's keys (docs/cluster.md): JSON objects, typed, and checked when they are read. Pure.

A value that SOPA did not write raises `RecordError`, which names the key, what is wrong and what to do. Fields that are not known
are ignored, so that a newer release can add one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hmac import compare_digest
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from sopa_ryu.channel.host_tokens import leader_seal
from sopa_ryu.channel.messages import Number, ProtocolError, decode, decoder
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.view import View
from sopa_ryu.runtime.foreign_text import PRINTABLE, printable
from topologies import Clos, Failures, TopologyError

FORMAT = 1
"""Of the values: members of another format do not serve together."""

CHARTER, TERM, LEADER, VIEW, DRAINS = "charter", "term", "leader", "view", "drains"
MEMBERS, RELAYS = "members/", "relays/"


class RecordError(ValueError):
    """A key's value is not one that SOPA writes; the text says which, why, and what to do."""


MAX_NAME, MAX_URL = 64, 256
Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=PRINTABLE)]
Url = Annotated[str, Meta(max_length=MAX_URL, pattern=PRINTABLE)]


class Charter(Struct, frozen=True):
    """What all members have to agree on: the format of the values, the fabric (`Clos.document`), and the carrier of labels."""

    format: Number
    fabric: Mapping[str, Any]
    carrier: Name


class Term(Struct, frozen=True):
    """The number of the latest leadership."""

    term: Number


class Leader(Struct, frozen=True, omit_defaults=True):
    """The member that leads, its term, and the URL of its REST interface.

    ``seal`` is under the members' secret, as tokens are sent to that URL; empty without one.
    """

    name: Name
    term: Number
    url: Url
    seal: Name = ""

    def sealed(self, secret: str | None) -> Leader:
        """Return it with its seal."""
        return replace(self, seal=leader_seal(secret, self.name, self.term, self.url)) if secret else self

    def objection(self, secret: str | None) -> str:
        """Return why nobody is sent to this leader; nothing if all is well, or there is no secret to tell by."""
        if not secret or compare_digest(self.seal, self.sealed(secret).seal):
            return ""
        return (
            f"the key {LEADER} names {self.name} at {self.url}, but has no seal of this cluster's secret. Nobody is sent there. "
            "That member is of an older release or has another agent-secret, or another program writes to the engine"
        )


class CommittedView(Struct, frozen=True):
    """The view that the leader of a term has committed: a version, and why what has failed must not be used."""

    term: Number
    version: Number
    failures: Mapping[Name, Name]

    def view(self, tree: Clos) -> View:
        """Return it as the view of a fabric; `RecordError` if the fabric has no element of a name."""
        try:
            return View(self.term, self.version, Failures(tree, self.failures))
        except TopologyError as error:
            raise RecordError(f"the key {VIEW} names what the fabric does not have: {error}. {_mend(VIEW)}") from error


class DrainsRecord(Struct, frozen=True, omit_defaults=True):
    """The links and switches that operators have drained, and the term in which they were written.

    ``details`` has what is known of them, as `Drain.report` makes it.
    """

    term: Number
    names: tuple[Name, ...]
    details: Mapping[Name, Any] = {}

    @property
    def drains(self) -> dict[str, Drain]:
        """What is known of each."""
        return {name: Drain.of(self.details.get(name)) for name in self.names}


class MemberRecord(Struct, frozen=True):
    """A member as it describes itself: among others how many switches are connected, and a digest of its files of tokens.

    Term and version are those of the view that it follows; ``since`` is its start, in seconds since 1970.
    """

    name: Name
    url: Url
    program: Name
    format: Number
    role: Annotated[str, Meta(pattern=r"^(leader|standby)\Z")]
    term: Number
    version: Number
    switches: Number
    since: Number
    secrets: Name


class RelayRecord(Struct, frozen=True):
    """A relay as it describes itself. Term and version are of the latest view that all its agents have acknowledged.

    ``waiting`` agents have not acknowledged the view that the relay has.
    """

    name: Name
    url: Url
    program: Name
    agents: Number
    term: Number
    version: Number
    waiting: Number


Record = Charter | Term | Leader | CommittedView | DrainsRecord | MemberRecord | RelayRecord

_SINGLE: dict[str, type[Record]] = {CHARTER: Charter, TERM: Term, LEADER: Leader, VIEW: CommittedView, DRAINS: DrainsRecord}
_MANY: dict[str, type[Record]] = {MEMBERS: MemberRecord, RELAYS: RelayRecord}
_DECODERS = {kind: decoder(kind) for kind in (*_SINGLE.values(), *_MANY.values())}
_MENDS = {
    CHARTER: "the next member that starts writes it anew",
    TERM: "the next leader writes it anew, from its clock and the switches' generation ids",
    LEADER: "a member becomes leader then",
    VIEW: "the leader writes it with the next version",
    DRAINS: "nothing is drained then: drain the elements again",
    MEMBERS: "the member writes it anew",
    RELAYS: "the relay writes it anew",
}


def kind_of(key: str) -> type[Record] | None:
    """Return the type of a key's value; None for a key that SOPA does not write.

    >>> kind_of("relays/r1").__name__, kind_of("notes")
    ('RelayRecord', None)
    """
    if key in _SINGLE:
        return _SINGLE[key]
    group, slash, name = key.partition("/")
    return _MANY.get(group + slash) if name else None


def check_identity(name: str, url: str) -> None:
    """Raise `RecordError` if nobody could read the record of a member or relay of this name and URL."""
    for what, text, most in (("name", name, MAX_NAME), ("URL", url, MAX_URL)):
        if text != printable(text, most):
            raise RecordError(f"the {what} {text!r:.80} must be printable ASCII, of {most} characters at most")


def leased(key: str) -> bool:
    """Tell whether a key is bound to its writer's lease; what others go on from (term, view, drains, charter) never is.

    >>> leased("leader"), leased("members/m1"), leased("term")
    (True, True, False)
    """
    return key == LEADER or key.startswith((MEMBERS, RELAYS))


def write(record: Record) -> str:
    """Return a record as a key's value.

    >>> write(Leader("m1", 7, "http://192.0.2.1:8080"))
    '{"name":"m1","term":7,"url":"http://192.0.2.1:8080"}'
    """
    return json.dumps(msgspec.to_builtins(record), separators=(",", ":"))


def read(key: str, value: str) -> Record:
    """Return the record that is the value of a key, without the cluster's name; `RecordError` if SOPA did not write it.

    >>> read("term", '{"term": 7}')
    Term(term=7)
    >>> read("term", '{"term": "7"}')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sopa_ryu.cluster.records.RecordError: the key term is not as SOPA writes it: term: expected `int`, got `str`. ...
    """
    kind, shown = kind_of(key), printable(key, MAX_NAME)
    if kind is None:
        raise RecordError(f"the key {shown} is none of SOPA's: delete it, or give other programs another name than the cluster's")
    try:
        record: Record = decode(_DECODERS[kind], value)
        if isinstance(record, MemberRecord | RelayRecord) and not key.endswith(f"/{record.name}"):
            raise ProtocolError(f"name: expected the key's, got {record.name!r:.60}", "name")
    except ProtocolError as error:
        raise RecordError(f"the key {shown} is not as SOPA writes it: {error}. It was changed by hand or by another program. "
                          f"{_mend(key)}") from None  # fmt: skip
    return record


def _mend(key: str) -> str:
    group, slash, _ = key.partition("/")
    return f"Put its value back, or delete the key ({_MENDS[group + slash]})"
