"""A real controller and a real ``sopa arbiter``; hosts' agents ask it, over UDP on loopback. Most need no switches.

What is granted when, and which demands are rejected, is shown by `tests/unit/arbiter` in virtual time.
"""

import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.arbiter.allocation import Cell
from sopa_ryu.arbiter.build import build
from sopa_ryu.arbiter.schedule import AHEAD, SLOTS, Timing
from sopa_ryu.channel.host_tokens import arbiter_token
from tests.arbiter.checker import Checker
from tests.helpers.arbiter import ArbiterProcess, AskingHost, asking
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
BATCH_NS = Timing.of(SLOT_MS).batch_ns
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


def secret(controller: ControllerProcess) -> str:
    return (controller.state_dir / "agent-secret").read_text().strip()


def with_term(its: ArbiterProcess, above: int = 0) -> int:
    """Wait until an arbiter has a term, which is above another one; return it."""

    def last() -> int:
        return int(([0, *re.findall(r"INFO term (\d+)", its.text())])[-1])

    return eventually(last, lambda term: term > above)


def reported(controller: ControllerProcess) -> dict[str, Any]:
    return controller.fabric().get("arbiter", {})


def check(hosts: Sequence[AskingHost], failures: Failures, since: int = 0) -> int:
    """Verify every batch that hosts were granted from a slot on; return the number of cells."""
    batches: dict[int, list[Cell]] = {}
    for host in hosts:
        for its in host.slots:
            batch, slot = divmod(its.slot, SLOTS)
            cell = Cell(HOSTS.index(host.address), HOSTS.index(its.destination), slot, its.up1, its.up2)
            batches.setdefault(batch, []).append(cell)
    checker = Checker(failures, SLOTS)
    checker.demand([(a, b, 1 << 31) for a in range(len(HOSTS)) for b in range(len(HOSTS)) if a != b])
    for batch, cells in batches.items():
        if batch * SLOTS >= since:
            checker.check(sorted(cells, key=lambda cell: cell.slot))
    return checker.granted


def left(hosts: Sequence[AskingHost]) -> int:
    return sum(host.left() for host in hosts)


def test_sixteen_hosts_send_everything_without_a_conflict(controller: ControllerProcess, tmp_path: Path) -> None:
    metrics = free_ports(1)[0]
    its = arbiter(controller, tmp_path / "arbiter.log", f"--metrics-port={metrics}")
    with its, asking(HOSTS, its.port, secret(controller)) as hosts:
        term = with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 60 * CELL)
            host.want(HOSTS[(number + 1) % 16], 20 * CELL + 1)
        eventually(lambda: left(hosts), 0)
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
    with its, asking(HOSTS, its.port, secret(controller)) as hosts:
        first = with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 200 * CELL)
        eventually(lambda: check(hosts, Failures(TREE)))
        with standing_still(its.pid):
            time.sleep(0.5)  # longer than batches are ahead
        eventually(lambda: left(hosts), 0)
        eventually(its.text, Containing("batches left out, too late for their slots"))

        its.stop(signal.SIGKILL)
        its.start()
        second = with_term(its, first)
        for host in hosts:
            host.want(HOSTS[7] if host is not hosts[7] else HOSTS[6], 10 * CELL)
        eventually(lambda: left(hosts), 0)
        assert {host.agent.grants.term for host in hosts} == {second}

        controller.stop(signal.SIGKILL)
        hosts[0].want(HOSTS[5], 30 * CELL)
        eventually(hosts[0].left, 0)  # without a controller
        assert hosts[0].agent.grants.term == second
        controller.start()
        third = with_term(its, second)
        hosts[0].want(HOSTS[5], 30 * CELL)
        eventually(hosts[0].left, 0)
        assert hosts[0].agent.grants.term == third == reported(controller)["term"]
        check(hosts, Failures(TREE))


def test_what_is_drained_is_on_no_path_any_more(shared: Fabric, tmp_path: Path) -> None:
    controller, drained = shared.controller, ("c0_0", "a1_0-c0_1")
    its = arbiter(controller, tmp_path / "arbiter.log")
    with its, asking(HOSTS, its.port, secret(controller)) as hosts:
        with_term(its)
        for number, host in enumerate(hosts):
            host.want(HOSTS[(number + 5) % 16], 10**8)
        eventually(lambda: check(hosts, Failures(TREE)))
        for name in drained:
            assert controller.change("PUT", f"/drains/{name}").status_code == 200
        version = controller.fabric()["version"]
        eventually(lambda: reported(controller)["version"], version)
        since = (time.monotonic_ns() // BATCH_NS + AHEAD + 1) * SLOTS
        eventually(lambda: check(hosts, Failures(TREE, dict.fromkeys(drained, "drained")), since), lambda count: count > 100)
    for name in drained:
        controller.change("DELETE", f"/drains/{name}")


def test_it_needs_its_own_token_and_slots_that_fit_a_packet(controller: ControllerProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(controller.agent_token_file.read_text())
    options = [f"--token-file={token}", f"--slot={SLOT_MS}", "--rate=1"]
    with ArbiterProcess(controller.url, tmp_path / "arbiter.log", options) as its:
        eventually(its.text, Containing("sopa token --arbiter prints it"))
        token.write_text(arbiter_token(secret(controller)) + "\n")
        eventually(its.text, Containing("no slot is granted. Give --slot 12.8 or more"))
