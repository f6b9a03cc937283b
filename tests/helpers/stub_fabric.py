"""A fabric that is only a state: what REST interface and page read, without switches."""

from collections.abc import Callable
from typing import Any

from flowrules.label import Carrier
from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.channel.connected import ConnectedAgent, ConnectedAgents, Hand
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.channel.trace_desk import Asked, Trace
from sopa_ryu.events.store import Found, Query
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.suspects import Caretaker, SuspectPolicy
from sopa_ryu.fabric.wiring import Wiring
from sopa_ryu.health.monitor import Monitor
from sopa_ryu.rest.reader import ClusterControl
from sopa_ryu.runtime import clock
from topologies import Host, Link, Switch


class StubFabric:
    """Implements `sopa_ryu.rest.reader.FabricControl` on a state; nothing is known of traffic and switches."""

    def __init__(self, state: FabricState) -> None:
        self.state = state
        self.agents = ConnectedAgents(state.tree)
        self.agents.front = Relayed("", "", None)
        self.handed: list[Hand] = []
        self.arbiter = ArbiterNotifier(state.tree, lambda: state.view, state.epoch)
        self.carrier = Carrier.MAC
        self.no_label: frozenset[Host] = frozenset()
        self.cluster: ClusterControl | None = None
        self.wiring = Wiring(state.tree, 30)
        caretaker = Caretaker(state.tree, SuspectPolicy.WARN)
        self.health = Monitor(state, self.agents.probe_lists, self, caretaker, 0.0005, 102, self.link_capacity)

    def wiring_report(self) -> dict[str, Any]:
        return self.wiring.report({}, dict.fromkeys(self.state.connected, 0), 0)

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        return None

    def link_capacity(self, link: Link) -> float | None:
        return None

    def switch_sessions(self) -> dict[Switch, tuple[str, int]]:
        return {}

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        return {}

    def connect(self, host: Host, acknowledged: int = 0, *, traces: bool = True, carrier: str | None = None) -> None:
        """Let an agent be connected to the front, which has acknowledged a version just now."""
        now, name = clock.now(), self.state.tree.name(host)
        agent = ConnectedAgent(name, "192.0.2.1", carrier, None, None, acknowledged, None, None, now, 0, 0, traces)
        self.agents.change({host: agent}, (), now)

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked) -> Trace:
        trace, hands = self.agents.begin_trace(ends, asked, self.state.version, clock.now())
        self.handed += hands
        return trace

    def cancel_trace(self, trace: Trace) -> None:
        self.handed += self.agents.cancel_trace(trace, clock.now())

    def assign(self, host: Host, number: int, text: str) -> None:
        self.agents.probe_lists.assign(host, number, text)

    def forged(self, host: Host, count: int) -> None:
        pass

    def drain(self, name: str) -> None:
        self.set_drained(name, Drain())

    def set_drained(self, name: str, drain: Drain | None, actor: str = "", why: str = "") -> None:
        others = {other: its for other, its in self.state.drains.items() if other != name}
        self.state.drain(others if drain is None else others | {name: drain}, 1, actor, why)

    def aside(self, make: Callable[[], Any]) -> Any:
        return make()

    def find_events(self, query: Query) -> Found:
        return Found([], query.after, False)
