"""The parts of a cluster in a lab: engine, controllers and relays, each a process on a machine of the management network."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from experiments.emulation.processes import (
    READY_SECONDS,
    ChildProcess,
    ControllerProcess,
    ControllerRest,
    ProcessError,
    RelayProcess,
)
from sopa_ryu.cluster.address import EngineAddress, parse
from sopa_ryu.cluster.engine import Engine, EngineError
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET, Tokens
from topologies import Clos
from topologies.lab import standstill
from topologies.lab.etcd import EtcdPlace, PrivateEtcd
from topologies.lab.isolation import require
from topologies.lab.management import AGENTS_MACHINE, BOTH, ROOT, ManagementNetwork, Peer, Way
from topologies.lab.startable import Startable

_LOG = logging.getLogger("sopa.cluster")
OPENFLOW_PORT, REST_PORT = 6653, 8080
RELAYS = 2
ENGINES = 3
LEADER = "leader"
POLL_SECONDS = 0.1
_SECONDS = 1.0
_TOKENS = (OPERATORS, AGENTS, SECRET)


class PartKind(Enum):
    """What a part of a cluster is, as its name begins."""

    CONTROLLER = "controller"
    ETCD = "etcd"
    RELAY = "relay"


class PartGroup(Enum):
    """What a part can be cut off from."""

    ETCD = "etcd"
    CONTROLLERS = "controllers"
    RELAYS = "relays"
    SWITCHES = "switches"
    AGENTS = "agents"


_PEERS = {
    PartKind.CONTROLLER: (PartGroup.ETCD, PartGroup.SWITCHES, PartGroup.AGENTS, PartGroup.RELAYS, PartGroup.CONTROLLERS),
    PartKind.ETCD: (PartGroup.ETCD, PartGroup.CONTROLLERS, PartGroup.RELAYS),
    PartKind.RELAY: (PartGroup.ETCD, PartGroup.AGENTS, PartGroup.CONTROLLERS),
}


class PartError(ValueError):
    """There is no such part, or it is not in a state for what is asked; the text is for the operator."""


class ClusterParts(Startable, ControllerRest):
    """Three nodes of etcd, controllers, and relays, as a context manager; their REST interface is that of the leader.

    Agents connect to controllers where there is no relay. ``parts`` are in the order of their start, etcd's nodes included.
    """

    answer_seconds = 5.0

    def __init__(self, tree: Clos, directory: Path, controllers: int, options: Sequence[str] = (), relays: int = RELAYS) -> None:
        engines = _names(PartKind.ETCD, ENGINES)
        members, senders = _names(PartKind.CONTROLLER, controllers), _names(PartKind.RELAY, relays)
        self.network = ManagementNetwork([*members, *engines, *senders, AGENTS_MACHINE])
        self.directory, self.state_dir = directory, directory / f"{members[0]}.state"
        places = [EtcdPlace(str(self.network.address(name)), enter=tuple(self.network.enter(name))) for name in engines]
        self.etcd = PrivateEtcd(directory / "etcd", places)
        self.parts: dict[str, ChildProcess] = {
            name: ChildProcess(self.etcd.command(node), directory / f"{name}.log") for node, name in enumerate(engines)
        }
        self.address: EngineAddress = parse(self.etcd.address())
        self._controllers = {name: self._controller(name, tree, options) for name in members}
        self.parts |= self._controllers
        self.parts |= {name: self._relay(name) for name in senders}
        self._paused: set[str] = set()
        self._engine = Engine(self.address, timeout=_SECONDS)
        self._log_level = _LOG.level

    # -- the start ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine and the controllers, and wait until one of these leads (done on entering); see `start_relays`."""
        self.start_engine()
        Tokens(_made(self.state_dir))
        for one in self._controllers.values():
            if one.state_dir != self.state_dir:
                for token in _TOKENS:
                    shutil.copy2(self.state_dir / token, _made(one.state_dir) / token)
            ChildProcess.start(one)
        for one in self._controllers.values():
            one.wait_answers()
        self.wait_until(lambda: self.leader() is not None, "a controller led")

    def start_engine(self) -> None:
        """Make all machines, start etcd's nodes, and wait until they answer."""
        require("etcd")
        # what the lab's own client meets is what is done to the engine here
        self._log_level = _LOG.level
        _LOG.setLevel(logging.CRITICAL)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.network.start()
        for name in self.names(PartKind.ETCD):
            self.parts[name].start()
        self.wait_until(self._engine_answers, "the engine answered")

    def start_relays(self) -> None:
        """Start the relays, which have something to serve once there is a version, and wait until the leader knows them."""
        names = self.names(PartKind.RELAY)
        for name in names:
            self.parts[name].start()
        self.wait_until(lambda: set(self.records("relays/")) == {*names}, "the engine knew the relays")

    def stop(self) -> None:
        """End all processes, and remove their machines. It can be called again."""
        for name, part in reversed(self.parts.items()):
            part.stop(signal.SIGKILL if name in self._paused else signal.SIGTERM)
        self._paused.clear()
        self._engine.close()
        self.network.stop()
        _LOG.setLevel(self._log_level)

    @property
    def openflow(self) -> list[tuple[str, int]]:
        """The addresses and OpenFlow ports of the controllers, for switches."""
        return [(str(self.network.address(name)), OPENFLOW_PORT) for name in self._controllers]

    @property
    def agent_urls(self) -> list[str]:
        """The URLs of the relays and then of the controllers, for agents."""
        return [*(self.url_of(name) for name in self.names(PartKind.RELAY)), *self.controller_urls]

    @property
    def controller_urls(self) -> list[str]:
        """The URLs of the controllers, for the arbiter."""
        return [self.url_of(name) for name in self._controllers]

    # -- who is there -------------------------------------------------------------------------------------------------

    def names(self, kind: PartKind) -> list[str]:
        """Return the names of the parts of a kind."""
        return [name for name in self.parts if name.startswith(kind.value)]

    def named(self, name: str, kind: PartKind | None = None) -> str:
        """Return a part's name; ``leader`` is that of the leader now. Raises `PartError` if there is none, or of another kind."""
        if name == LEADER and kind in (None, PartKind.CONTROLLER):
            leader = self.leader()
            if leader is None:
                raise PartError("there is no leader now")
            return leader
        known = [*self.parts] if kind is None else self.names(kind)
        if name not in known:
            raise PartError(f"there is no {kind.value if kind else 'part'} {name!r}: there are {', '.join(known)}")
        return name

    def running(self, name: str) -> bool:
        """Return True if a part's process runs and is not stopped."""
        return self.parts[name].running and name not in self._paused

    def state(self, name: str) -> str:
        """Return ``running``, ``stopped`` (by SIGSTOP) or ``ended``."""
        if not self.parts[name].running:
            return "ended"
        return "stopped" if name in self._paused else "running"

    def url_of(self, name: str) -> str:
        """Return the URL of a controller or a relay."""
        return f"http://{self.network.address(name)}:{REST_PORT}"

    def leader(self) -> str | None:
        """Return the name of the member that leads, as the engine says; None if it names none or does not answer."""
        record = self.record("leader")
        return str(record["name"]) if record else None

    def record(self, key: str) -> dict[str, Any] | None:
        """Return the value of a key of the engine; None without it, or if the engine does not answer."""
        return self.records().get(key)

    def records(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Return the values of the engine's keys that begin with a prefix, by the rest of the key; none if it does not answer."""
        if not any(map(self.running, self.names(PartKind.ETCD))):
            return {}
        try:
            keys = self._engine.read().keys
        except EngineError:
            return {}
        entries = {key.removeprefix(prefix): kept for key, kept in keys.items() if key.startswith(prefix)}
        return {key: json.loads(kept.value) for key, kept in entries.items() if kept is not None}

    # -- REST of the leader -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the leader. Raises `ProcessError` if there is none."""
        leader = self.leader()
        if leader is None:
            raise ProcessError("the engine names no leader")
        return self.url_of(leader)

    def reader_url(self) -> str:
        """Return the URL of the leader if it runs, else of a part that answers readers: a relay, or another controller."""
        leader = self.leader()
        names = [*([leader] if leader else []), *self.names(PartKind.RELAY), *self._controllers]
        return self.url_of(next(filter(self.running, names), names[-1]))

    def answer(self, path: str, **params: str) -> dict[str, Any] | None:
        """Return the body of the leader's answer; None if there is no leader, or it does not answer."""
        try:
            return super().answer(path, **params)
        except (httpx.TransportError, ProcessError):
            return None

    def agents_know(self, agents: int) -> bool:
        """Return True if exactly that many agents, of relays and of the leader itself, have acknowledged the current version."""
        own, records = self.answer("/agents", limit="1"), self.records()
        if own is None or own["behind"] or "view" not in records:
            return False
        relays = [record for key, record in records.items() if key.startswith("relays/")]
        current = all(relay["version"] == records["view"]["version"] and not relay["waiting"] for relay in relays)
        return bool(current and own["total"] + sum(relay["agents"] for relay in relays) == agents)

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        """Wait for a condition. Raises `ProcessError` if a process that was started ends first, or after ``seconds``."""
        started = [part for part in self.parts.values() if part.running]
        deadline = time.monotonic() + seconds
        while not ready():
            ended = [part for part in started if not part.running]
            if ended or time.monotonic() > deadline:
                shown = ended or [part for part in started if isinstance(part, ControllerProcess)] or started
                problem = f"{shown[0].log.stem} ended" if ended else f"waited {seconds:g} s"
                tails = "\n".join(f"{part.log.name}:\n{part.log_tail()}" for part in shown)
                raise ProcessError(f"the cluster: {problem} before {what}:\n{tails}")
            time.sleep(POLL_SECONDS)

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Kill a part by SIGKILL; do nothing if it has ended."""
        self.parts[name].stop(signal.SIGKILL)
        self._paused.discard(name)

    def pause(self, name: str) -> None:
        """Let a part stand still by SIGSTOP. Raises `PartError` if it does not run."""
        standstill.pause(self._running(name).pid)
        self._paused.add(name)

    def resume(self, name: str) -> None:
        """Let a part go on by SIGCONT. Raises `PartError` if it has ended."""
        standstill.resume(self._running(name).pid)
        self._paused.discard(name)

    def restart(self, name: str) -> None:
        """Start a part that has ended again, without waiting until it is ready. Raises `PartError` if it runs."""
        part = self.parts[name]
        if part.running:
            raise PartError(f"{name} runs already")
        ChildProcess.start(part)

    def partition(self, name: str, groups: Collection[PartGroup] | None = None, ways: Collection[Way] = BOTH) -> None:
        """Lose what a part sends to, and receives from, whole groups of others; all by default, but not the lab's own readers.

        Raises `PartError` if a part of this kind has nothing to do with a group.
        """
        part_groups = _PEERS[kind_of(name)]
        for group in groups if groups is not None else part_groups:
            if group not in part_groups:
                raise PartError(
                    f"{name} has nothing to do with {group.value}: cut it off from {', '.join(each.value for each in part_groups)}"
                )
            self.network.cut(name, self._peers(name, group), ways)

    def heal(self, name: str) -> None:
        """Undo all partitions of a part."""
        self.network.heal(name)

    def _peers(self, name: str, group: PartGroup) -> list[Peer]:
        if group is PartGroup.SWITCHES:
            return [Peer(ROOT.ip, OPENFLOW_PORT)]
        if group is PartGroup.AGENTS:
            return [Peer(self.network.address(AGENTS_MACHINE))]
        kinds = {PartGroup.ETCD: PartKind.ETCD, PartGroup.CONTROLLERS: PartKind.CONTROLLER, PartGroup.RELAYS: PartKind.RELAY}
        return [Peer(self.network.address(each)) for each in self.names(kinds[group]) if each != name]

    def _running(self, name: str) -> ChildProcess:
        part = self.parts[name]
        if not part.running:
            raise PartError(f"{name} has ended: start it again first")
        return part

    # -- commands -----------------------------------------------------------------------------------------------------

    def _controller(self, name: str, tree: Clos, options: Sequence[str]) -> ControllerProcess:
        address = str(self.network.address(name))
        return ControllerProcess(
            tree,
            self.directory / f"{name}.log",
            OPENFLOW_PORT,
            REST_PORT,
            rest_host=address,
            options=[
                f"--sopa-cluster={self.address}",
                f"--sopa-cluster-member={name}",
                f"--sopa-cluster-url={self.url_of(name)}",
                *options,
            ],
            reached_at=address,
            enter=self.network.enter(name),
        )

    def _relay(self, name: str) -> RelayProcess:
        address, log = str(self.network.address(name)), self.directory / f"{name}.log"
        enter = self.network.enter(name)
        return RelayProcess(str(self.address), log, REST_PORT, self.state_dir, host=address, enter=enter)

    def _engine_answers(self) -> bool:
        try:
            self._engine.read()
        except EngineError:
            return False
        return True


def kind_of(name: str) -> PartKind:
    """Return what a part is, by its name."""
    return next(kind for kind in PartKind if name.startswith(kind.value))


def _names(kind: PartKind, count: int) -> list[str]:
    return [f"{kind.value}{number}" for number in range(1, count + 1)]


def _made(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
