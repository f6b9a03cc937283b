"""Relays on a real etcd, over real sockets; the leader's REST is that of a real controller."""

import json
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine
from sopa_ryu.rest.operations import PROBLEM
from tests.helpers.certificates import Authority
from tests.helpers.relay import TOKEN, Leader, agent, state_dir
from tests.helpers.running_agent import RunningAgent
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies.lab.etcd import PrivateEtcd

ADDRESS = "10.0.0.2"
EAGER = """
from sopa_ryu.cli import main
from sopa_ryu.cluster.relay import surplus
surplus.UNEVEN_SECONDS, surplus.UNEVEN_AGENTS = 0.0, 1
main()
"""
Start = Callable[..., RelayProcess]


@pytest.fixture(scope="module")
def one_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path_factory.mktemp("etcd"), 1) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """A controller without switches, whose REST answers."""
    openflow, rest = free_ports(2)
    log = tmp_path_factory.mktemp("controller") / "controller.log"
    with ControllerProcess(4, log, openflow, rest, options=["--sopa-no-switches"]) as its:
        yield its


@pytest.fixture
def cluster(one_etcd: PrivateEtcd, request: pytest.FixtureRequest) -> str:
    """The address of a cluster of the test's own."""
    return one_etcd.address(request.node.name.replace("[", "-").rstrip("]")[-60:].lstrip("-_."))


@pytest.fixture
def leader(cluster: str) -> Iterator[Leader]:
    engine = Engine(parse(cluster), timeout=PATIENCE_SECONDS)  # the disk may be busy
    yield Leader(engine)
    engine.close()


@pytest.fixture
def start(cluster: str, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a relay of the cluster, by name, and waits until it has seen a view."""
    relays: list[RelayProcess] = []

    def started(
        name: str = "r1", options: tuple[str, ...] = (), waits: bool = True, program: str = "", **more: Any
    ) -> RelayProcess:
        [port] = free_ports(1)
        state, log = state_dir(tmp_path / "state"), tmp_path / f"{name}.log"
        relays.append(RelayProcess(cluster, log, port, state, options=options, **more))
        if program:
            relays[-1].command[1:3] = ["-c", program]
        relays[-1].start()
        if waits:
            ready(relays[-1])
        return relays[-1]

    yield started
    for relay in relays:
        relay.stop()


def ready(relay: RelayProcess) -> None:
    """Wait until a relay has seen a view."""
    eventually(lambda: relay.get("/sopa/v1/failures").status_code, 200)


@pytest.fixture
def relay(leader: Leader, start: Start) -> RelayProcess:
    """A relay that has seen version 1 of term 7."""
    leader.commit(7, 1)
    return start()


def test_a_view_reaches_the_agents_and_their_acknowledgement_the_engine(leader: Leader, start: Start) -> None:
    relay = start(waits=False)
    with pytest.raises(InvalidStatus) as rejected, agent(relay.url, ADDRESS):
        pass
    assert rejected.value.response.status_code == 503
    assert b"has not seen a view" in rejected.value.response.body
    assert rejected.value.response.headers["Content-Type"] == PROBLEM
    leader.commit(7, 1)
    ready(relay)
    with agent(relay.url, ADDRESS) as first, agent(relay.url, "10.0.0.3") as second:
        assert first.follow() == second.follow() == (7, 1)
        assert first.view.cluster == parse(relay.command[4].partition("=")[2]).name
        eventually(lambda: leader.acknowledged("r1"), (2, 0, 7, 1))
        leader.commit(7, 2, {"a0_0-c0_1": "down"})
        assert first.follow() == (7, 2)
        assert second.follow(acknowledge=False) == (7, 2)
        eventually(lambda: leader.acknowledged("r1"), (2, 1, 7, 1))
        second.acknowledge()
        eventually(lambda: leader.acknowledged("r1"), (2, 0, 7, 2))
        assert first.kinds == second.kinds == ["snapshot", "delta"]
        metrics = relay.get("/metrics").text
        assert "sopa_relay_agents_connected 2.0" in metrics
        assert "sopa_relay_acknowledged_version 2.0" in metrics
    eventually(lambda: leader.acknowledged("r1"), (0, 0, 7, 2))


def test_without_the_engine_the_last_view_is_served_also_to_new_agents(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with PrivateEtcd(tmp_path / "etcd", 1) as etcd:
        engine = Engine(parse(etcd.address()), timeout=PATIENCE_SECONDS)
        leader = Leader(engine)
        leader.commit(7, 1)
        with RelayProcess(etcd.address(), tmp_path / "r1.log", port, state_dir(tmp_path / "state")) as relay:
            ready(relay)
            with agent(relay.url, ADDRESS) as its:
                its.follow()
                eventually(lambda: leader.acknowledged("r1"), (1, 0, 7, 1))
                etcd.kill(0)
                eventually(lambda: relay.get("/metrics").text, Containing("sopa_relay_engine_answers 0.0"))
                with agent(relay.url, "10.0.0.3") as late:
                    assert late.follow() == (7, 1)
                assert relay.get("/sopa/v1/failures").json()["version"] == 1
                etcd.restart(0)
                leader.commit(7, 2)
                assert its.follow() == (7, 2)
                eventually(lambda: leader.acknowledged("r1"), (1, 0, 7, 2))
            assert relay.stop() == 128 + signal.SIGTERM
        eventually(lambda: leader.relay("r1"), None)
        engine.close()


def test_an_agent_goes_to_another_relay_at_once_and_back_when_it_is_sent_and_keeps_its_paths_meanwhile(
    leader: Leader, start: Start
) -> None:
    leader.commit(7, 1)
    relays = start("r1", program=EAGER), start("r2", program=EAGER)
    urls, token_file = tuple(relay.url for relay in relays), relays[0].state_dir / "agent-token"
    with RunningAgent(urls, token_file=token_file) as its:
        first, second = sorted(relays, key=lambda relay: its.follower.controllers.urls.index(relay.url))
        eventually(lambda: leader.acknowledged(first.name), (1, 0, 7, 1))  # where the other may have sent it, if this was slow
        eventually(lambda: its.at, first.url)
        table = its.agent.labeller.tables
        with agent(first.url, "10.0.0.3") as other:
            other.follow()
            assert first.stop() == 128 + signal.SIGTERM
            with pytest.raises(ConnectionClosed, match="1001"):
                deque(iter(other.take, None), 0)
        eventually(lambda: leader.relay(first.name), None)  # at the end of its lease, if the engine was slow
        eventually(lambda: leader.acknowledged(second.name), (1, 0, 7, 1))
        eventually(lambda: its.at, second.url)
        assert (its.agent.labeller.tables is table, its.follower.refused) == (True, 0)
        leader.commit(8, 2, {"a0_0-c0_1": "down"})
        eventually(lambda: its.version, (8, 2))
        with RelayProcess(second.command[4].partition("=")[2], first.log, _port(first), first.state_dir) as back:
            eventually(lambda: leader.acknowledged(back.name), (1, 0, 8, 2))
            eventually(lambda: its.at, back.url)
            assert "sent to the relays that come first" in second.log.read_text()
            back.stop(signal.SIGKILL)
            eventually(lambda: leader.acknowledged(second.name), (1, 0, 8, 2))
            eventually(lambda: its.at, second.url)


def _port(relay: RelayProcess) -> int:
    return int(relay.url.rpartition(":")[2])


def test_tokens_are_checked_as_by_a_controller_and_a_host_has_one_agent(relay: RelayProcess) -> None:
    for token, address, status in (("wrong", ADDRESS, 401), (TOKEN, "10.9.0.2", 404), (TOKEN, "nobody", 400)):
        with pytest.raises(InvalidStatus) as rejected, agent(relay.url, address, token):
            pass
        assert rejected.value.response.status_code == status
    assert relay.get(f"/sopa/v1/agents/{ADDRESS}").status_code == 426

    def claimed() -> str:
        """Return the answer to a second agent of a host; nothing if the first had no processor to answer the relay in time."""
        with agent(relay.url, ADDRESS) as holder:
            holder.follow()
            try:
                with agent(relay.url, ADDRESS):
                    return ""
            except InvalidStatus as rejected:
                return f"{rejected.response.status_code} {rejected.response.body.decode()}"

    assert eventually(claimed, Containing("another agent of 10.0.0.2 is connected")).startswith("409 ")


def test_reads_are_the_leaders(leader: Leader, start: Start, controller: ControllerProcess) -> None:
    leader.commit(7, 4, {"a0_0-c0_1": "down"})
    relay = start()
    assert relay.get("/sopa/v1/links").status_code == 503
    fallback = relay.get("/sopa/v1/fabric").json()
    assert (fallback["version"], fallback["cluster"]) == (4, {"role": "relay", "term": 7, "leader": None})
    [gone] = free_ports(1)
    leader.put(records.LEADER, records.Leader("m1", 7, f"http://127.0.0.1:{gone}"))
    eventually(relay.log.read_text, Containing("leader is m1"))
    assert relay.get("/sopa/v1/links").status_code == 503
    member = records.MemberRecord("m2", controller.url, "0.1.0", 1, "standby", 7, 4, 0, 0, "")
    leader.put("members/m2", member)
    eventually(lambda: relay.get("/sopa/v1/links").status_code, 200)  # of a member, since the leader does not answer
    links = relay.get("/sopa/v1/links")
    assert links.json() == controller.get("/links").json()
    assert relay.get("/sopa/v1/links", **{"If-None-Match": links.headers["ETag"]}).status_code == 304
    assert relay.get("/openapi.json").json() == httpx.get(f"{controller.url}/openapi.json").json()
    assert relay.get("/sopa/v1/nothing").status_code == 404
    assert relay.get("/").headers["Content-Type"].startswith("text/html")
    leader.put(records.LEADER, records.Leader("m2", 8, controller.url))
    eventually(relay.log.read_text, Containing("leader is m2"))
    written = httpx.put(f"{relay.url}/sopa/v1/drains/c0_0")
    for method, path in (("PUT", "/sopa/v1/drains/c0_0"), ("GET", "/"), ("GET", "/metrics"), ("GET", "/sopa/v1/links")):
        assert httpx.request(method, f"{relay.url}{path}", headers={"Host": "evil.example"}).status_code == 403
    assert (written.status_code, written.headers["Location"]) == (307, f"{controller.url}/sopa/v1/drains/c0_0")
    headers = {"Authorization": f"Bearer {controller.token_file.read_text().strip()}"}
    assert httpx.put(written.headers["Location"], headers=headers).json()["drains"] == ["c0_0"]
    eventually(lambda: relay.get("/sopa/v1/drains").json()["drains"], ["c0_0"])
    httpx.delete(written.headers["Location"], headers=headers)
    leader.engine.write({}, deletes=[records.LEADER])
    eventually(lambda: httpx.put(f"{relay.url}/sopa/v1/drains/c0_0").status_code, 503)
    assert "HTTP Request" not in relay.log.read_text()  # it asks again and again


def test_paths_are_as_the_controllers(leader: Leader, relay: RelayProcess, controller: ControllerProcess) -> None:
    query = "/paths?src=h0_0_2&dst=h2_1_3&packets=5"
    ours, its = relay.get(f"/sopa/v1{query}"), httpx.get(f"{controller.url}/sopa/v1{query}")
    assert {**ours.json(), "version": 0} == {**its.json(), "version": 0}
    assert relay.get(f"/sopa/v1{query}", **{"If-None-Match": ours.headers["ETag"]}).status_code == 304
    for wrong in ("src=10.0.0&dst=10.0.0.2", "src=10.0.0.2", "src=10.0.0.2&dst=10.0.0.3&more=1"):
        ours, its = (httpx.get(f"{url}/sopa/v1/paths?{wrong}") for url in (relay.url, controller.url))
        assert ours.json() == its.json()
    leader.commit(7, 2, {"a0_0-c0_1": "down"})
    eventually(lambda: relay.get("/sopa/v1/failures?limit=1").json()["version"], 2)
    excluded = relay.get(f"/sopa/v1{query}").json()["excluded"]
    assert excluded == [{"up": [0, 1], "reason": "link a0_0-c0_1 down"}]


def test_one_feed_reaches_all_pages(leader: Leader, relay: RelayProcess, controller: ControllerProcess) -> None:
    leader.put(records.LEADER, records.Leader("m1", 7, controller.url))
    url = f"{relay.url.replace('http', 'ws', 1)}/sopa/v1/live"
    with connect(url, proxy=None) as first, connect(url, proxy=None) as second:
        assert len({json.loads(page.recv(PATIENCE_SECONDS))["version"] for page in (first, second)}) == 1

        def feeds() -> int:
            log = controller.log.read_text()
            return log.count("page opened") - log.count("page from")

        eventually(feeds, 1)
        first.send("something")
        with pytest.raises(ConnectionClosed, match="a page sends no messages"):
            deque(first, 0)
        second.recv(PATIENCE_SECONDS)
    with pytest.raises(InvalidStatus) as rejected, connect(url, proxy=None, origin="http://evil.example"):
        pass
    assert rejected.value.response.status_code == 403
    eventually(lambda: controller.log.read_text().rpartition("page from")[2], Containing("(0 open)"))


def test_a_relay_serves_by_tls(leader: Leader, start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("relay")
    leader.commit(7, 1)
    options = (f"--tls-cert={certificate.certificate}", f"--tls-key={certificate.key}")
    relay = start("r1", options, ca_file=authority.certificate)
    with RunningAgent((relay.url,), token_file=relay.state_dir / "agent-token", ca_file=authority.certificate) as its:
        for version in (1, 2):
            leader.commit(7, version)
            eventually(lambda version=version: its.version, (7, version))
    with socket.create_connection(("127.0.0.1", _port(relay))) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 2" not in plain.recv(4096)


def test_a_relay_is_registered_again_and_a_name_is_one_relays(leader: Leader, start: Start, cluster: str, tmp_path: Path) -> None:
    leader.commit(7, 1)
    first = start("r1")
    eventually(lambda: leader.acknowledged("r1"), (0, 0, 7, 1))
    lost = leader.engine.read().keys["relays/r1"]
    leader.engine.revoke(lost.lease)
    eventually(lambda: leader.lease("r1") not in (0, lost.lease))
    assert "registers again" in first.log.read_text()
    other = start("other", ("--name=r1",))
    before = leader.lease("r1")
    first.stop(signal.SIGKILL)
    with RelayProcess(cluster, first.log, _port(first), tmp_path / "state") as again:
        eventually(lambda: leader.lease("r1") not in (0, before))  # at once, though its lease had not ended
        assert (leader.relay("r1") or {}).get("url") == again.url
        assert other.get("/sopa/v1/failures").status_code == 200
