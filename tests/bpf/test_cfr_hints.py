"""Hints by a real application: a real controller and arbiter, an agent, and TCP over links of 4 Mbit/s."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import tempfile
import termios
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from experiments.emulation.processes import AgentProcess, ControllerProcess, free_ports
from sopa_ryu.agent.hint_client import hint, tell
from sopa_ryu.agent.hint_protocol import Hint, HintError, Refusal
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.arbiter.build import build
from sopa_ryu.channel.host_tokens import token_line
from tests.helpers.arbiter import ArbiterProcess
from tests.helpers.rack import MBIT, RECEIVER, SENDERS, Rack
from tests.helpers.scrape import scrape
from tests.helpers.waiting import PATIENCE_SECONDS, eventually

SENDER = SENDERS[0]
SIZE = 30_000
NOBODY = 65534


def metrics(port: int) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^([a-z_]\S*) (\S+)$", scrape(port), re.MULTILINE)}


class Application:
    """A connection over which the test sends."""

    def __init__(self, rack: Rack, closing: ExitStack) -> None:
        with inside(rack.path(RECEIVER)):
            self._server = closing.enter_context(socket.create_server((RECEIVER, 0)))
        with inside(rack.path(SENDER)):
            self.socket = closing.enter_context(socket.create_connection(self._server.getsockname(), PATIENCE_SECONDS))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SIZE)
        self.end, _ = self._server.accept()
        closing.enter_context(self.end)
        self.end.settimeout(PATIENCE_SECONDS)
        # the first packet of a connection passes in any case
        self.socket.sendall(b"first")
        assert self.end.recv(16) == b"first"

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def queued(self) -> int:
        """What the kernel holds of it."""
        return int(struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0])

    def send(self, size: int) -> None:
        arrived = 0
        self.socket.sendall(bytes(size))
        while arrived < size:
            arrived += len(self.end.recv(1 << 16))


class Host:
    """A host whose agent follows the arbiter, by what it says itself."""

    def __init__(self, directory: Path, closing: ExitStack) -> None:
        openflow, rest = free_ports(2)
        self.agent_port, self._arbiter_port = free_ports(2)
        options = ("--sopa-no-switches", f"--sopa-link-mbit={MBIT}")
        self._controller = ControllerProcess(4, directory / "controller.log", openflow, rest, options=options)
        closing.enter_context(self._controller)
        secret = self._controller.state_dir / "agent-secret"
        given = [f"--secret-file={secret}", "--slot=3.2", f"--rate={MBIT}", f"--metrics-port={self._arbiter_port}"]
        self._arbiter = closing.enter_context(ArbiterProcess(self._controller.url, directory / "arbiter.log", given))
        self.rack = Rack()
        closing.callback(self.rack.remove)
        self.rack.build()
        self.sockets = Path(tempfile.mkdtemp())  # other users cannot reach the tests' directories
        closing.callback(shutil.rmtree, self.sockets)
        self.sockets.chmod(0o755)
        self.path = self.sockets / "hints"
        self.log, self._tokens = directory / "agent.log", directory / "tokens"
        self._tokens.write_text(token_line(secret.read_text().strip(), IPv4Address(SENDER)) + "\n")

    def agent(self) -> AgentProcess:
        options = [
            f"--state-dir={self.sockets / 'state'}",
            "--policy=cfr",
            f"--arbiter=127.0.0.1:{self._arbiter.port}",
            f"--token-file={self._tokens}",
            f"--metrics-port={self.agent_port}",
            f"--hints={self.path}",
        ]
        return AgentProcess([f"eth0@{self.rack.path(SENDER)}"], self._controller.url, self.log, options)

    def of_agent(self, name: str, label: str = "") -> float:
        interface = f'interface="eth0@{self.rack.path(SENDER)}"'
        return metrics(self.agent_port).get(f"sopa_agent_cfr_{name}{{{interface}{label}}}", -1.0)

    def granted(self) -> float:
        return metrics(self._arbiter_port)["sopa_arbiter_granted_cells_total"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    build()
    with ExitStack() as closing:
        yield Host(tmp_path, closing)


def as_user(user: int, path: Path, its: Hint) -> Refusal | None:
    """Give a hint as another user; return the reason why it is refused."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setuid(user)
            tell(path, its)
        except HintError as error:
            os.write(writes, error.reason.encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        text = said.read()
    os.waitpid(child, 0)
    return Refusal(text) if text else None


def test_slots_are_granted_before_the_data_is_written(host: Host) -> None:
    with ExitStack() as closing:
        agent = closing.enter_context(host.agent())
        eventually(lambda: host.of_agent("gate_closed"), 1.0)
        application = Application(host.rack, closing)
        application.send(SIZE)
        eventually(application.queued, 0)
        before = host.granted()
        assert hint(application.socket, SIZE, within_ms=60_000, path=host.path) == SIZE
        eventually(host.granted, lambda found: found >= before + 4)
        assert application.queued() == 0  # nothing was written yet
        assert host.of_agent("hinted_bytes") == SIZE
        application.send(SIZE)
        eventually(lambda: host.of_agent("hints_total", ',outcome="used"'), 1.0)
        assert host.of_agent("hinted_bytes") == 0

        its = Hint(IPv4Address(RECEIVER), application.socket.getpeername()[1], application.port, SIZE)
        assert as_user(NOBODY, host.path, its) is Refusal.USER
        assert as_user(NOBODY, host.path, its._replace(port=1)) is Refusal.CONNECTION
        application.socket.close()
        assert host.of_agent("refused_hints_total", ',reason="user"') == 1
        agent.stop(signal.SIGKILL)
        assert host.path.is_socket()
        closing.enter_context(host.agent())
        eventually(lambda: host.of_agent("gate_closed"), 1.0)
        again = Application(host.rack, closing)
        assert hint(again.socket, 1 << 40, path=host.path) <= 1 << 40
        assert host.of_agent("hints_total", ',outcome="accepted"') == 1
    assert not host.path.exists()
