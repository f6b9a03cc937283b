"""The interface of the controller that REST, page and feed use. Pure: an implementation needs no switches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from flowrules.label import Carrier
from sopa_ryu.fabric.state import FabricState
from topologies import Host, Link, Switch

if TYPE_CHECKING:
    from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
    from sopa_ryu.channel.notifier import Notifier
    from sopa_ryu.channel.trace_desk import Asked, Trace
    from sopa_ryu.health.monitor import Monitor
    from sopa_ryu.rest.cluster import ClusterControl


class FabricReader(Protocol):
    """The controller's view of the fabric, read-only.

    Attributes:
        state: Connections, failures, drains and versions.
        notifier: The agents' channel and its sessions.
        arbiter: The arbiter's.
        carrier: The place of the label.
        no_label: The hosts that may not choose paths.
        health: Which links lose packets.
    """

    state: FabricState
    notifier: Notifier
    arbiter: ArbiterNotifier
    carrier: Carrier
    no_label: Collection[Host]
    health: Monitor

    @property
    def cluster(self) -> ClusterControl | None:
        """The cluster that this controller is a member of; None without one."""

    def wiring_report(self) -> dict[str, Any]:
        """Return `Wiring.report` of this moment."""

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        """Return the bits per second upwards and downwards on a link; None if they are not known."""

    def link_capacity(self, link: Link) -> float | None:
        """Return the bits per second that fit through a link in each direction; None if that is not known."""

    def switch_sessions(self) -> Mapping[Switch, tuple[str, int]]:
        """Return the address of each connected switch and the version of its rules."""

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        """Ask a switch for its rules and compare them with the intended ones, as `rule_audit.rules` does.

        Raises:
            SwitchError: If the switch is not connected, or does not answer.
        """


class FabricControl(FabricReader, Protocol):
    """The fabric with the operations that change it."""

    def set_drained(self, name: str, drained: bool) -> None:
        """Drain (True) or restore (False) a link or switch.

        Raises:
            TopologyError, ValueError: If it cannot be drained.
            StateError: If the drain cannot be stored; nothing has changed.
            UndecidedError: In a cluster, if the drain cannot be committed; nothing has changed.
        """

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked) -> Trace:
        """Have the agent of the first host trace paths, or a flow, to the second one.

        Raises:
            TraceError: If it cannot now.
        """

    def cancel_trace(self, trace: Trace) -> None:
        """End a trace, unless it has ended."""
