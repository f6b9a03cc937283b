"""A real controller and a real ``sopa arbiter``; the test plays the hosts, over UDP on loopback. Most need no switches."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.arbiter.allocation import Cell
from sopa_ryu.arbiter.build import build
from sopa_ryu.arbiter.schedule import SLOTS
from sopa_ryu.channel.host_tokens import arbiter_token
from tests.arbiter.checker import Checker
from tests.helpers.arbiter import ArbiterProcess, AskingHost, converse
from tests.helpers.certificates import Authority
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import Containing, eventually
from topologies import Failures, FatTree
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch

TREE = FatTree(4)
HOSTS = [TREE.ip(host) for host in TREE.hosts()]
RATE = 40.0
SLOT_MS = 3.2
CELL = 15_200
NO_SWITCHES = ("--sopa-no-switches", f"--sopa-link-mbit={RATE:g}")


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """The compiled library."""
    build()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    openflow, rest = free_ports(2)
    with ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=NO_SWITCHES) as its:
        yield its


def secret_file(controller: ControllerProcess) -> Path:
    return controller.state_dir / "agent-secret"


def secret(controller: ControllerProcess) -> str:
    return secret_file(controller).read_text().strip()


def arbiter(controller: ControllerProcess, log: Path, *options: str, port: int | None = None) -> ArbiterProcess:
    given = [f"--secret-file={secret_file(controller)}", f"--slot={SLOT_MS}", f"--rate={RATE:g}", *options]
    return ArbiterProcess(controller.url, log, given, port)


@contextmanager
def asking(controller: ControllerProcess, port: int, count: int = 16) -> Iterator[list[AskingHost]]:
    hosts = [AskingHost(address, port, secret(controller)) for address in HOSTS[:count]]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


def with_term(its: ArbiterProcess, count: int = 1) -> None:
    its.wait_until(lambda: its.text().count("INFO term ") >= count, "the controller had given a term")


def reported(controller: ControllerProcess) -> dict[str, Any]:
    body: dict[str, Any] = controller.fabric().get("arbiter", {})
    return body


def status(controller: ControllerProcess) -> str:
    command = [sys.executable, "-m", "sopa_ryu.cli", "status", "--controller", controller.url]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def check(hosts: Sequence[AskingHost], failures: Failures) -> int:
    """Verify every batch that hosts were granted; return the number of cells."""
    batches: dict[int, list[Cell]] = {}
    for host in hosts:
        for grant in host.grants:
            for its in grant.entries:
                ends = HOSTS.index(host.address), HOSTS.index(its.destination)
                cell = Cell(*ends, its.slot - grant.first_slot, its.up1, its.up2)
                batches.setdefault(grant.first_slot, []).append(cell)
    checker = Checker(failures, SLOTS)
    checker.demand([(a, b, 1 << 31) for a in range(len(HOSTS)) for b in range(len(HOSTS)) if a != b])
    for first in sorted(batches):
        checker.check(sorted(batches[first], key=lambda cell: cell.slot))
    return checker.granted


def until_sent(hosts: Sequence[AskingHost], seconds: float = 60.0) -> None:
    """Let hosts converse with the arbiter until nothing is left."""
    deadline = time.monotonic() + seconds
    while any(host.left() for host in hosts):
        assert time.monotonic() < deadline, [host.left() for host in hosts]
        converse(hosts, 0.05)


def cells(hosts: Sequence[AskingHost]) -> int:
    """Return how many slots hosts were granted."""
    return sum(len(grant.entries) for host in hosts for grant in host.grants)


def test_sixteen_hosts_send_everything_without_a_conflict(controller: ControllerProcess, tmp_path: Path) -> None:
    metrics = free_ports(1)[0]
    its = arbiter(controller, tmp_path / "arbiter.log", f"--metrics-port={metrics}")
    with its, asking(controller, its.port) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 60 * CELL)
            host.want(HOSTS[(number + 1) % 16], 20 * CELL + 1)
        until_sent(hosts)
        assert check(hosts, Failures(TREE)) >= 16 * 81
        ahead = [grant.first_slot * grant.slot_ns - grant.sent_at for host in hosts for grant in host.grants]
        assert statistics.median(ahead) > 4_000_000  # a busy machine's arbiter is late now and then
        eventually(lambda: reported(controller)["reports"].get("granted_cells", 0), lambda count: count >= 16 * 81)
        body = reported(controller)
        assert (body["connected"], body["peer"]) == (True, "127.0.0.1")
        assert body["reports"]["slot_ms"] == SLOT_MS
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(httpx.get(f"http://127.0.0.1:{metrics}/metrics").text)
            for sample in family.samples
        }
        assert samples["sopa_arbiter_granted_cells_total"] >= 16 * 81
        assert samples["sopa_arbiter_granting"] == 1
        assert f"arbiter       connected from 127.0.0.1, term {body['term']}; " in status(controller)
        assert its.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    eventually(lambda: reported(controller)["connected"], False)
    assert "arbiter       gone, it was at 127.0.0.1" in status(controller)


def test_killed_and_started_again_it_goes_on_under_a_higher_term(controller: ControllerProcess, tmp_path: Path) -> None:
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 400 * CELL)
        eventually(lambda: converse(hosts, 0.1) or cells(hosts))
        first = reported(controller)["term"]
        its.stop(signal.SIGKILL)
        converse(hosts, 0.2)
        before = [len(host.grants) for host in hosts]
        its.start()
        with_term(its, 2)
        until_sent(hosts)
        after = [grant for host, count in zip(hosts, before, strict=True) for grant in host.grants[count:]]
        assert min(grant.term for grant in after) > first
        assert reported(controller)["term"] > first
        check(hosts, Failures(TREE))


def test_a_restarted_controller_gives_a_higher_term_and_grants_go_on_meanwhile(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port, 2) as hosts:
        with_term(its)
        first = reported(controller)["term"]
        controller.stop(signal.SIGKILL)
        hosts[0].want(HOSTS[5], 30 * CELL)
        until_sent(hosts)  # without a controller
        assert {grant.term for grant in hosts[0].grants} == {first}
        controller.start()
        with_term(its, 2)
        hosts[0].want(HOSTS[5], 30 * CELL)
        until_sent(hosts)
        assert hosts[0].grants[-1].term == reported(controller)["term"] > first


def test_one_arbiter_at_a_time(controller: ControllerProcess, tmp_path: Path) -> None:
    its, other = arbiter(controller, tmp_path / "arbiter.log"), arbiter(controller, tmp_path / "other.log")
    with its, other, asking(controller, its.port, 2) as hosts, asking(controller, other.port, 2) as others:
        # whichever was first; the one that has the place may not know it yet
        eventually(lambda: its.text() + other.text(), Containing("another arbiter is connected"))
        if "another arbiter is connected" in its.text():
            its, other, hosts, others = other, its, others, hosts
        with_term(its)
        for host in (hosts[0], others[0]):
            host.want(HOSTS[5], 5 * CELL)
        eventually(lambda: converse([*hosts, *others], 0.3) or hosts[0].grants)
        assert not others[0].grants
        with standing_still(its.pid):
            with_term(other)
            until_sent(others)
        assert others[0].grants[-1].term > hosts[0].grants[-1].term
        eventually(its.text, Containing("another arbiter has this one's place: no slot is granted any more"))
        count = len(hosts[0].grants)
        hosts[0].want(HOSTS[5], 5 * CELL)
        hosts[0].read()
        count = len(hosts[0].grants)
        converse(hosts, 0.3)
        assert len(hosts[0].grants) == count


def test_forged_foreign_and_repeated_datagrams_are_rejected_and_counted(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    metrics = free_ports(1)[0]
    its = arbiter(controller, tmp_path / "arbiter.log", f"--metrics-port={metrics}")

    def rejected(reason: str) -> float:
        families = text_string_to_metric_families(httpx.get(f"http://127.0.0.1:{metrics}/metrics").text)
        [value] = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "sopa_arbiter_rejected_datagrams_total" and sample.labels["reason"] == reason
        ]
        return value

    with its, asking(controller, its.port, 2) as (host, liar):
        with_term(its)
        other = liar.token
        liar.token = host.token  # in its own name, with another's
        liar.ask()
        eventually(lambda: rejected("token"), 1)
        liar.token = other
        liar.address = host.address  # in another's name, with its own
        liar.want(HOSTS[7], 10**9)
        liar.ask()
        eventually(lambda: rejected("token"), 2)
        liar.address = IPv4Address("192.0.2.1")
        liar.ask()
        eventually(lambda: rejected("foreign"), 1)
        liar.socket.send(b"no datagram of an agent")
        eventually(lambda: rejected("malformed"), 1)
        host.want(HOSTS[5], 3 * CELL)
        first = host.ask()
        until_sent([host])
        for _ in range(3):
            liar.socket.send(first)
        eventually(lambda: rejected("replay"), 3)
        liar.read()
        assert not liar.grants
        assert host.left() == 0
        assert "datagram from 127.0.0.1 rejected: it is not made with the token of" in its.text()
        assert its.text().count(" rejected: ") <= 5  # of each reason one line in ten seconds
    assert "Traceback" not in its.text()


def test_what_is_drained_is_on_no_path_any_more(fabric: Fabric, tmp_path: Path) -> None:
    controller = fabric.controller
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 10**8)
        eventually(lambda: converse(hosts, 0.3) or cells(hosts))
        for name in ("c0_0", "a1_0-c0_1"):
            assert controller.change("PUT", f"/drains/{name}").status_code == 200
        drained = controller.fabric()
        assert len(drained["failures"]) == 2
        eventually(lambda: reported(controller)["version"], drained["version"])
        converse(hosts, 0.2)  # what was granted before
        for host in hosts:
            host.grants.clear()
        eventually(lambda: converse(hosts, 0.3) or cells(hosts), lambda count: count > 100)
        assert check(hosts, Failures(TREE, {"c0_0": "drained", "a1_0-c0_1": "drained"})) > 100


def test_without_a_token_of_its_own_it_is_rejected(controller: ControllerProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(controller.agent_token_file.read_text())
    with ArbiterProcess(controller.url, tmp_path / "arbiter.log", [f"--token-file={token}", "--rate=40"]) as its:
        eventually(its.text, Containing("sopa token --arbiter prints it"))
        token.write_text(arbiter_token(secret(controller)) + "\n")
        with_term(its)


def test_a_slot_too_short_for_a_packet_grants_nothing_and_says_so(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    with arbiter(controller, tmp_path / "arbiter.log", "--rate=1") as its, asking(controller, its.port, 1) as hosts:
        eventually(its.text, Containing("no slot is granted; give --slot 12.8 or more"))
        hosts[0].want(HOSTS[5], CELL)
        converse(hosts, 0.3)
        assert hosts[0].grants == []


def test_a_flood_of_forged_datagrams_stops_nobody(controller: ControllerProcess, tmp_path: Path) -> None:
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port, 4) as hosts:
        with_term(its)
        liar, ended = AskingHost(HOSTS[9], its.port, "another secret"), threading.Event()
        datagram = liar.ask()

        def flood() -> None:
            while not ended.is_set():
                for _ in range(50):
                    with suppress(OSError):
                        liar.socket.send(datagram)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for number, host in enumerate(hosts):
                host.want(HOSTS[(number + 5) % 16], 50 * CELL)
            until_sent(hosts)
            eventually(lambda: reported(controller)["reports"].get("rejected_datagrams", 0), lambda count: count > 1000)
        finally:
            ended.set()
            flooding.join()
            liar.close()
        check(hosts, Failures(TREE))


def test_after_it_stood_still_it_leaves_out_what_would_be_too_late(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port, 4) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 200 * CELL)
        converse(hosts, 0.1)
        with standing_still(its.pid):
            converse(hosts, 0.5)
        until_sent(hosts)
        eventually(its.text, Containing("batches left out, too late for their slots"))
        late = {
            grant.first_slot
            for host in hosts
            for grant in host.grants
            if grant.first_slot * grant.slot_ns < grant.sent_at
        }
        # of the 39 that fell into the pause; while one is made, an arbiter may be stopped, or lose its processor
        assert len(late) <= 3, late
        check(hosts, Failures(TREE))


def test_over_tls_it_trusts_the_authority_that_it_is_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("controller", "127.0.0.1")
    openflow, rest = free_ports(2)
    options = [*NO_SWITCHES, f"--sopa-tls-cert={own.certificate}", f"--sopa-tls-key={own.key}"]
    log = tmp_path / "controller.log"
    with ControllerProcess(4, log, openflow, rest, options=options, ca_file=authority.certificate) as controller:
        with arbiter(controller, tmp_path / "arbiter.log") as its:
            eventually(its.text, Containing("CERTIFICATE_VERIFY_FAILED"))
        with arbiter(controller, tmp_path / "arbiter.log", f"--ca-file={authority.certificate}") as its:
            with_term(its)
            eventually(lambda: reported(controller)["connected"])
            assert "link rates cannot be read" not in its.text().rpartition("INFO arbiter at")[2]
