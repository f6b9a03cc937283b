"""A fabric that is only a state, with load, and what tests have happen to it."""

import gc
import json
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

import eventlet

from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.health import wire
from tests.helpers.stub_fabric import StubFabric
from topologies import Aliases, Clos, FatTree, Host, Link, Reason, Switch

CAPACITY = 10e6


def healthy_state(fabric: Clos | int, absent: Callable[[Switch], bool] = lambda switch: False) -> FabricState:
    """The state of a new fabric whose switches are all connected, but those that are absent."""
    state = FabricState(FatTree(fabric) if isinstance(fabric, int) else fabric, epoch=1)
    for switch in state.tree.switches():
        if not absent(switch):
            state.switch_heard(switch, {}, 0)
            state.switch_ready(switch, 0)
    state.settle(0)
    return state


class LoadedFabric(StubFabric):
    """A new fabric, or fat-tree of k, with load: the more, the higher the uplink's number; nothing is known of hosts' links."""

    def __init__(self, fabric: Clos | int, absent: Callable[[Switch], bool] = lambda switch: False) -> None:
        super().__init__(healthy_state(fabric, absent))
        self.changed: Callable[[], None] = lambda: None
        self.sent: float | None = None

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        if isinstance(link.lower, Host):
            return None if self.sent is None else (self.sent, 0.0)
        uplinks = self.state.tree.uplink_count(link.lower.level)
        return (link.upper.index + 0.9) / uplinks * self.link_capacity(link), 1000.0

    def link_capacity(self, link: Link) -> float:
        tree = self.state.tree
        return tree.capacity(link) * 1e6 if tree.mbit else CAPACITY

    def set_drained(self, name: str, drain: Drain | None, actor: str = "", why: str = "") -> None:
        super().set_drained(name, drain)
        self.changed()

    def send(self, rate: float) -> None:
        """Let each host send so much."""
        self.sent = rate
        self.changed()

    def call(self, names: dict[str, str]) -> None:
        """Give elements other aliases."""
        self.state.aliases = Aliases(names)
        self.changed()

    def cut(self, name: str) -> None:
        """Let the upper end of a link be down."""
        link = self.state.tree.link_by_name(name)
        self.state.port_changed(link.upper, self.state.tree.port(link.upper, link.lower), Reason.DOWN, 1)
        self.changed()

    def arbiter_reports(self, report: dict[str, Any]) -> None:
        session, _ = self.arbiter.enter("192.0.2.5", object(), 1)
        self.arbiter.received(session, json.dumps({"type": "ack", "epoch": 1, "version": 1, "report": report}), 1)
        self.changed()

    def arbiter_goes(self) -> None:
        for session in list(self.arbiter.sessions.values()):
            self.arbiter.closed(session)
        self.changed()

    def links_measured(self, lost: dict[str, float], delayed_us: dict[str, float]) -> None:
        """Let an evaluation find what links lose downwards, by five hosts, and what they add to 10 us there and back."""
        its, tree = self.health, self.state.tree
        size, number = its.elements.links, {tree.name(link): n for n, link in its.elements.present}
        loss, delay = array("f", [0.0] * 2 * size), array("f", [10.0] * size)
        for name, share in lost.items():
            loss[size + number[name]] = share
        for name, more in delayed_us.items():
            delay[number[name]] += more
        found = {"down": True, "confidence": 1.0, "hosts": 5}
        suspects = [{"link": number[name], "loss": share, **found} for name, share in lost.items()]
        about = {"suspects": suspects, "forged": {}, "plan": {}}
        its._follow(wire.read_health(wire.health(about, loss.tobytes(), delay.tobytes())[wire.HEADER.size :]))
        self.changed()

    def garbage(self) -> dict[str, int]:
        """Turn off automatic collection, collect the controller side's garbage, and return its number of objects by type."""
        if gc.isenabled():
            gc.collect()  # what the start has left
            gc.disable()
        eventlet.sleep(0.01)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = Counter(type(each).__qualname__ for each in gc.garbage)
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()  # which is garbage again
        return kinds
