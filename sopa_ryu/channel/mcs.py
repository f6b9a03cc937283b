"""The part of the push channel that names the hosts that run MCS (docs/mcs.md). Pure.

An agent with the policy ``mcs`` says so in the request for its channel (``policy=mcs&mcs=1&channel-kind=paths``); agents that do
not, and older ones, get none of what follows. Hosts scatter to one another that run the same variant: MCS version and channel kind.
The snapshot has the list of the hosts of the agent's variant (``mcs``, and its number), a message of type ``mcs`` changes it
between versions of the fabric, the acknowledgement has the number of the list in force.

A list has two properties more. ``known`` is the number of the latest list that all hosts of it have acknowledged: with the kind
``ports`` a host may scatter only when every receiver knows that it does, as an unknown host's ports are not translated back.
``complete`` is false for the first seconds of a controller, when most agents have not come back yet: hosts that an agent knows from
the controller before stay in its list until then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address
from typing import Any, NamedTuple
from urllib.parse import urlencode

POLICY = "mcs"
VERSION = 1
"""Of the MCS option, the one that this release writes and reads."""
MIN_CHANNELS, MAX_CHANNELS, DEFAULT_CHANNELS = 2, 16, 8
MAX_NAME = 20
"""Characters of a name that an agent gives itself."""


class ChannelKind(StrEnum):
    """The difference between the channels of a connection."""

    PATHS = "paths"
    """Each is a candidate path of the flow, by its label."""
    PORTS = "ports"
    """Each has a source port of its own, by which any network that hashes spreads them."""


class Variant(NamedTuple):
    """The version of MCS and the kind of channels, as an agent names them: hosts of the same variant scatter to one another."""

    version: int
    kind: str


class HostList(NamedTuple):
    """The hosts that run one variant.

    Attributes:
        number: It rises with each change, while the controller runs.
        known: The latest number that every host of the list has acknowledged.
        complete: Whether a host that is missing does not run it any more, rather than has not come back yet.
    """

    number: int
    hosts: frozenset[IPv4Address]
    known: int
    complete: bool


class HostChange(NamedTuple):
    """A change of the list, or a whole one.

    Attributes:
        whole: Whether ``added`` is the whole list.
    """

    number: int
    whole: bool
    added: frozenset[IPv4Address]
    removed: frozenset[IPv4Address]
    known: int
    complete: bool


# -- the request --------------------------------------------------------------------------------------------------------


def request(policy: str, variant: Variant | None) -> str:
    """Return the part of the channel's query that names an agent's policy.

    >>> request("mcs", Variant(1, "paths"))
    'policy=mcs&mcs=1&channel-kind=paths'
    >>> request("round-robin", None)
    'policy=round-robin'
    """
    named = {"mcs": variant.version, "channel-kind": variant.kind} if variant else {}
    return urlencode({"policy": policy, **named})


def requested(query: Mapping[str, Sequence[str]]) -> tuple[str | None, Variant | None]:
    """Return the policy and the variant of MCS that a channel's query names; None for what it does not, or not properly.

    >>> requested({"policy": ["mcs"], "mcs": ["1"], "channel-kind": ["ports"]})
    ('mcs', Variant(version=1, kind='ports'))
    >>> requested({"policy": ["mcs"], "mcs": ["many"], "channel-kind": ["ports"]})
    ('mcs', None)
    """
    policy, version, kind = ([*query.get(name, []), None][0] for name in ("policy", "mcs", "channel-kind"))
    policy = policy and policy[:MAX_NAME]
    if not version or not kind or len(kind) > MAX_NAME or len(version) > MAX_NAME or not version.isdecimal():
        return policy, None
    return policy, Variant(int(version), kind)


# -- the controller's messages ------------------------------------------------------------------------------------------


def fields(its: HostList) -> dict[str, Any]:
    """Return what a snapshot has of a list."""
    return {
        "mcs": _texts(its.hosts),
        "mcs_number": its.number,
        "mcs_known": its.known,
        "mcs_complete": its.complete,
    }


def change(before: HostList, after: HostList) -> str:
    """Return the message that leads from one list to a later one.

    >>> one, two = IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3")
    >>> first, second = HostList(1, frozenset([one]), 1, True), HostList(2, frozenset([two]), 1, True)
    >>> news = read(json.loads(change(first, second)))
    >>> news.added, news.removed
    (frozenset({IPv4Address('10.0.0.3')}), frozenset({IPv4Address('10.0.0.2')}))
    """
    return json.dumps(
        {
            "type": "mcs",
            "number": after.number,
            "added": _texts(after.hosts - before.hosts),
            "removed": _texts(before.hosts - after.hosts),
            "known": after.known,
            "complete": after.complete,
        }
    )


def read(message: Mapping[str, Any]) -> HostChange | None:
    """Return what a message of the controller says about the hosts that run MCS; None if it says nothing.

    Raises:
        ValueError: If it is malformed.
    """
    if message.get("type") == "mcs":
        added, removed = (_addresses(message, name) for name in ("added", "removed"))
        prefix, whole = "", False
    elif message.get("type") == "snapshot" and "mcs" in message:
        added, removed = _addresses(message, "mcs"), frozenset[IPv4Address]()
        prefix, whole = "mcs_", True
    else:
        return None
    number, known = (message.get(f"{prefix}{name}") for name in ("number", "known"))
    complete = message.get(f"{prefix}complete")
    if type(number) is not int or type(known) is not int or not 0 <= known <= number or type(complete) is not bool:
        raise ValueError(
            f"the list of hosts that run MCS has number {number!r:.20}, known {known!r:.20}, complete {complete!r:.20}"
        )
    return HostChange(number, whole, added, removed, known, complete)


def _texts(hosts: frozenset[IPv4Address]) -> list[str]:
    return [str(host) for host in sorted(hosts, key=int)]


def _addresses(message: Mapping[str, Any], name: str) -> frozenset[IPv4Address]:
    value = message.get(name)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{name} is no list of addresses: {value!r:.60}")
    try:
        return frozenset(map(IPv4Address, value))
    except AddressValueError as error:
        raise ValueError(f"{name} has what is no address: {error!s:.60}") from error
