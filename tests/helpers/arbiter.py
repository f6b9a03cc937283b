"""A real ``sopa arbiter`` on loopback, and hosts whose agents ask it for slots, without sockets and programs of theirs."""

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from unittest.mock import Mock

from anyio.from_thread import start_blocking_portal

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.agent.cfr_agent import CfrAgent
from sopa_ryu.agent.slots.cfr_demand import Unsent
from sopa_ryu.agent.slots.cfr_grants import Gate
from sopa_ryu.agent.slots.cfr_sender import SlotSender
from sopa_ryu.channel.host_tokens import host_token
from sopa_ryu.channel.slots import Granted


class ArbiterProcess(ChildProcess):
    """``sopa arbiter`` as a child process."""

    def __init__(self, url: str, log: Path, options: Sequence[str]) -> None:
        [self.port] = free_ports(1)
        command = [sys.executable, "-m", "sopa_ryu.cli", "arbiter", "--controller", url]
        super().__init__([*command, "--listen", f"127.0.0.1:{self.port}", *options], log)

    def text(self) -> str:
        return self.log.read_text()


class AskingHost:
    """A host that sends to the others in all slots that it is granted, by an agent; implements `GatePrograms`."""

    netns: str | None = None
    sender = Mock()

    def __init__(self, address: IPv4Address, port: int, secret: str) -> None:
        self.address = address
        self.slots: list[Granted] = []
        self.gate: Gate | None = None
        token = host_token(secret, address)
        self.agent = CfrAgent(address, ("127.0.0.1", port), lambda: token, self, Mock(spec=SlotSender))
        self._wanted, self._sent = Counter[IPv4Address](), Counter[IPv4Address]()
        self._unused = deque[Granted]()

    def want(self, destination: IPv4Address, count: int) -> None:
        """Let applications write so many more bytes."""
        self._wanted[destination] += count

    def left(self) -> int:
        """Return how many bytes have not been sent, of all destinations."""
        return self._wanted.total() - self._sent.total()

    def set_gate(self, _host: IPv4Address, gate: Gate) -> None:
        self.gate = gate

    def grant(self, slots: Iterable[Granted]) -> None:
        new = list(slots)
        self.slots += new
        self._unused += new

    def forget(self) -> None:
        self._unused.clear()

    def used(self, _slot: int) -> int:
        return 0

    def sent(self, _destinations: Iterable[IPv4Address]) -> dict[IPv4Address, int]:
        return dict(self._sent)

    def unsent(self) -> list[Unsent]:
        """Use the slots that are over, and return what is left."""
        now = self.gate.slot_at(time.monotonic_ns()) if self.gate else 0
        while self._unused and self._unused[0].slot < now:
            its = self._unused.popleft()
            self._sent[its.destination] = min(self._wanted[its.destination], self._sent[its.destination] + its.budget)
        return [Unsent(int(to), left) for to, left in (self._wanted - self._sent).items()]


@contextmanager
def asking(addresses: Iterable[IPv4Address], port: int, secret: str) -> Iterator[list[AskingHost]]:
    """Hosts whose agents talk with an arbiter, in a thread."""
    hosts = [AskingHost(address, port, secret) for address in addresses]
    with start_blocking_portal() as portal:
        running = [portal.start_task_soon(host.agent.run) for host in hosts]
        yield hosts
        for each in running:
            each.cancel()
