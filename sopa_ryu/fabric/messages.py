"""Messages between the controller's core and the switches, as plain data. Pure.

`sopa_ryu.southbound.openflow` turns what goes out into OpenFlow 1.3 and what comes back into the answers named here.
A request is answered once, by a value or by a `Refusal`. Two requests are equal only if they are the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from flowrules.model import Does, Field, Flow, Group
from topologies.failures import Reason


class SwitchConnection(Protocol):
    """A switch's OpenFlow channel, as far as the core looks at it."""

    @property
    def dpid(self) -> int:
        """The datapath id."""

    @property
    def address(self) -> str:
        """The IP address that the switch connects from."""

    def ports(self) -> Mapping[int, Reason | None]:
        """Return the switch's ports by number, each with the reason why it carries no packets, or None if it does."""

    def certified_names(self) -> Collection[str] | None:
        """Return the names in the certificate that the switch has shown; None if it has shown none."""


class Installed(NamedTuple):
    """A flow entry that a switch reports: table, priority, cookie, and the match as in `flowrules.model.Flow`.

    ``does`` is what it does with a packet, `UNKNOWN_INSTRUCTIONS` if no rule does so; None if that does not matter, as for an entry
    that the switch learned itself.
    """

    table: int
    priority: int
    cookie: int
    match: tuple[Field, ...]
    does: Does | None = None


UNKNOWN_INSTRUCTIONS = Does((), (), -1, None)


class InstalledState(NamedTuple):
    """The flow entries of a switch, and its groups, each with the ports of its buckets in order."""

    flows: list[Installed]
    groups: dict[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False, slots=True)
class RoleRequest:
    """Become master, or slave, with a generation id, or with None ask for the role (OpenFlow 1.3, section 6.3.4).

    The answer is a bool: whether this controller is the switch's master now.
    """

    generation: int | None
    slave: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class GenerationRequest:
    """Ask for the latest generation id that a controller has claimed the switch with (OpenFlow 1.3, section 6.3.4).

    The answer is a number of 64 bits, or None if the switch knows none.
    """


@dataclass(frozen=True, eq=False, slots=True)
class EchoRequest:
    """Ask whether the switch is there. The answer is None, and everything that the switch sent before has arrived."""


@dataclass(frozen=True, eq=False, slots=True)
class FlowsRequest:
    """Read all flow entries. The answer is a list of `Installed`."""


@dataclass(frozen=True, eq=False, slots=True)
class GroupsRequest:
    """Read all groups. The answer is a dict from group id to the ports of its buckets in order."""


@dataclass(frozen=True, eq=False, slots=True)
class BarrierRequest:
    """Confirm that everything before has been processed. The answer is None."""


@dataclass(frozen=True, eq=False, slots=True)
class OtherRequest:
    """A question that the core has not asked: statistics, or an audit of the rules."""


class AddFlow(NamedTuple):
    """Install a flow entry; one of the same table, priority and match is overwritten."""

    flow: Flow
    version: int


class DeleteFlow(NamedTuple):
    """Remove exactly one flow entry."""

    entry: Installed


class AddGroup(NamedTuple):
    """Install a fast-failover group."""

    group: Group


class ModifyGroup(NamedTuple):
    """Change the buckets of a fast-failover group that is there."""

    group: Group


class DeleteGroup(NamedTuple):
    """Remove a group."""

    group_id: int


class SendProbe(NamedTuple):
    """Send an LLDP probe out of a port."""

    port: int


class SendFrame(NamedTuple):
    """Have a switch process a frame by its tables, as if it came from another switch."""

    frame: bytes


class Refusal(NamedTuple):
    """An OpenFlow error message: its type in one word (``flow_mod_failed``), and all of it in words."""

    kind: str
    text: str
    is_slave: bool = False
    """Whether the switch refused it because another controller is its master."""


class Heard(NamedTuple):
    """An LLDP frame: the sender's datapath id and port if it is a probe of ours, otherwise None and the sender's name."""

    dpid: int | None
    port: int | None
    text: str


Request = RoleRequest | GenerationRequest | EchoRequest | FlowsRequest | GroupsRequest | BarrierRequest | OtherRequest
Modification = AddFlow | DeleteFlow | AddGroup | ModifyGroup | DeleteGroup
Message = Request | Modification | SendProbe | SendFrame
Answer = Any
