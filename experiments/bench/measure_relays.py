"""27,648 agents on four relays and three nodes of etcd: a failure until the last acknowledgement, memory, and a relay killed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from experiments.bench.measuring import peak_mib
from experiments.emulation.processes import ChildProcess, RelayProcess, free_ports
from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine, EngineError
from sopa_ryu.cluster.view import Mirror
from sopa_ryu.rest.access import AGENTS
from sopa_ryu.runtime.process import allow_files
from topologies import FatTree
from topologies.lab.etcd import PrivateEtcd

K = 48
RELAYS, CROWDS, NODES = 4, 4, 3
ROUNDS = 15
PAUSE_SECONDS = 1.0
"""Before each change: relays write what their agents have acknowledged at most ten times a second."""
POLL_SECONDS = 0.05
TERM = 1
FAILED = "a3_1-c1_2"
PATIENCE_SECONDS = 180.0


def measure(k: int = K, rounds: int = ROUNDS) -> dict[str, Any]:
    """Connect an agent for each host, fail and restore a link, then kill a relay and fail it again.

    Agents are light clients (`relay_crowd`) with real WebSockets. The bench writes views to the engine as a leader does.

    Args:
        k: Of the fat-tree.
        rounds: Versions that are measured.

    Returns:
        ``acknowledged_*_s``: from the write's beginning until the engine has of every relay that all its agents have
        acknowledged; ``agents_*_s``: until the last agent has sent its acknowledgement; ``elsewhere_s``: from SIGKILL of a
        relay until the last agent has acknowledged the view to another; ``mib``: peak memory of each relay.
    """
    allow_files()
    tree = FatTree(k)
    addresses = [str(tree.ip(host)) for host in tree.hosts()]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        etcd = stack.enter_context(PrivateEtcd(directory / "etcd", NODES))
        engine = Engine(parse(etcd.address()))
        stack.callback(engine.close)
        leader = _Leader(engine, tree)
        ports = free_ports(RELAYS)
        state = directory / "state"
        token = _token(state)
        relays = [
            stack.enter_context(RelayProcess(etcd.address(), directory / f"r{number}.log", port, state))
            for number, port in enumerate(ports)
        ]
        reports = _Reports(Engine(parse(etcd.address())))
        stack.callback(reports.close)
        reports.wait(lambda its: len(its) == RELAYS, "all relays were registered")
        share = -(-len(addresses) // CROWDS)
        began = time.monotonic()
        crowds = [
            stack.enter_context(CrowdProcess(ports, addresses[at : at + share], at, token))
            for at in range(0, len(addresses), share)
        ]
        reports.wait(_all_at(leader.version, len(addresses)), "all agents had connected")
        connected = time.monotonic() - began
        taken = [_failure(leader, reports, crowds, len(addresses)) for _ in range(rounds)]
        memory = [peak_mib(relay.pid) for relay in relays]
        elsewhere = _kill(relays[-1], crowds, len(addresses))
        reports.wait(lambda its: len(its) == RELAYS - 1, "the killed relay's lease had ended")
        after = _failure(leader, reports, crowds, len(addresses))
        left = [peak_mib(relay.pid) for relay in relays[:-1]]
    engine_seconds, agent_seconds = zip(*taken, strict=True)
    return {
        "k": k,
        "agents": len(addresses),
        "relays": RELAYS,
        "engine_nodes": NODES,
        "connected_s": round(connected, 2),
        "acknowledged_median_s": round(statistics.median(engine_seconds), 3),
        "acknowledged_worst_s": round(max(engine_seconds), 3),
        "agents_median_s": round(statistics.median(agent_seconds), 3),
        "agents_worst_s": round(max(agent_seconds), 3),
        "limit_acknowledged_s": 1.2,
        "mib": memory,
        "limit_mib": 140,
        "killed_elsewhere_s": round(elsewhere, 2),
        "limit_elsewhere_s": 10,
        "killed_acknowledged_s": round(after[0], 3),
        "killed_mib": left,
    }


class _Leader:
    """What a leader writes to the engine."""

    def __init__(self, engine: Engine, tree: FatTree) -> None:
        self.version = 1
        self._engine = engine
        charter = records.Charter(records.FORMAT, tree.document(), "mac")
        engine.write({records.CHARTER: records.write(charter), records.TERM: records.write(records.Term(TERM))})
        self._commit({})

    def change(self) -> float:
        """Commit the next version; return when that began (monotonic seconds)."""
        self.version += 1
        began = time.monotonic()
        self._commit({FAILED: "down"} if self.version % 2 == 0 else {})
        return began

    def _commit(self, failures: dict[str, str]) -> None:
        view = records.CommittedView(TERM, self.version, failures)
        self._engine.write({records.VIEW: records.write(view)})


class _Reports:
    """The relays' keys, watched in a thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mirror = Mirror()
        self._at = time.monotonic()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._engine.close()
        self._thread.join(5)

    def wait(self, wanted: Callable[[dict[str, records.RelayRecord]], bool], what: str) -> float:
        """Wait until the relays' records are as wanted; return when they were (monotonic seconds)."""
        with self._changed:
            if not self._changed.wait_for(lambda: wanted(self._mirror.relays), PATIENCE_SECONDS):
                raise RuntimeError(f"waited {PATIENCE_SECONDS:g} s until {what}: {self._mirror.relays}")
            return self._at

    def _follow(self) -> None:
        try:
            first = self._engine.read()
            self._take(first._replace(whole=True))
            for contents in self._engine.watch(first.revision):
                self._take(contents)
        except EngineError as error:
            print(f"the watch of the bench ended: {error}", file=sys.stderr)

    def _take(self, contents: Any) -> None:
        with self._changed:
            if self._mirror.apply(contents):
                self._at = time.monotonic()
                self._changed.notify_all()


class CrowdProcess:
    """A process of light agents."""

    def __init__(
        self, ports: Sequence[int], addresses: Sequence[str], offset: int, token: str, query: str = ""
    ) -> None:
        self._asked = {"relays": list(ports), "addresses": list(addresses), "offset": offset, "token": token}
        self._asked["query"] = query

    def __enter__(self) -> CrowdProcess:
        command = [sys.executable, "-m", "experiments.bench.relay_crowd"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._say(json.dumps(self._asked))
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def report(self, first: str = "report") -> dict[str, Any]:
        """Return what its agents have; with ``"leave"`` after one of them has ended."""
        self._say(first)
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def _all_at(version: int, agents: int) -> Callable[[dict[str, records.RelayRecord]], bool]:
    def wanted(relays: dict[str, records.RelayRecord]) -> bool:
        its = relays.values()
        if sum(relay.agents for relay in its) != agents:
            return False
        return all((relay.term, relay.version, relay.waiting) == (TERM, version, 0) for relay in its)

    return wanted


def _failure(leader: _Leader, reports: _Reports, crowds: Sequence[CrowdProcess], agents: int) -> tuple[float, float]:
    """Commit a version; return the seconds until all relays had reported, and until all agents had acknowledged."""
    time.sleep(PAUSE_SECONDS)
    began = leader.change()
    ended = reports.wait(_all_at(leader.version, agents), f"version {leader.version} was acknowledged")
    found = [crowd.report() for crowd in crowds]
    if any(its["latest"] != leader.version for its in found):
        raise RuntimeError(f"relays report version {leader.version}, agents have {found}")
    return ended - began, max(its["last"] for its in found) - began


def _kill(relay: ChildProcess, crowds: Sequence[CrowdProcess], agents: int) -> float:
    """Kill a relay; return the seconds until all agents had acknowledged the view elsewhere."""
    time.sleep(PAUSE_SECONDS)
    began = time.monotonic()
    relay.stop(9)
    while time.monotonic() - began < PATIENCE_SECONDS:
        found = [crowd.report() for crowd in crowds]
        if sum(its["reached"] for its in found) == agents:
            return max(its["last"] for its in found) - began
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"after {PATIENCE_SECONDS:g} s not all agents were elsewhere: {found}")


def _token(state: Path) -> str:
    """Make a state directory with an agent token, and return that."""
    state.mkdir()
    file = state / AGENTS
    file.touch(0o600)
    file.write_text("agents-of-the-bench\n")
    return "agents-of-the-bench"
