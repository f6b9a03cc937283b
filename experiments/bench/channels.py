"""Channels to thousands of light agents (`crowd`), at one controller or at relays: how soon all have a version, and what it costs.

The relays' benches write to the engine in the place of a leader. Run as root.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from experiments.bench.crowd import Crowd, addresses_of
from experiments.bench.frame import SHORT, Results, median_and_worst, peak_mib, processor_seconds, times, wait
from experiments.emulation.processes import ChildProcess, ControllerProcess, RelayProcess, free_ports
from sopa_ryu.channel import mcs
from sopa_ryu.channel.addresses import PINGS_A_SECOND, patience_seconds, ping_seconds
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.mcs_hosts import SETTLE_SECONDS
from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine, EngineError
from sopa_ryu.cluster.view import Mirror
from sopa_ryu.rest.access import AGENTS
from sopa_ryu.runtime.process import allow_files
from topologies import Clos, FatTree, Level
from topologies.lab.etcd import PrivateEtcd
from topologies.lab.private_ovs import OPENFLOW, PrivateOvs

# -- one controller -------------------------------------------------------------------------------------------------------

K = 24
PUSH_ROUNDS = 2 * times(15)
DRAINED = "a3_1-c1_2"
PING_SECONDS, PING_ROUNDS = 10.0, times(3)
_SERVER = Path(__file__).with_name("bare_server.py")


def push() -> Results:
    """Connect an agent per host, then drain and restore a link repeatedly. Agents are informed as of a failure.

    The times run from the request to the last acknowledgement; ``bare_*`` are those of a bare eventlet WebSocket server with
    messages of the same size.
    """
    tree = FatTree(K)
    allow_files()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        controller = ControllerProcess(K, directory / "controller.log", options=["--sopa-settle=1", "--sopa-lldp-interval=0"])
        # one real switch is enough: the others count as failed, which adds work for the controller
        with controller, PrivateOvs(directory / "ovs", dummy=True) as ovs:
            _one_switch(tree, ovs, controller.openflow)
            controller.wait_connected(1)
            with Crowd.at(controller, tree) as crowd:
                controller.wait_agents(tree.host_count)
                delays = [_drain(controller, turn) for turn in range(PUSH_ROUNDS)]
                [agents] = crowd.report()
            memory = peak_mib(controller.pid)
        bare, bare_memory = _bare(directory, addresses_of(tree), agents["bytes"])
    return {
        "k": K,
        "agents": tree.host_count,
        "message_bytes": agents["bytes"],
        "first_ms": round(delays[0], 1),
        "median_ms": round(median(delays), 1),
        "worst_ms": round(max(delays), 1),
        "limit_ms": 500,
        "mib": memory,
        "limit_mib": 512,
        "bare_first_ms": round(bare[0], 1),
        **median_and_worst("bare", bare),
        "bare_mib": bare_memory,
    }


def _one_switch(tree: Clos, ovs: PrivateOvs, controller: str) -> None:
    words = ["add-br", "c0_0", "--", "set", "bridge", "c0_0", "datapath_type=dummy", "fail_mode=secure"]
    words += [f"protocols={OPENFLOW}", f"other-config:datapath-id={tree.dpid(tree.switch('c0_0')):016x}"]
    words += ["--", "set-controller", "c0_0", controller]
    for port in range(1, tree.port_count(Level.CORE) + 1):
        words += ["--", "add-port", "c0_0", f"p{port}", "--", "set", "interface", f"p{port}", "type=dummy"]
        words.append(f"ofport_request={port}")
    ovs.vsctl(*words)


def _drain(controller: ControllerProcess, turn: int) -> float:
    """Return the milliseconds until every agent has acknowledged, as measured by the controller."""
    method = "DELETE" if turn % 2 else "PUT"
    version = controller.change(method, f"/drains/{DRAINED}").raise_for_status().json()["version"]
    return float(controller.wait_acknowledged(version - 1, pause=0.1)["acknowledged_ms"])


def _bare(directory: Path, addresses: Sequence[str], size: int) -> tuple[list[float], float]:
    """Measure a server that only sends and counts answers, with the same number of clients."""
    (port,) = free_ports(1)
    command = [sys.executable, str(_SERVER), str(port), str(len(addresses)), str(size), str(PUSH_ROUNDS)]
    with ChildProcess(command, directory / "bare.log") as server:
        server.wait_until(lambda: "listening" in server.log_tail(), "it listened")
        with Crowd([port], addresses):
            server.wait_until(lambda: "done" in server.log_tail(), "all rounds were done", 120)
        lines = server.log.read_text().split("listening")[1].split()
        return [float(word) for word in lines[:PUSH_ROUNDS]], peak_mib(server.pid)


def pings() -> Results:
    """Measure what the pings cost a controller by which agents with several URLs notice that it is stopped.

    ``pinged_cores`` is the processor time with pings at the rate that all agents of this fabric have together; ``noticed_seconds``:
    after how long an agent leaves a controller that is stopped, at the most.
    """
    allow_files()
    tree = FatTree(K)
    agents = tree.host_count
    rate = agents / ping_seconds(agents)
    with tempfile.TemporaryDirectory() as name:
        options = ["--sopa-no-switches", "--sopa-lldp-interval=0"]
        with ControllerProcess(K, Path(name) / "controller.log", options=options) as controller:
            controller.wait_connected(0)
            with Crowd.at(controller, tree) as crowd:
                controller.wait_agents(agents)
                idle, pinged = (
                    median(_cores_while_pinging(controller.pid, crowd, pings) for _ in range(PING_ROUNDS)) for pings in (0.0, rate)
                )
    return {
        "k": K,
        "agents": agents,
        "pings_a_second": round(rate),
        "limit_pings_a_second": PINGS_A_SECOND,
        "idle_cores": round(idle, 3),
        "pinged_cores": round(pinged, 3),
        "ping_us": round(1e6 * (pinged - idle) / rate, 1),
        "noticed_seconds": round(ping_seconds(agents) + patience_seconds(agents), 1),
    }


def _cores_while_pinging(process: int, crowd: Crowd, rate: float) -> float:
    """Return the processor time of a process, in cores, while agents ping at a rate, until it has answered all."""
    before = processor_seconds(process)
    crowd.ping(rate, PING_SECONDS)
    return (processor_seconds(process) - before) / PING_SECONDS


# -- relays ---------------------------------------------------------------------------------------------------------------

RELAYS_K = 24 if SHORT else 48
RELAYS, CROWDS, NODES = 4, 4, 3
RELAYS_ROUNDS = times(15)
PAUSE_SECONDS = 1.0
"""Before each change: relays write what their agents have acknowledged at most ten times a second."""
POLL_SECONDS = 0.05
TERM = 1
FAILED = "a3_1-c1_2"
PATIENCE_SECONDS = 180.0
ENDS = 3
MCS_POLL_SECONDS, MCS_PATIENCE_SECONDS = 0.25, 600.0


def relays() -> Results:
    """Connect an agent for each host, fail and restore a link in so many rounds, then kill a relay and fail it again.

    ``acknowledged_*_s``: from the write's beginning until the engine has of every relay that all its agents have acknowledged;
    ``agents_*_s``: until the last agent has sent its acknowledgement; ``elsewhere_s``: from SIGKILL of a relay until the last agent
    has acknowledged the view to another; ``mib``: peak memory of each relay.
    """
    allow_files()
    tree = FatTree(RELAYS_K)
    addresses = addresses_of(tree)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        etcd = stack.enter_context(PrivateEtcd(directory / "etcd", NODES))
        engine = Engine(parse(etcd.address()))
        stack.callback(engine.close)
        leader = _Leader(engine, tree)
        token = _token(directory / "state")
        ports, processes = _relays(stack, etcd, directory, directory / "state")
        reports = _Reports(Engine(parse(etcd.address())))
        stack.callback(reports.close)
        reports.wait(lambda seen: len(seen) == RELAYS, "all relays were registered")
        began = time.monotonic()
        crowd = stack.enter_context(Crowd(ports, addresses, token, processes=CROWDS))
        reports.wait(_all_at(leader.version, len(addresses)), "all agents had connected")
        connected = time.monotonic() - began
        taken = [_failure(leader, reports, crowd, len(addresses)) for _ in range(RELAYS_ROUNDS)]
        memory = [peak_mib(relay.pid) for relay in processes]
        elsewhere = _kill(processes[-1], crowd, len(addresses))
        reports.wait(lambda seen: len(seen) == RELAYS - 1, "the killed relay's lease had ended")
        after = _failure(leader, reports, crowd, len(addresses))
        left = [peak_mib(relay.pid) for relay in processes[:-1]]
    engine_seconds, agent_seconds = zip(*taken, strict=True)
    return {
        "k": RELAYS_K,
        "agents": len(addresses),
        "relays": RELAYS,
        "engine_nodes": NODES,
        "connected_s": round(connected, 2),
        **median_and_worst("acknowledged", engine_seconds, "s", 3),
        **median_and_worst("agents", agent_seconds, "s", 3),
        "limit_acknowledged_s": 1.2,
        "mib": memory,
        "limit_mib": 140,
        "killed_elsewhere_s": round(elsewhere, 2),
        "limit_elsewhere_s": 10,
        "killed_acknowledged_s": round(after[0], 3),
        "killed_mib": left,
    }


def _relays(stack: ExitStack, etcd: PrivateEtcd, directory: Path, state_dir: Path) -> tuple[list[int], list[RelayProcess]]:
    """Start relays; return their ports, and them."""
    ports = free_ports(RELAYS)
    return ports, [
        stack.enter_context(RelayProcess(etcd.address(), directory / f"r{number}.log", port, state_dir))
        for number, port in enumerate(ports)
    ]


def _token(state: Path) -> str:
    """Make a state directory with an agent token, and return that."""
    state.mkdir()
    file = state / AGENTS
    file.touch(0o600)
    file.write_text("agents-of-the-bench\n")
    return "agents-of-the-bench"


class _Leader:
    """What a leader writes to the engine."""

    def __init__(self, engine: Engine, tree: FatTree) -> None:
        self.version = 1
        self._engine = engine
        charter = records.Charter(records.FORMAT, tree.document(), "mac")
        engine.write({records.CHARTER: records.write(charter), records.TERM: records.write(records.Term(TERM))})
        _commit(engine, TERM, 1)

    def change(self) -> float:
        """Commit the next version; return when that began (monotonic seconds)."""
        self.version += 1
        began = time.monotonic()
        _commit(self._engine, TERM, self.version, {FAILED: "down"} if self.version % 2 == 0 else {})
        return began


def _commit(engine: Engine, term: int, version: int, failures: dict[str, str] | None = None) -> None:
    engine.write({records.VIEW: records.write(records.CommittedView(term, version, failures or {}))})


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


def _all_at(version: int, agents: int) -> Callable[[dict[str, records.RelayRecord]], bool]:
    def wanted(relays: dict[str, records.RelayRecord]) -> bool:
        if sum(relay.agents for relay in relays.values()) != agents:
            return False
        return all((relay.term, relay.version, relay.waiting) == (TERM, version, 0) for relay in relays.values())

    return wanted


def _failure(leader: _Leader, reports: _Reports, crowd: Crowd, agents: int) -> tuple[float, float]:
    """Commit a version; return the seconds until all relays had reported, and until all agents had acknowledged."""
    time.sleep(PAUSE_SECONDS)
    began = leader.change()
    ended = reports.wait(_all_at(leader.version, agents), f"version {leader.version} was acknowledged")
    parts = crowd.report()
    if any(part["latest"] != leader.version for part in parts):
        raise RuntimeError(f"relays report version {leader.version}, agents have {parts}")
    return ended - began, max(part["last"] for part in parts) - began


def _kill(relay: ChildProcess, crowd: Crowd, agents: int) -> float:
    """Kill a relay; return the seconds until all agents had acknowledged the view elsewhere."""
    time.sleep(PAUSE_SECONDS)
    began = time.monotonic()
    relay.stop(9)
    parts: list[dict[str, Any]] = []

    def elsewhere() -> bool:
        parts[:] = crowd.report()
        return sum(part["reached"] for part in parts) == agents

    wait(elsewhere, lambda: f"not all agents were elsewhere: {parts}", PATIENCE_SECONDS, POLL_SECONDS)
    return float(max(part["last"] for part in parts) - began)


# -- relays and MCS -------------------------------------------------------------------------------------------------------


def mcs_relays() -> Results:
    """Connect an agent that runs MCS for each host, let some end, then kill the controller and start it again, as another leader.

    The controller and the relays are real. There are no switches: the bench commits the view in the place of the leader, which has
    none. ``all_know_all_s``: from the first connection until every agent has been told of every host; ``one_ends_s``: from the end
    of an agent until the last other has been told; ``fewest_after_restart``: the least number of hosts that any agent knew while
    the controller was away, began again and had its lists complete; ``mib``: peak memory of relays, then of the controller.
    """
    allow_files()
    addresses = addresses_of(FatTree(RELAYS_K))
    query = mcs.request(mcs.POLICY, Variant(mcs.VERSION, ChannelKind.PATHS))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        etcd = stack.enter_context(PrivateEtcd(directory / "etcd", 1))
        options = [f"--sopa-cluster={etcd.address()}", "--sopa-cluster-member=m0", "--sopa-settle=3600"]
        controller = stack.enter_context(ControllerProcess(RELAYS_K, directory / "m0.log", options=options))
        engine = Engine(parse(etcd.address()), timeout=MCS_PATIENCE_SECONDS)
        stack.callback(engine.close)
        _commit_as_led(engine)
        ports, processes = _relays(stack, etcd, directory, controller.state_dir)
        for relay in processes:
            relay.wait_until(partial(_has_view, relay), "it had a view")
        token = controller.agent_token_file.read_text().strip()
        began = time.monotonic()
        crowd = stack.enter_context(Crowd(ports, addresses, token, query, CROWDS))
        connected = crowd.wait_connected() - began
        known = _all_know(crowd, len(addresses)) - began
        ends = []
        for number in range(1, ENDS + 1):
            left = time.monotonic()
            crowd.leave()
            ends.append(_all_know(crowd, len(addresses) - number) - left)
        memory = [peak_mib(process.pid) for process in (*processes, controller)]
        controller.stop(9)
        controller.start()
        _commit_as_led(engine)
        time.sleep(2 * SETTLE_SECONDS)
        fewest = min(part["fewest"] for part in crowd.report())
    return {
        "k": RELAYS_K,
        "agents": len(addresses),
        "relays": RELAYS,
        "connected_s": round(connected, 1),
        "all_know_all_s": round(known, 1),
        "one_ends_s": [round(seconds, 2) for seconds in ends],
        "left": ENDS,
        "fewest_after_restart": fewest,
        "mib": memory,
    }


def _commit_as_led(engine: Engine) -> None:
    """Commit a view of the present term, once there is a leader."""

    def committed() -> bool:
        keys = engine.read().keys
        if keys.get(records.LEADER) is None or (term := keys.get(records.TERM)) is None:
            return False
        _commit(engine, json.loads(term.value)["term"], 1)
        return True

    wait(committed, lambda: "there is no leader", MCS_PATIENCE_SECONDS, MCS_POLL_SECONDS)


def _has_view(relay: RelayProcess) -> bool:
    return relay.get("/sopa/v1/failures?limit=1").status_code == 200


def _all_know(crowd: Crowd, hosts: int) -> float:
    """Wait until so many agents have each other in their lists; return when the last list arrived (monotonic seconds)."""
    counts: Counter[int] = Counter()
    last = 0.0

    def all_know() -> bool:
        nonlocal last
        counts.clear()
        for part in (parts := crowd.report()):
            counts.update({int(count): agents for count, agents in part["listed"].items()})
        last = max(part["heard"] for part in parts)
        return counts == {hosts: hosts}

    problem = "agents know so many hosts:"
    wait(all_know, lambda: f"{problem} {counts.most_common(5)}", MCS_PATIENCE_SECONDS, MCS_POLL_SECONDS)
    return last
