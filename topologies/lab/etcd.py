"""A private etcd: several nodes in a directory, without a system service, that are killed, stopped and continued one by one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from topologies.lab import standstill
from topologies.lab.isolation import die_with_parent, require
from topologies.lab.startable import Startable, log_tail

START_SECONDS = 60.0
HEARTBEAT_MS, ELECTION_MS = 50, 500
"""As docs/controllers.md recommends them: etcd's least lease is one and a half elections."""
CLIENT_PORT, PEER_PORT = 2379, 2380
# below those that the kernel gives to clients, so that a restarted node finds its own free
_FIRST_PORT, _LAST_PORT = 20000, 32000
ROOT = "root"


class EtcdError(RuntimeError):
    """A node did not start, or etcdctl failed; the text has its output."""


class EtcdPlace(NamedTuple):
    """A node's address and ports, and the command that enters its namespace (``("ip", "netns", "exec", "m1")``)."""

    host: str
    client_port: int = CLIENT_PORT
    peer_port: int = PEER_PORT
    enter: tuple[str, ...] = ()


class Tls(NamedTuple):
    """The certificates of nodes: their authority, certificate and key, and whether clients need one of that authority.

    ``client_cert`` and ``client_key`` are etcdctl's.
    """

    ca: Path
    cert: Path
    key: Path
    clients: bool = False
    client_cert: Path | None = None
    client_key: Path | None = None


class PrivateEtcd(Startable):
    """An etcd of several nodes, as a context manager; they are killed if the thread that started them ends.

    Args:
        directory: For data and logs. It is created if it is missing; a memory file system makes writes fast.
        places: Where the nodes are; a number for so many on free ports of loopback.
        quota: Bytes of the database; 0 for etcd's own 2 GiB.

    Attributes:
        token: The ``--initial-cluster-token``; etcd's own if it is empty. With another one a new engine has another identity.
        members: The nodes that are of the engine: all but those that were removed.

    Raises:
        MissingCommandError, EtcdError: On entering, if etcd is not installed, or a node does not start: with its log's end.
    """

    def __init__(
        self,
        directory: Path,
        places: Sequence[EtcdPlace] | int = 3,
        tls: Tls | None = None,
        quota: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory).absolute()
        self.places = loopback(places) if isinstance(places, int) else tuple(places)
        self.tls = tls
        self.token = ""
        self.members = list(range(len(self.places)))
        self._added: set[int] = set()
        self._options = (*options, *((f"--quota-backend-bytes={quota}",) if quota else ()))
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._root_password = ""

    # -- addresses ------------------------------------------------------------------------------------------------------

    @property
    def endpoints(self) -> list[str]:
        """The nodes' addresses for clients, as HOST:PORT."""
        return [f"{self.places[node].host}:{self.places[node].client_port}" for node in self.members]

    def address(self, name: str = "sopa", first: int = 0) -> str:
        """Return the address for ``--sopa-cluster``; ``first`` is the node that a client begins with."""
        nodes = self.endpoints[first:] + self.endpoints[:first]
        return f"etcd://{','.join(nodes)}/{name}"

    def _url(self, node: int, peer: bool = False) -> str:
        place = self.places[node]
        if peer:
            return f"http://{place.host}:{place.peer_port}"
        return f"{'http' if self.tls is None else 'https'}://{place.host}:{place.client_port}"

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes with empty databases (done on entering)."""
        require("etcd", "etcdctl")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._added.clear()
        for node in self.members:
            shutil.rmtree(self.data(node), ignore_errors=True)
            self._spawn(node)
        self.wait()

    def restore(self, snapshot: Path) -> None:
        """Start all nodes, which were stopped, with the contents of a snapshot."""
        self._added.clear()
        for node in self.members:
            shutil.rmtree(self.data(node), ignore_errors=True)
            said = [word for word in self.command(node) if word.startswith(("--name", "--data-dir", "--initial-"))]
            self.ctl("snapshot", "restore", str(snapshot), *said)
            self._spawn(node)
        self.wait()

    def remove(self, node: int) -> None:
        """Remove a killed node once the others agree, who may have to choose a leader first; `EtcdError` after `START_SECONDS`."""
        self.members.remove(node)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                rows = [line.split(", ") for line in self.ctl("member", "list", timeout="5s").splitlines()]
                numbers = [row[0] for row in rows if row[2] == f"n{node}"]
                if not numbers:  # a removal without an answer may have been carried out
                    break
                self.ctl("member", "remove", *numbers, timeout="5s")
            except EtcdError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        del self._nodes[node]

    def add(self, place: EtcdPlace) -> int:
        """Add a node to the engine, and return its number."""
        self.places = (*self.places, place)
        node = len(self.places) - 1
        self.ctl("member", "add", f"n{node}", f"--peer-urls={self._url(node, peer=True)}")
        self.members.append(node)
        self._added.add(node)
        self._spawn(node)
        self.wait([node])
        return node

    def stop(self) -> None:
        """Kill all nodes: SIGTERM would wait for clients' connections. It can be called again."""
        for process in self._nodes.values():
            process.kill()
        for process in self._nodes.values():
            process.wait()
        self._nodes.clear()

    def pid(self, node: int) -> int:
        return self._nodes[node].pid

    def data(self, node: int) -> Path:
        return self.directory / f"n{node}"

    def kill(self, node: int) -> None:
        self._nodes[node].kill()
        self._nodes[node].wait()

    def pause(self, node: int) -> None:
        """Stop a node's process: it keeps its connections and answers nothing."""
        standstill.pause(self.pid(node))

    def resume(self, node: int) -> None:
        standstill.resume(self.pid(node))

    def restart(self, node: int, wait: bool = True) -> None:
        """Start a killed node again with its database."""
        self._spawn(node)
        if wait:
            self.wait([node])

    def mend(self) -> None:
        """Continue every stopped node, start every killed one, and wait until all answer."""
        for node, process in tuple(self._nodes.items()):
            if process.poll() is None:
                self.resume(node)
            else:
                self._spawn(node)
        self.wait()

    def wait(self, nodes: Sequence[int] | None = None) -> None:
        """Wait until nodes, all by default, answer with a quorum; `EtcdError` if one has ended, or after `START_SECONDS`."""
        deadline = time.monotonic() + START_SECONDS
        for node in self.members if nodes is None else nodes:
            while True:
                problem = f"it exited with status {self._nodes[node].poll()}"
                if self._nodes[node].poll() is None:
                    try:
                        self.ctl("endpoint", "status", endpoints=[node], timeout="1s")
                        self.ctl("get", "ready", endpoints=[node], timeout="1s")
                        break
                    except EtcdError as error:
                        problem = str(error)
                        time.sleep(0.02)
                if self._nodes[node].poll() is not None or time.monotonic() > deadline:
                    raise EtcdError(f"etcd node {node} did not start: {problem}\n{log_tail(self._log(node))}")

    def leader(self) -> int | None:
        """Return the node that leads among the others; None if there is none."""
        for node, process in self._nodes.items():
            if process.poll() is not None:
                continue
            with contextlib.suppress(EtcdError):
                answer = self.ctl("endpoint", "status", "-w", "json", endpoints=[node], timeout="1s")
                status = json.loads(answer)[0]["Status"]
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    return node
        return None

    # -- clients --------------------------------------------------------------------------------------------------------

    def ctl(self, *words: str, endpoints: Sequence[int] | None = None, timeout: str = "20s") -> str:
        """Run etcdctl as an administrator at nodes, all by default, and return its output; `EtcdError` if it fails."""
        nodes = self.members if endpoints is None else endpoints
        command = [*self.places[nodes[0]].enter, "etcdctl", f"--endpoints={','.join(self._url(node) for node in nodes)}"]
        command += [f"--command-timeout={timeout}", f"--dial-timeout={timeout}"]
        if self.tls is not None:
            command.append(f"--cacert={self.tls.ca}")
            if self.tls.client_cert is not None and self.tls.client_key is not None:
                command += [f"--cert={self.tls.client_cert}", f"--key={self.tls.client_key}"]
        if self._root_password:
            command += ["--user", f"{ROOT}:{self._root_password}"]
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, check=False, env={**os.environ, "ETCDCTL_API": "3"}
        )
        if done.returncode != 0:
            raise EtcdError(f"etcdctl {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def enable_users(self, root_password: str, users: Mapping[str, tuple[str, str]]) -> None:
        """Enable users: root, and others, each with a password and the prefix of the keys that it may read and write."""
        self.ctl("user", "add", f"{ROOT}:{root_password}")
        for user, (password, prefix) in users.items():
            self.ctl("user", "add", f"{user}:{password}")
            self.ctl("role", "add", user)
            if prefix:
                self.ctl("role", "grant-permission", user, "--prefix=true", "readwrite", prefix)
            self.ctl("user", "grant-role", user, user)
        self.ctl("auth", "enable")
        self._root_password = root_password

    def disable_users(self) -> None:
        """Let everybody read and write again."""
        self.ctl("auth", "disable")
        self._root_password = ""

    # -- how a node is started ------------------------------------------------------------------------------------------

    def command(self, node: int) -> list[str]:
        place = self.places[node]
        cluster = ",".join(f"n{other}={self._url(other, peer=True)}" for other in self.members)
        client, peer = self._url(node), self._url(node, peer=True)
        command = [
            *place.enter, "etcd", f"--name=n{node}", f"--data-dir={self.data(node)}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={cluster}",
            f"--heartbeat-interval={HEARTBEAT_MS}", f"--election-timeout={ELECTION_MS}", "--pre-vote", "--logger=zap",
            *self._options,
        ]  # fmt: skip
        if self.token:
            command.append(f"--initial-cluster-token={self.token}")
        if node in self._added:
            command.append("--initial-cluster-state=existing")
        if self.tls is not None:
            command += [f"--cert-file={self.tls.cert}", f"--key-file={self.tls.key}"]
            if self.tls.clients:
                command += ["--client-cert-auth", f"--trusted-ca-file={self.tls.ca}"]
        return command

    def _spawn(self, node: int) -> None:
        command, parent = self.command(node), os.getpid()
        with self._log(node).open("ab") as log:
            self._nodes[node] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C at the terminal must not reach it
                preexec_fn=lambda: die_with_parent(parent),
            )

    def _log(self, node: int) -> Path:
        return self.directory / f"n{node}.log"


def loopback(count: int) -> tuple[EtcdPlace, ...]:
    """Return places for so many nodes on free ports of loopback."""
    ports: list[int] = []
    # far from those of a process that was started right before or after this one: a killed node's port is nobody's for a moment
    candidate = _FIRST_PORT + os.getpid() * 211 % (_LAST_PORT - _FIRST_PORT)
    while len(ports) < 2 * count:
        candidate = candidate + 1 if candidate < _LAST_PORT else _FIRST_PORT
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", candidate))
            ports.append(candidate)
    return tuple(EtcdPlace("127.0.0.1", *pair) for pair in zip(ports[::2], ports[1::2], strict=True))
