"""A fabric that is only a state: what REST interface and page read, without switches."""

from typing import Any

from flowrules.label import Carrier
from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.trace_desk import Asked, Trace
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
        self.notifier = Notifier(state.tree, lambda: state.view)
        self.arbiter = ArbiterNotifier(state.tree, lambda: state.view, state.epoch)
        self.carrier = Carrier.MAC
        self.no_label: frozenset[Host] = frozenset()
        self.cluster: ClusterControl | None = None
        self.wiring = Wiring(state.tree, 30)
        caretaker = Caretaker(state.tree, SuspectPolicy.WARN)
        self.health = Monitor(state, self.notifier.probe_lists, self, caretaker, 0.0005, 102, self.link_capacity)

    def wiring_report(self) -> dict[str, Any]:
        return self.wiring.report({}, self.state.connected, {}, 0)

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        return None

    def link_capacity(self, link: Link) -> float | None:
        return None

    def switch_sessions(self) -> dict[Switch, tuple[str, int]]:
        return {}

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        return {}

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked) -> Trace:
        return self.notifier.begin_trace(ends, asked, self.state.version, clock.now())[0]

    def cancel_trace(self, trace: Trace) -> None:
        self.notifier.cancel_trace(trace, clock.now())

    def assign(self, host: Host, number: int, text: str) -> None:
        self.notifier.assign(host, number, text)

    def forged(self, host: Host, count: int) -> None:
        self.notifier.forged(host, count)

    def drain(self, name: str) -> None:
        self.set_drained(name, True)

    def set_drained(self, name: str, drained: bool) -> None:
        names = self.state.drained | {name} if drained else self.state.drained - {name}
        self.state.drain(names, 1)
