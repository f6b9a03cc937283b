"""What follows from an observation, for the edges to carry out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from sopa_ryu.fabric.messages import SwitchConnection
from sopa_ryu.fabric.state import Change
from sopa_ryu.fabric.switch_session import SwitchSession


@dataclass
class Effects:
    """What follows from an observation."""

    due: dict[SwitchSession, None] = field(default_factory=dict)
    """Sessions that have messages due."""
    begun: list[SwitchSession] = field(default_factory=list)
    """Sessions that have begun just now."""
    close: list[SwitchConnection] = field(default_factory=list)
    """Connections to be closed."""
    admitted: list[SwitchSession] = field(default_factory=list)
    """Switches that have confirmed their rules just now, for the first time over their connection."""
    tell_agents: bool = False
    """Whether agents have to be sent the fabric's version: it is new, or the first that is known."""
    visible: bool = False
    """Whether the state that the page shows may have changed."""
    in_force: list[Change] = field(default_factory=list)
    """Versions whose rules every connected switch has confirmed."""
    outranked: str = ""
    """In a cluster: why this controller leads no longer, in words; nothing while no switch says so."""

    def add(self, other: Effects) -> None:
        """Add what follows from another observation, which came later."""
        self.due |= other.due
        self.begun += other.begun
        self.close += other.close
        self.admitted += other.admitted
        self.tell_agents |= other.tell_agents
        self.visible |= other.visible
        self.in_force += other.in_force
        self.outranked = other.outranked or self.outranked
