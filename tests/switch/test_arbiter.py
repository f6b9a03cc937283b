"""A real controller and a real ``sopa arbiter``; the test plays the hosts, over UDP on loopback. Most need no switches.

What is granted when, and which demands are rejected, is shown by `tests/unit/arbiter` in virtual time.
"""

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from tests.helpers.commands import ask
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


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    build()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    openflow, rest = free_ports(2)
    log, options = tmp_path_factory.mktemp("controller") / "log", ("--sopa-no-switches", f"--sopa-link-mbit={RATE:g}")
    with ControllerProcess(4, log, openflow, rest, options=options) as its:
        yield its


def arbiter(controller: ControllerProcess, log: Path, *options: str) -> ArbiterProcess:
    file = controller.state_dir / "agent-secret"
    given = [f"--secret-file={file}", f"--slot={SLOT_MS}", f"--rate={RATE:g}", *options]
    return ArbiterProcess(controller.url, log, given)


@contextmanager
def asking(controller: ControllerProcess, port: int, count: int = 16) -> Iterator[list[AskingHost]]:
    secret = (controller.state_dir / "agent-secret").read_text().strip()
    hosts = [AskingHost(address, port, secret) for address in HOSTS[:count]]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


def with_term(its: ArbiterProcess, above: int = 0) -> int:
    """Wait until an arbiter has a term, which is above another one; return it."""

    def last() -> int:
        return int(([0, *re.findall(r"INFO term (\d+)", its.text())])[-1])

    return eventually(last, lambda term: term > above)


def reported(controller: ControllerProcess) -> dict[str, Any]:
    return controller.fabric().get("arbiter", {})


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


def until_sent(hosts: Sequence[AskingHost]) -> None:
    """Let hosts converse with the arbiter until nothing is left."""
    eventually(lambda: converse(hosts, 0.05) or sum(host.left() for host in hosts), 0)


def cells(hosts: Sequence[AskingHost]) -> int:
    return sum(len(grant.entries) for host in hosts for grant in host.grants)


def test_sixteen_hosts_send_everything_without_a_conflict(controller: ControllerProcess, tmp_path: Path) -> None:
    metrics = free_ports(1)[0]
    its = arbiter(controller, tmp_path / "arbiter.log", f"--metrics-port={metrics}")
    with its, asking(controller, its.port) as hosts:
        term = with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 60 * CELL)
            host.want(HOSTS[(number + 1) % 16], 20 * CELL + 1)
        until_sent(hosts)
        assert check(hosts, Failures(TREE)) >= 16 * 81
        families = text_string_to_metric_families(httpx.get(f"http://127.0.0.1:{metrics}/metrics").text)
        samples = {sample.name: sample.value for family in families for sample in family.samples}
        assert samples["sopa_arbiter_granted_cells_total"] >= 16 * 81
        assert samples["sopa_arbiter_granting"] == 1
        body = eventually(lambda: reported(controller), lambda body: body["reports"].get("granted_cells", 0) >= 16 * 81)
        assert (body["connected"], body["peer"], body["term"]) == (True, "127.0.0.1", term)
        assert body["reports"]["slot_ms"] == SLOT_MS
        assert f"arbiter       connected from 127.0.0.1, term {term}; " in ask(controller, "status").stdout
        assert its.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    eventually(lambda: reported(controller)["connected"], False)
    assert "arbiter       gone, it was at 127.0.0.1" in ask(controller, "status").stdout


def test_whoever_is_gone_grants_go_on_under_a_higher_term(controller: ControllerProcess, tmp_path: Path) -> None:
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port) as hosts:
        first = with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 200 * CELL)
        eventually(lambda: converse(hosts, 0.1) or cells(hosts))
        with standing_still(its.pid):
            converse(hosts, 0.5)
        until_sent(hosts)
        eventually(its.text, Containing("batches left out, too late for their slots"))

        its.stop(signal.SIGKILL)
        for host in hosts:
            host.read()
        before = [len(host.grants) for host in hosts]
        its.start()
        second = with_term(its, first)
        for host in hosts:
            host.want(HOSTS[7] if host is not hosts[7] else HOSTS[6], 10 * CELL)
        until_sent(hosts)
        after = [grant for host, count in zip(hosts, before, strict=True) for grant in host.grants[count:]]
        assert {grant.term for grant in after} == {second}

        controller.stop(signal.SIGKILL)
        hosts[0].want(HOSTS[5], 30 * CELL)
        until_sent(hosts[:1])  # without a controller
        assert hosts[0].grants[-1].term == second
        controller.start()
        third = with_term(its, second)
        hosts[0].want(HOSTS[5], 30 * CELL)
        until_sent(hosts[:1])
        assert hosts[0].grants[-1].term == third == reported(controller)["term"]
        check(hosts, Failures(TREE))


def test_what_is_drained_is_on_no_path_any_more(shared: Fabric, tmp_path: Path) -> None:
    controller, drained = shared.controller, ("c0_0", "a1_0-c0_1")
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(controller, its.port) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 10**8)
        eventually(lambda: converse(hosts, 0.1) or cells(hosts))
        for name in drained:
            assert controller.change("PUT", f"/drains/{name}").status_code == 200
        version = controller.fabric()["version"]
        eventually(lambda: reported(controller)["version"], version)
        for host in hosts:
            host.read()  # what was granted before
            host.grants.clear()
        eventually(lambda: converse(hosts, 0.1) or cells(hosts), lambda count: count > 100)
        assert check(hosts, Failures(TREE, dict.fromkeys(drained, "drained"))) > 100
    for name in drained:
        controller.change("DELETE", f"/drains/{name}")


def test_it_needs_its_own_token_and_slots_that_fit_a_packet(controller: ControllerProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(controller.agent_token_file.read_text())
    options = [f"--token-file={token}", f"--slot={SLOT_MS}", "--rate=1"]
    with ArbiterProcess(controller.url, tmp_path / "arbiter.log", options) as its:
        eventually(its.text, Containing("sopa token --arbiter prints it"))
        token.write_text(arbiter_token((controller.state_dir / "agent-secret").read_text().strip()) + "\n")
        eventually(its.text, Containing("no slot is granted; give --slot 12.8 or more"))
