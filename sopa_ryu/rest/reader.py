"""What REST, page and feed need of the controller, and of its cluster: who leads, and which requests only it may answer. Pure.

An implementation needs no switches. `sopa_ryu.cluster.leadership` implements `ClusterControl`, and is not imported here: a
controller without a cluster loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowrules.label import Carrier
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.events.store import Found, Query
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.rest.operations import Problem
from topologies import Host, Link, Switch

T = TypeVar("T")
RETRY_SECONDS = 1
ALONE = "this controller is of no cluster: it was started without --sopa-cluster"


class UndecidedError(RuntimeError):
    """A change that was not made, because the engine does not answer or another member leads by now; the text says which."""


class ClusterControl(Protocol):
    """A member of a cluster, as REST, page and metrics use it."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads: only then it may change anything."""

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST, without a path; None while nobody leads."""

    def report(self) -> dict[str, Any]:
        """Return the body of ``GET /cluster``."""

    def step_down(self) -> None:
        """Give up the leadership, so that another member takes it; `UndecidedError` if this member does not lead any more."""


def in_short(cluster: ClusterControl) -> dict[str, Any]:
    """Return the field ``cluster`` of ``GET /fabric``."""
    report = cluster.report()
    return {"role": "leader" if cluster.is_leader else "standby", "term": report["term"], "leader": report["leader"]}


def for_page(cluster: ClusterControl) -> dict[str, Any]:
    """Return what the page says of a cluster: `in_short`, the members that are away, and whether etcd answers."""
    report = cluster.report()
    away = [member["name"] for member in report["members"] if member["role"] == "away"]
    return {**in_short(cluster), "away": away, "engine": report["engine"]["reachable"]}


def check_leads(cluster: ClusterControl | None, request_path: str) -> None:
    """Raise `Problem` if another member has to answer a request that changes something: 307 to the leader, or 503 without one."""
    if cluster is None or cluster.is_leader:
        return
    url = cluster.leader_url()
    if url is None:
        raise undecided("no member leads the cluster now: nothing has changed")
    detail = f"this controller stands by: the leader is at {url}, send the request there"
    raise Problem(HTTPStatus.TEMPORARY_REDIRECT, detail, {"Location": url.rstrip("/") + request_path})


def standing_by(url: str | None) -> Problem:
    """Return the problem (409) of a channel that this member does not take: agents and the arbiter need the leader, or a relay."""
    where = f"the leader is at {url}" if url is not None else "no member leads the cluster now"
    return Problem(HTTPStatus.CONFLICT, f"this controller stands by: {where}", {LEADER_HEADER: url or ""})


def undecided(text: str) -> Problem:
    """Return the problem of a change that was not made, and may be asked for again soon."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again", {"Retry-After": str(RETRY_SECONDS)})


if TYPE_CHECKING:
    from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
    from sopa_ryu.channel.connected import ConnectedAgents
    from sopa_ryu.channel.trace_desk import Asked, Trace
    from sopa_ryu.health.monitor import Monitor


class FabricReader(Protocol):
    """The controller's view of the fabric, read-only."""

    state: FabricState
    agents: ConnectedAgents
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

    def aside(self, make: Callable[[], T]) -> T:
        """Return what a pure function makes, in another thread: others go on meanwhile."""

    def find_events(self, query: Query) -> Found:
        """Return the events of a query; `StoreError` if they cannot be read."""

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        """Ask a switch for its rules and compare them with the intended ones, as `rule_audit.rules` does.

        `SwitchError` if the switch is not connected, or does not answer.
        """


class FabricControl(FabricReader, Protocol):
    """The fabric with the operations that change it."""

    def set_drained(self, name: str, drain: Drain | None, actor: str, why: str = "") -> None:
        """Drain a link or switch, or restore it (None); ``actor`` does it, and ``why`` it is restored.

        Raises:
            TopologyError, ValueError: If it cannot be drained.
            StateError: If the drain cannot be stored; nothing has changed.
            UndecidedError: In a cluster, if the drain cannot be committed; nothing has changed.
        """

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked) -> Trace:
        """Have the agent of the first host trace paths, or a flow, to the second one; `TraceError` if it cannot now."""

    def cancel_trace(self, trace: Trace) -> None:
        """End a trace, unless it has ended."""
