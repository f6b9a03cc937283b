"""Three real controllers on a real etcd and a real Open vSwitch: one leads, another takes over (docs/cluster.md)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from itertools import islice
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.channel import mcs, protocol
from sopa_ryu.channel.probes import Report, report_text
from sopa_ryu.channel.traces import BACK, Answer, Outcome, Request, answer_text, read_request
from sopa_ryu.cli import main
from tests.helpers.cluster import TOKEN, Cluster, running_cluster
from tests.helpers.relay import Agent, agent
from tests.helpers.running_agent import RunningAgent
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies import FatTree

pytestmark = pytest.mark.switch


LEASE_SECONDS = 3
"""For so long a member may be without a processor and still leads, which most tests rely on."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), lease=LEASE_SECONDS) as its:
        yield its


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Three members of which one leads a healthy fabric; tests leave it so."""
    yield shared
    shared.wait_in_force({})
    shared.wait_whole()


def rules(cluster: Cluster) -> dict[str, list[str]]:
    """Return the flow entries of some switches without counters and versions."""
    found = {}
    for name in ("a0_0", "e0_0", "c0_0"):
        lines = cluster.ovs.ofctl("dump-flows", name, "--no-stats").splitlines()
        found[name] = sorted(re.sub("(cookie=0x[0-9a-f]{8})[0-9a-f]{8}", r"\1", line) for line in lines)
    return found


def next_leader(cluster: Cluster, former: str) -> str:
    """Wait until another member leads, and return its name."""

    def another() -> str | None:
        leader = cluster.leader()
        return leader if leader != former else None

    return str(eventually(another, seconds=60.0))


@contextmanager
def agents(cluster: Cluster, count: int) -> Iterator[list[RunningAgent]]:
    """Agents of the first hosts, each of which knows all members."""
    urls = tuple(member.url for member in cluster.members.values())
    token = cluster.members["m0"].agent_token_file
    running: list[RunningAgent] = []
    try:
        for host in islice(cluster.tree.hosts(), count):
            running.append(RunningAgent(urls, cluster.tree.ip(host), token))
        yield running
    finally:
        for its in running:
            its.end()


def sopa(cluster: Cluster, name: str, *words: str) -> Result:
    """Return what a command answers that asks one member."""
    its = cluster.members[name]
    there = ["--controller", its.url, "--token-file", str(its.state_dir / "token")]
    return CliRunner().invoke(main, [*words, *there])


def test_one_member_leads_and_the_others_follow_what_it_has_committed(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.set_link("a0_0-c0_0", up=False)
    cluster.wait_in_force({"a0_0-c0_0": "down"})
    committed = cluster.key("view")
    assert committed is not None
    for name in cluster.standbys():
        eventually(lambda name=name: cluster.failures(name), {"a0_0-c0_0": "down"})
        body = cluster.fabric(name)
        assert (body["epoch"], body["version"]) == (committed["term"], committed["version"])
        paths = cluster.members[name].get("/paths", src="10.0.0.2", dst="10.2.0.2").json()
        assert [path["up"] for path in paths["candidates"]] == [[1, 0], [0, 1], [1, 1]]
    cluster.set_link("a0_0-c0_0", up=True)


def test_another_member_leads_when_the_leader_is_killed_and_knows_what_failed_meanwhile(cluster: Cluster) -> None:
    former, healthy = cluster.leader(), rules(cluster)
    assert former is not None
    term = cluster.fabric(former)["epoch"]
    cluster.set_link("e1_0-a1_1", up=False)
    cluster.wait_in_force({"e1_0-a1_1": "down"})
    cluster.members[former].stop(signal.SIGKILL)
    cluster.set_link("a0_0-c0_0", up=False)
    leader = next_leader(cluster, former)
    cluster.wait_in_force({"a0_0-c0_0": "down", "e1_0-a1_1": "down"})
    assert cluster.fabric(leader)["epoch"] > term
    cluster.restart(former)
    assert cluster.leader() == leader
    for link in ("a0_0-c0_0", "e1_0-a1_1"):
        cluster.set_link(link, up=True)
    cluster.wait_in_force({})
    eventually(lambda: rules(cluster), healthy)


def test_a_leader_that_was_stopped_goes_on_as_a_standby_and_changes_nothing(cluster: Cluster) -> None:
    former = cluster.leader()
    assert former is not None
    cluster.signal(former, signal.SIGSTOP)
    try:
        cluster.set_link("a0_0-c0_0", up=False)
        next_leader(cluster, former)
        cluster.wait_in_force({"a0_0-c0_0": "down"})
        before = rules(cluster)
    finally:
        cluster.signal(former, signal.SIGCONT)
    eventually(lambda: cluster.failures(former), {"a0_0-c0_0": "down"})
    cluster.wait_whole()
    assert rules(cluster) == before
    assert "leads no longer" in cluster.members[former].log.read_text()
    cluster.set_link("a0_0-c0_0", up=True)


def test_a_leader_that_is_ended_hands_over_at_once(cluster: Cluster) -> None:
    former = cluster.leader()
    assert former is not None
    cluster.members[former].stop()
    leader = next_leader(cluster, former)
    assert "no leader" in cluster.members[leader].log.read_text()
    cluster.restart(former)


def test_drains_outlive_the_leader(cluster: Cluster) -> None:
    former = cluster.leader()
    assert former is not None
    assert cluster.members[former].change("PUT", "/drains/c0_0").status_code == 200
    cluster.wait_in_force({"c0_0": "drained"})
    cluster.members[former].stop()
    leader = next_leader(cluster, former)
    cluster.wait_in_force({"c0_0": "drained"})
    assert cluster.members[leader].change("DELETE", "/drains/c0_0").status_code == 200
    cluster.restart(former)


def test_without_the_engine_nothing_is_decided_and_forwarding_goes_on(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    before, log = rules(cluster), cluster.members[leader].log
    said = len(log.read_text())
    for node in range(3):
        cluster.etcd.pause(node)
    try:
        eventually(lambda: "leads no longer" in log.read_text()[said:])
        refused = cluster.members[leader].change("PUT", "/drains/c0_0")
        assert refused.status_code == 503
        assert "no member leads" in refused.text
        assert cluster.fabric(leader)["cluster"]["leader"] is None
        assert sopa(cluster, leader, "status").exit_code == 3
        assert rules(cluster) == before
        assert cluster.members[leader].get("/paths", src="10.0.0.2", dst="10.2.0.2").json()["total"] == 4
    finally:
        for node in range(3):
            cluster.etcd.resume(node)
    # its nodes elect anew; who led before may lead for a moment
    eventually(lambda: drained(cluster), seconds=60.0)
    cluster.wait_in_force({"c0_0": "drained"})
    eventually(lambda: drained(cluster, undo=True), seconds=60.0)


def drained(cluster: Cluster, undo: bool = False) -> bool:
    """Drain c0_0, or undo that; return False if no leader has committed it."""
    leader = cluster.leader()
    return leader is not None and cluster.members[leader].change("DELETE" if undo else "PUT", "/drains/c0_0").is_success


def test_an_engine_that_takes_over_a_second_for_a_write_delays_versions_and_nothing_else(cluster: Cluster) -> None:
    former = cluster.leader()
    assert former is not None
    term, log = cluster.fabric(former)["epoch"], cluster.members[former].log
    said = len(log.read_text())
    cluster.slow.seconds = 1.2  # more than a write may take at first
    try:
        cluster.set_link("a0_0-c0_0", up=False)
        cluster.wait_in_force({"a0_0-c0_0": "down"})
        assert (cluster.leader(), cluster.fabric(former)["epoch"]) == (former, term)
        assert re.search(r"etcd took \S+ s to keep version", log.read_text())
        assert log.read_text()[said:].count(" ERROR sopa.cluster") <= 2
        assert "leads no longer" not in log.read_text()[said:]
        cluster.members[former].stop(signal.SIGKILL)
        cluster.set_link("e1_0-a1_1", up=False)
        next_leader(cluster, former)
        cluster.wait_in_force({"a0_0-c0_0": "down", "e1_0-a1_1": "down"})
    finally:
        cluster.slow.seconds = 0.0
        for link in ("a0_0-c0_0", "e1_0-a1_1"):
            cluster.set_link(link, up=True)
    cluster.restart(former)


def test_a_switch_that_another_controller_has_claimed_with_a_higher_id_is_taken_back_by_a_higher_term(
    cluster: Cluster,
) -> None:
    leader = cluster.leader()
    assert leader is not None
    term = cluster.fabric(leader)["epoch"]
    openflow, rest = free_ports(2)
    log = cluster.directory / "stranger.log"
    # a controller without a cluster whose clock is ahead: its epoch is the generation id that it claims with
    with ControllerProcess(cluster.tree, log, openflow, rest, environment={"SOPA_TEST": "1"}) as stranger:
        targets = [member.openflow for member in cluster.members.values()]
        cluster.ovs.vsctl("set-controller", "a0_0", *targets, stranger.openflow)
        # by its log: the members may claim the switch again within milliseconds
        eventually(stranger.log.read_text, Containing("switch a0_0 admitted"))
        eventually(lambda: cluster.fabric(str(cluster.leader() or leader)).get("epoch", 0) > term, seconds=60.0)
        cluster.ovs.vsctl("set-controller", "a0_0", *targets)


def test_keys_that_are_lost_or_changed_by_hand_are_written_again_under_a_higher_term(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    term = cluster.fabric(leader)["epoch"]
    assert cluster.members[leader].change("PUT", "/drains/c0_0").status_code == 200
    cluster.wait_in_force({"c0_0": "drained"})
    cluster.etcd.ctl("put", "/sopa/leader", "nobody")
    eventually(lambda: (cluster.key("term") or {}).get("term", 0) > term)
    cluster.wait_in_force({"c0_0": "drained"})
    cluster.wait_whole()
    term = cluster.fabric(str(cluster.leader()))["epoch"]
    cluster.etcd.ctl("del", "--prefix", "/sopa/")
    eventually(lambda: (cluster.key("term") or {}).get("term", 0) > term)
    cluster.wait_in_force({"c0_0": "drained"})
    assert cluster.key("drains") is not None
    for member in cluster.members.values():
        member.change("DELETE", "/drains/c0_0")  # those that stand by name the leader


def test_a_member_with_another_fabric_takes_no_part_and_says_why(cluster: Cluster, tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    options = [f"--sopa-cluster={cluster.etcd.address()}", "--sopa-cluster-member=other"]
    with ControllerProcess(FatTree(6), tmp_path / "other.log", openflow, rest, options=options) as other:
        eventually(lambda: "does not take part in cluster sopa" in other.log.read_text())
        assert "give all members the same fabric file" in other.log.read_text()
        cluster.members[str(cluster.leader())].stop()
        eventually(cluster.leader)
    for name, member in cluster.members.items():
        if cluster.fabric(name) == {}:
            member.start()
    cluster.wait_whole()


def test_agents_leave_a_stopped_leader_for_the_next_and_never_go_back(cluster: Cluster) -> None:
    former = cluster.leader()
    assert former is not None
    with agents(cluster, 8) as running:
        eventually(lambda: {its.at for its in running}, {cluster.members[former].url})
        term = cluster.fabric(former)["epoch"]
        eventually(lambda: {its.version[0] for its in running}, {term})
        cluster.signal(former, signal.SIGSTOP)
        try:
            cluster.set_link("a0_0-c0_0", up=False)
            leader = next_leader(cluster, former)
            eventually(lambda: {its.at for its in running}, {cluster.members[leader].url})
            cluster.wait_in_force({"a0_0-c0_0": "down"})
            body = cluster.fabric(leader)
            eventually(lambda: {its.version for its in running}, {(body["epoch"], body["version"])})
            assert body["epoch"] > term
        finally:
            cluster.signal(former, signal.SIGCONT)
        cluster.wait_whole()
        # an agent that had no processor for long may have lost its channel meanwhile
        eventually(lambda: {its.at for its in running}, {cluster.members[leader].url})
        assert {dict(its.follower.view.failures)["a0_0-c0_0"] for its in running if its.follower.view} == {"down"}
        assert sum(its.follower.refused for its in running) == 0
    cluster.set_link("a0_0-c0_0", up=True)


def test_commands_reach_the_leader_by_any_member(cluster: Cluster) -> None:
    leader, standby = cluster.leader(), cluster.standbys()[0]
    assert leader is not None
    everywhere = {name: sopa(cluster, name, "cluster", "--json") for name in cluster.members}
    assert {name: done.exit_code for name, done in everywhere.items()} == dict.fromkeys(cluster.members, 0)
    for done in everywhere.values():
        body = json.loads(done.stdout)
        assert body["leader"] == leader
        assert {member["name"] for member in body["members"]} == set(cluster.members)
    done = sopa(cluster, standby, "drain", "c0_0")
    assert done.exit_code == 0, done.output
    cluster.wait_in_force({"c0_0": "drained"})
    assert sopa(cluster, standby, "restore", "c0_0").exit_code == 0
    done = sopa(cluster, standby, "cluster", "step-down")
    assert done.exit_code == 0, done.output
    next_leader(cluster, leader)


def test_a_controller_without_a_cluster_loads_nothing_of_it() -> None:
    code = (
        "import sys, sopa_ryu.manager as m; m.eventlet.monkey_patch(); m.make_ryu_importable(); import sopa_ryu.app; "
    )
    code += "print([name for name in sys.modules if name.startswith('sopa_ryu.cluster') or name == 'httpx'])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_agents_on_a_relay_probe_by_the_leaders_lists_and_their_reports_reach_it(cluster: Cluster) -> None:
    [port] = free_ports(1)
    state = cluster.members["m0"].state_dir
    options = ["--url", f"http://127.0.0.1:{port}"]
    with (
        RelayProcess(cluster.etcd.address(), cluster.directory / "relay.log", port, state, options=options) as relay,
        ExitStack() as stack,
    ):
        eventually(lambda: relay.get("/sopa/v1/failures").status_code, 200)
        one, other = (
            stack.enter_context(agent(relay.url, address, TOKEN, query="probes=1"))
            for address in ("10.0.0.2", "10.2.1.3")
        )
        for each in (one, other):
            each.follow()
        for _ in range(2):  # the leader is replaced, and the next one goes on
            leader = str(eventually(cluster.leader))
            member = cluster.members[leader]
            eventually(lambda member=member: member.get("/health").json()["probing"], 2)
            streams = one.expect("probes")
            assert {stream[0] for stream in streams["streams"]} == {"10.2.1.3"}
            one.channel.send(report_text(Report(streams["number"], ())))
            eventually(lambda member=member: taken(member) > 0)
            traced_by_relay(member, one)
            member.stop()
            next_leader(cluster, leader)
            member.start()


class Scattering:
    """An agent that runs MCS, and which hosts it has been told of."""

    def __init__(self, its: Agent) -> None:
        self.its = its
        self.hosts: set[str] = set()
        self.removed: list[str] = []

    def until(self, host: str, listed: bool = True) -> None:
        """Follow what comes until a host is listed, or not any more."""
        while (host in self.hosts) is not listed:
            text = self.its.channel.recv(PATIENCE_SECONDS)
            message = json.loads(text)
            if message["type"] == "snapshot":
                self.hosts = set(message["mcs"])
            elif message["type"] == "mcs":
                self.hosts |= set(message["added"])
                self.hosts -= set(message["removed"])
                self.removed += message["removed"]
            self.its.view = protocol.receive(text, self.its.view, IPv4Address(message.get("host", "10.0.0.2")))
            self.its.acknowledge()


def test_agents_on_two_relays_hear_which_hosts_of_the_other_run_mcs_whoever_leads(cluster: Cluster) -> None:
    state = cluster.members["m0"].state_dir
    query = mcs.request(mcs.POLICY, mcs.Variant(mcs.VERSION, mcs.ChannelKind.PATHS))
    with ExitStack() as stack:
        relays = [
            stack.enter_context(RelayProcess(cluster.etcd.address(), cluster.directory / f"{name}.log", port, state))
            for name, port in zip(("first", "second"), free_ports(2), strict=True)
        ]

        def scattering(relay: RelayProcess, address: str) -> Scattering:
            eventually(lambda: relay.get("/sopa/v1/failures").status_code, 200)
            return Scattering(stack.enter_context(agent(relay.url, address, TOKEN, query=query)))

        one, other = scattering(relays[0], "10.0.0.2"), scattering(relays[1], "10.2.1.3")
        for its, host in ((other, "10.2.1.3"), (one, "10.2.1.3"), (other, "10.0.0.2")):
            its.until(host)
        leader = str(eventually(cluster.leader))
        cluster.members[leader].stop()
        next_leader(cluster, leader)
        third = scattering(relays[1], "10.3.1.3")
        third.until("10.0.0.2")
        for its in (one, other):
            its.until("10.3.1.3")
            assert its.removed == [], "another member leads, and no host has stopped"
        other.its.channel.close()
        for its in (one, third):
            its.until("10.2.1.3", listed=False)
            assert its.removed == ["10.2.1.3"]
        cluster.members[leader].start()


def traced_by_relay(member: ControllerProcess, at_relay: Agent) -> None:
    """Check that the leader traces the paths of an agent that is connected to a relay."""
    wanted = {"src": "10.0.0.2", "dst": "10.2.1.3", "count": 2}
    begun = httpx.post(
        f"{member.url}/sopa/v1/traces", json=wanted, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20.0
    )
    assert begun.status_code == 202, begun.text
    asked = read_request(at_relay.expect("trace"))
    assert isinstance(asked, Request)
    fates = [Outcome(place, BACK, 80_000) for place in range(len(asked.streams)) for _ in range(asked.probes)]
    at_relay.channel.send(answer_text(Answer(asked.number, tuple(fates), done=True)))
    found = eventually(lambda: member.get(f"/traces/{asked.number}").json(), lambda its: its["state"] != "running")
    assert found["state"] == "done"
    assert {path["sent"] for path in found["paths"]} == {2}


def taken(member: ControllerProcess) -> float:
    """Return how many reports of probes a controller has taken."""
    found = re.search(r'sopa_probe_reports_total\{outcome="taken"\} (\S+)', httpx.get(f"{member.url}/metrics").text)
    return float(found[1]) if found else 0.0
