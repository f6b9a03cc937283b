"""The messages of the feed: the whole state of a fabric, in lists of bounded length."""

import json

import pytest

from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.evidence import GRACE_SECONDS
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.runtime import clock
from sopa_ryu.web.picture import Picture
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.picked import shown
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from tests.web.loaded_fabric import LoadedFabric, healthy_state
from topologies import Clos, Level, Reason, Switch
from topologies.fabric_file import parse

ABSENT = {f"e0_{leaf}-a0_{spine}": "absent" for leaf in range(100) for spine in range(3)}
LEAVES = Clos(pods=1, edges=200, aggregations=8, cores=0, hosts=48, links=ABSENT)


class Told:
    """A k=4 fabric, or another, what happens to it, and what is told of it."""

    def __init__(self) -> None:
        self.do_fabric("4")

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(*step.words, **step.options) or "")

    def do_fabric(self, text: str, odd_pods: str = "there", load: str = "yes") -> None:
        tree = LEAVES if text == "leaves" else int(text) if text.isdigit() else parse(text).fabric

        def absent(switch: Switch) -> bool:
            return odd_pods == "absent" and switch.pod % 2 > 0

        self.fabric = LoadedFabric(tree, absent) if load == "yes" else StubFabric(healthy_state(tree))
        self.state, self.tree, self.picture = self.fabric.state, self.fabric.state.tree, Picture(self.fabric)

    def do_port(self, switch: str, number: str, reason: str) -> None:
        self.state.port_changed(self.tree.switch(switch), int(number), Reason(reason), 1)

    def do_die(self, name: str) -> None:
        """Let a switch lose its channel, and all its links the carrier."""
        switch = self.tree.switch(name)
        for neighbour in self.tree.ports(switch).values():
            if isinstance(neighbour, Switch):
                self.state.port_changed(neighbour, self.tree.port(neighbour, switch), Reason.DOWN, 1)
        self._lose(switch)

    def _lose(self, switch: Switch) -> None:
        """Let a switch lose its channel, as `SwitchManager.disconnected` reports it."""
        self.state.management.lost(switch, 2)
        self.state.switch_lost(switch, 2)

    def do_lose_pods(self, end: str) -> None:
        for switch in [switch for switch in self.tree.switches() if switch.level is not Level.CORE and switch.pod < int(end)]:
            self._lose(switch)

    def do_silent_pod(self, pod: str) -> None:
        for core in self.tree.switches(Level.CORE):
            self.state.port_changed(core, int(pod) + 1, Reason.SILENT, 1)

    def do_grace(self, event: str) -> None:
        assert self.state.management.in_grace
        assert event == "ends"
        self.state.tick(2 + GRACE_SECONDS)

    def do_drain(self, *names: str) -> None:
        self.state.drain(names, 1)

    def do_reject(self, dpid: str, reason: str) -> None:
        self.state.rejected[int(dpid)] = reason

    def do_member(self, leader: str, confirmed: str = "yes", commits: str = "no", problem: str = "") -> None:
        self.fabric.cluster = its = StubCluster(leader)
        its.engine = {"reachable": not problem, "problem": problem or None}
        if confirmed == "no":  # as at a standby, to which no switch confirms rules
            self.state.connected.clear()
        self.state.commitment = Commitment("sopa") if commits == "yes" else None

    def do_relay(self, host: str) -> None:
        self.fabric.agents.probe_lists.relays(Relayed("r1", "192.0.2.31", object()), {self.tree.host(host)})

    def do_arbiter(self, report: str) -> None:
        assert isinstance(self.fabric, LoadedFabric)
        self.fabric.arbiter_reports(json.loads(report))

    def do_measured(self, link: str, lost: str) -> None:
        assert isinstance(self.fabric, LoadedFabric)
        self.fabric.links_measured({link: float(lost)}, {})

    def do_told(self, *parts: str) -> str:
        """Say parts of the message, all of which has a bounded length."""
        text = json.dumps(self.picture.message())
        assert len(text) < (64_000 if isinstance(self.fabric, LoadedFabric) else 4000)
        told = json.loads(text)
        assert told.pop("at") > 0
        for each in told["failures"]:
            assert each.pop("since") > 0
            each.pop("drain", None)
        return shown(told, [*parts])


@each_script(__file__, "picture")
def test_a_message_tells(script: Script) -> None:
    script.play(Told().handle)


def test_agents_that_lag_are_named_the_latest_first_by_the_steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: 1000.0)
    fabric = LoadedFabric(4)
    fabric.state.damping = HoldDown(30.0, 60.0)
    for trouble in (Reason.DOWN, None):
        fabric.state.port_changed(fabric.state.tree.switch("c0_0"), 1, trouble, 1000.0)
    version, hosts = fabric.state.version, fabric.state.tree.hosts()
    # the third one's version was sent only just now
    for host, acknowledged, since in zip(hosts, (version, 0, 0, 0), (None, 995.0, 999.9, 991.0), strict=False):
        fabric.connect(host, acknowledged)
        fabric.agents.sessions[host].behind_since = since
    told = Picture(fabric).message()
    agents = told["agents"]
    assert (agents["connected"], agents["behind"], agents["lagging_total"]) == (4, 3, 2)
    assert [agent["lag_seconds"] for agent in agents["lagging"]] == [9.0, 5.0]
    assert agents["hosts"] == "1111" + "0" * 12
    assert [each["held_seconds"] for each in told["failures"]] == [30.0]
