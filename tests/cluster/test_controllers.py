"""Three real controllers on a real etcd and a real Open vSwitch: one leads, another takes over (docs/cluster.md).

How soon it takes over is shown by tests/timing/test_takeover.py.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.channel import mcs
from sopa_ryu.channel.messages import Report, encode
from tests.helpers.cluster import TOKEN, Cluster, running_cluster
from tests.helpers.commands import ask
from tests.helpers.relay import Agent, agent
from tests.helpers.waiting import eventually
from topologies import Clos, FatTree

pytestmark = pytest.mark.switch


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as its:
        yield its


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.wait_in_force({})
    shared.wait_whole()


@pytest.fixture
def leader(cluster: Cluster) -> str:
    return str(eventually(cluster.leader))


def test_one_member_leads_and_the_others_follow_what_it_has_committed(cluster: Cluster) -> None:
    cluster.set_link("a0_0-c0_0", up=False)
    cluster.wait_in_force({"a0_0-c0_0": "down"})
    committed = cluster.key("view")
    for name in cluster.standbys():
        eventually(lambda name=name: cluster.failures(name), {"a0_0-c0_0": "down"})
        body = cluster.fabric(name)
        assert (body["epoch"], body["version"]) == (committed["term"], committed["version"])
        paths = cluster.members[name].get("/paths", src="10.0.0.2", dst="10.2.0.2").json()
        assert [path["up"] for path in paths["candidates"]] == [[1, 0], [0, 1], [1, 1]]
    cluster.set_link("a0_0-c0_0", up=True)


def test_a_slow_engine_delays_versions_and_a_killed_leader_has_a_successor(cluster: Cluster, leader: str) -> None:
    healthy, term, log = cluster.rules(), cluster.fabric(leader)["epoch"], cluster.members[leader].log
    said = len(log.read_text())
    cluster.proxy.seconds = 1.2  # more than a write may take at first
    try:
        cluster.set_link("e1_0-a1_1", up=False)
        cluster.wait_in_force({"e1_0-a1_1": "down"})
        assert (cluster.leader(), cluster.fabric(leader)["epoch"]) == (leader, term)
        assert re.search(r"etcd took \S+ s to keep version", log.read_text()[said:])
        assert "leads no longer" not in log.read_text()[said:]
        cluster.members[leader].stop(signal.SIGKILL)
        cluster.set_link("a0_0-c0_0", up=False)
        successor = cluster.next_leader(leader)
        cluster.wait_in_force({"a0_0-c0_0": "down", "e1_0-a1_1": "down"})
        assert cluster.fabric(successor)["epoch"] > term
    finally:
        cluster.proxy.seconds = 0.0
    cluster.restart(leader)
    assert cluster.leader() == successor
    for link in ("a0_0-c0_0", "e1_0-a1_1"):
        cluster.set_link(link, up=True)
    cluster.wait_in_force({})
    eventually(cluster.rules, healthy)


def test_a_leader_that_is_ended_gives_its_lease_back_and_drains_outlive_it(cluster: Cluster, leader: str) -> None:
    done = ask(cluster.members[cluster.standbys()[0]], "drain", "c0_0")
    assert done.exit_code == 0, done.output
    cluster.wait_in_force({"c0_0": "drained"})
    assert ask(cluster.members[leader], "drain", "c1_1", "--reason", "fan", "--until", "5s", "--wait", "0").exit_code == 0
    cluster.members[leader].stop()
    assert (cluster.key("leader") or {}).get("name") != leader
    successor = cluster.next_leader(leader)
    cluster.wait_in_force({"c0_0": "drained"})  # the successor has ended the other one
    said = ask(cluster.members[successor], "events", "--element", "c1_1", "--json").stdout
    events = [event for event in map(json.loads, said.splitlines()) if event["kind"] != "switch connected"]
    told = [(event["kind"], event["actor"], event["cause"].partition(" (")[0]) for event in events]
    assert told[-2:] == [("drained", "operator from 127.0.0.1", "fan"), ("restored", "sopa", "its time is over")]
    assert ask(cluster.members[successor], "restore", "c0_0").exit_code == 0
    cluster.restart(leader)


def test_without_the_engine_nothing_is_decided_and_forwarding_goes_on(cluster: Cluster, leader: str) -> None:
    before, member = cluster.rules(), cluster.members[leader]
    said = len(member.log.read_text())
    for node in range(3):
        cluster.etcd.pause(node)
    try:
        eventually(lambda: "leads no longer" in member.log.read_text()[said:])
        refused = member.change("PUT", "/drains/c0_0")
        assert refused.status_code == 503
        assert "no member leads" in refused.text
        assert cluster.fabric(leader)["cluster"]["leader"] is None
        assert ask(cluster.members[leader], "status").exit_code == 3
        assert cluster.rules() == before
        assert member.get("/paths", src="10.0.0.2", dst="10.2.0.2").json()["total"] == 4
    finally:
        for node in range(3):
            cluster.etcd.resume(node)
    # its nodes elect anew; who led before may lead for a moment
    eventually(lambda: drained(cluster))
    cluster.wait_in_force({"c0_0": "drained"})
    eventually(lambda: drained(cluster, undo=True))


def drained(cluster: Cluster, undo: bool = False) -> bool:
    """Drain c0_0, or undo that; return False if no leader has committed it."""
    leader = cluster.leader()
    return leader is not None and cluster.members[leader].change("DELETE" if undo else "PUT", "/drains/c0_0").is_success


def test_lost_keys_are_written_again_under_a_higher_term(cluster: Cluster, leader: str) -> None:
    term = cluster.fabric(leader)["epoch"]
    assert cluster.members[leader].change("PUT", "/drains/c0_0").status_code == 200
    cluster.wait_in_force({"c0_0": "drained"})
    for harm in (("put", "/sopa/leader", "nobody"), ("del", "--prefix", "/sopa/")):
        cluster.etcd.ctl(*harm)
        known = eventually(lambda: cluster.key("term"), lambda its, term=term: bool(its) and its["term"] > term)
        term = known["term"]
        cluster.wait_in_force({"c0_0": "drained"})
    eventually(lambda: cluster.key("drains"))
    eventually(lambda: drained(cluster, undo=True))


def test_any_member_leads_to_the_leader_and_one_of_another_fabric_takes_no_part(
    cluster: Cluster, leader: str, tmp_path: Path
) -> None:
    openflow, rest = free_ports(2)
    options = [f"--sopa-cluster={cluster.etcd.address()}", "--sopa-cluster-member=other"]
    with ControllerProcess(FatTree(2), tmp_path / "other.log", openflow, rest, options=options) as other:
        eventually(lambda: "does not take part in cluster sopa" in other.log.read_text())
        assert "Give all members the same fabric file" in other.log.read_text()
        for name in cluster.members:
            done = ask(cluster.members[name], "cluster", "--json")
            assert done.exit_code == 0, done.output
            body = json.loads(done.stdout)
            assert body["leader"] == leader
            assert {member["name"] for member in body["members"]} == set(cluster.members)
        done = ask(cluster.members[cluster.standbys()[0]], "cluster", "step-down")
        assert done.exit_code == 0, done.output
        assert cluster.next_leader(leader) in cluster.members


def test_a_controller_without_a_cluster_loads_nothing_of_it() -> None:
    code = "import sys, sopa_ryu.manager as m; m.eventlet.monkey_patch(); m.make_ryu_importable(); import sopa_ryu.app; "
    code += "print([name for name in sys.modules if name.startswith('sopa_ryu.cluster') or name == 'httpx'])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def taken(member: ControllerProcess) -> bool:
    """Tell whether a controller has taken reports of probes."""
    metrics = httpx.get(f"{member.url}/metrics").text
    return re.search(r'sopa_probe_reports_total\{outcome="taken"\} [1-9]', metrics) is not None


def report(its: Agent, message: dict[str, Any]) -> None:
    its.channel.send(encode(Report(message["number"])))


def until(its: Agent, host: str, listed: bool = True) -> None:
    """Follow what comes until a host is listed of those that run MCS, or not any more."""
    while (IPv4Address(host) in its.scatters) is not listed:
        its.follow()


def test_relays_agents_probe_and_hear_of_each_others_mcs_whoever_leads(cluster: Cluster, leader: str) -> None:
    state = cluster.members["m0"].state_dir
    query = mcs.request(mcs.POLICY, mcs.Variant(mcs.VERSION, mcs.ChannelKind.PATHS))
    with ExitStack() as stack:
        relays = []
        for name, port in zip(("first", "second"), free_ports(2), strict=True):
            relay = RelayProcess(cluster.etcd.address(), cluster.directory / f"{name}.log", port, state)
            relays.append(stack.enter_context(relay))
            eventually(lambda relay=relay: relay.get("/sopa/v1/failures").status_code, 200)

        def scattering(relay: RelayProcess, address: str) -> Agent:
            return stack.enter_context(agent(relay.url, address, TOKEN, query))

        one, other = scattering(relays[0], "10.0.0.2"), scattering(relays[1], "10.2.1.3")
        for its, host in ((other, "10.2.1.3"), (one, "10.2.1.3"), (other, "10.0.0.2")):
            until(its, host)
        for relay, address in zip(relays, ("10.0.0.3", "10.2.1.2"), strict=True):
            stack.enter_context(agent(relay.url, address, TOKEN, "probes=1", {"probes": report})).follow()
        for name in (leader, ""):
            member = cluster.members[name or cluster.next_leader(leader)]
            eventually(lambda member=member: member.get("/health").json()["probing"], 2)
            eventually(partial(taken, member))
            if name:
                member.stop()
        third = scattering(relays[1], "10.3.1.3")
        until(third, "10.0.0.2")
        for its in (one, other):
            until(its, "10.3.1.3")
            assert its.stopped == [], "another member leads, and no host has stopped"
        other.channel.close()
        for its in (one, third):
            until(its, "10.2.1.3", listed=False)
            assert its.stopped == [IPv4Address("10.2.1.3")]
    cluster.members[leader].start()


def test_members_take_another_fabric_once_the_leader_has(tmp_path: Path) -> None:
    """Standbys that read the changed file take no part until the leader does; then any of them leads."""
    tree = Clos(pods=1, edges=2, aggregations=2, cores=0, hosts=1, mbit={"host": 10, "edge": 10})
    with running_cluster(tmp_path, tree=tree) as its:
        former, term = str(its.leader()), (its.key("term") or {})["term"]
        for member in its.members.values():
            file = member.log.with_suffix(".fabric.yaml")
            file.write_text(json.dumps({**json.loads(file.read_text()), "gateways": ["h0_1_2"]}))
        for name in its.standbys():
            its.signal(name, signal.SIGUSR1)
            eventually(lambda name=name: "its fabric is another than the cluster's" in its.members[name].log.read_text())
        assert its.leader() == former
        its.signal(former, signal.SIGUSR1)
        its.wait(lambda: (its.key("term") or {})["term"], lambda latest: latest > term)
        its.wait_whole()
        assert (its.key("charter") or {})["fabric"]["gateways"] == ["h0_1_2"]
        its.wait_in_force({})
        assert all("Traceback" not in member.log.read_text() for member in its.members.values())
