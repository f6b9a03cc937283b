"""A real ``sopa arbiter`` on loopback, and hosts that ask it for slots over UDP as agents do."""

import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.channel.host_tokens import host_token
from sopa_ryu.channel.slots import Demand, Grant, Wanted, read_grant, write_demand

MAX_DATAGRAM = 2048


class ArbiterProcess(ChildProcess):
    """``sopa arbiter`` as a child process."""

    def __init__(self, url: str, log: Path, options: Sequence[str] = (), port: int | None = None) -> None:
        self.port = port if port is not None else free_ports(1)[0]
        command = [sys.executable, "-m", "sopa_ryu.cli", "arbiter", "--controller", url]
        super().__init__([*command, "--listen", f"127.0.0.1:{self.port}", *options], log)

    def text(self) -> str:
        return self.log.read_text()


class AskingHost:
    """A host that wants to send: demands are cumulative, and each slot that it is granted, of `grants`, counts as used."""

    def __init__(self, address: IPv4Address, port: int, secret: str | None = None, run: int = 1) -> None:
        self.address, self.run = address, run
        self.token = host_token(secret, address) if secret is not None else ""
        self.sequence = 0
        self.wanted: dict[IPv4Address, int] = {}
        self.grants: list[Grant] = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._sent: dict[IPv4Address, int] = {}
        self._unused: list[tuple[int, IPv4Address, int]] = []

    def want(self, destination: IPv4Address, count: int) -> None:
        """Let applications write so many more bytes."""
        self.wanted[destination] = self.wanted.get(destination, 0) + count

    def left(self) -> int:
        """Return how many bytes have not been sent, of all destinations."""
        return sum(self.wanted.values()) - sum(self._sent.values())

    def ask(self) -> bytes:
        """Send a demand; return the datagram."""
        last = self.grants[-1] if self.grants else None
        through = self._use(last.slot_ns) if last is not None else 0
        self.sequence += 1
        entries = tuple(Wanted(other, total, self._sent.get(other, 0)) for other, total in self.wanted.items())
        term = last.term if last is not None else 0
        demand = Demand(self.address, self.sequence, term, self.run, time.monotonic_ns(), through, entries)
        datagram = write_demand(demand, self.token)
        with suppress(ConnectionRefusedError):  # of the datagram before
            self.socket.send(datagram)
        return datagram

    def _use(self, slot_ns: int) -> int:
        """Use the slots that are over; return the last. The arbiter's clock is this machine's."""
        over = time.monotonic_ns() // slot_ns - 1
        for slot, destination, budget in [each for each in self._unused if each[0] <= over]:
            sent = self._sent.get(destination, 0)
            self._sent[destination] = min(self.wanted.get(destination, 0), sent + budget)
            self._unused.remove((slot, destination, budget))
        return over

    def read(self) -> list[Grant]:
        """Read what has arrived."""
        new: list[Grant] = []
        while True:
            try:
                new.append(read_grant(self.socket.recv(MAX_DATAGRAM), self.token))
            except ConnectionRefusedError:  # an arbiter that is gone; what it sent before is behind this
                continue
            except BlockingIOError:
                break
        self.grants += new
        self._unused += [(its.slot, its.destination, its.budget) for grant in new for its in grant.entries]
        return new

    def close(self) -> None:
        self.socket.close()


def converse(hosts: Iterable[AskingHost], seconds: float, interval: float = 0.012) -> None:
    """Let hosts ask at an interval and read what they are granted, for some seconds, and at least once."""
    hosts = list(hosts)
    until, over = time.monotonic() + seconds, False
    while not over:
        over = time.monotonic() > until
        for host in hosts:
            host.ask()
        time.sleep(interval)  # the agents' interval
        for host in hosts:
            host.read()
