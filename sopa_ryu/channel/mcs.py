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

from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv4Address
from typing import NamedTuple
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
