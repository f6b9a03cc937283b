"""The history of one run of the controller, as the switches and the network have seen it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sopa_ryu.fabric.messages import RoleRequest
from sopa_ryu.fabric.switch_session import ANSWER_SECONDS
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import Channel
from tests.models.reports import End, Reports
from topologies import Switch


@dataclass
class Ear:
    """The latest probe of a wrong neighbour at a port between switches, while it counts."""

    wrong_at: float | None = None

    def hear(self, as_planned: bool, now: float, patience: float) -> None:
        """Take a probe; a wrong neighbour is forgotten once nothing but planned ones were heard for so many seconds."""
        if not as_planned:
            self.wrong_at = now
        elif self.wrong_at is not None and now - self.wrong_at >= patience:
            self.wrong_at = None


@dataclass
class Run:
    """The history of one run of the controller.

    Attributes
    ----------
    accepted : set of Channel
        Those that a switch of the fabric with the planned ports has connected by.
    heard : set of Switch
        Those that have connected to it so.
    taken : set of Channel
        Those over which a switch has answered that another controller is the master, or of which it must be presumed.
    asked : dict of RoleRequest to float
        When the role was asked for.
    begun, in_force : list of int
        The versions that it has made while a switch could follow, and those that it has reported in force.
    sent : View or None
        The view that was last sent to agents.
    reports : Reports
        The reports of ports and channels that have reached the controller.
    """

    reports: Reports
    accepted: set[Channel] = field(default_factory=set)
    heard: set[Switch] = field(default_factory=set)
    taken: set[Channel] = field(default_factory=set)
    asked: dict[RoleRequest, float] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    in_force: list[int] = field(default_factory=list)
    sent: View | None = None
    version: int = 1
    ears: dict[End, Ear] = field(default_factory=dict)

    def in_time(self, request: RoleRequest, now: float) -> bool:
        """Tell whether an answer to a request for the role still counts."""
        return now < self.asked[request] + ANSWER_SECONDS
