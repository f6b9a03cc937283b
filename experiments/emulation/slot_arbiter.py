"""The arbiter of a lab's hosts that send in slots, what they and it need besides, and a way to it that loses grants."""

from __future__ import annotations

import random
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from experiments.emulation.processes import READY_SECONDS, ChildProcess, free_ports, metric_samples
from experiments.emulation.threads import Threads
from experiments.schemes.scheme import Slots
from sopa_ryu.arbiter.budgets import min_slot_ms
from sopa_ryu.channel.host_tokens import token_line
from sopa_ryu.channel.slots import PORT
from sopa_ryu.rest.access import SECRET
from topologies import Clos

ADDRESS = f"127.0.0.1:{PORT}"
MIN_SLOT_MS = 3.0
PACKETS = 4
"""Of a slot: with fewer, the agents of 16 hosts take both processors of a machine to begin slots in time."""


def slot_ms(slots: Slots, rate_mbit: float) -> float:
    """Return the length of a slot in milliseconds, in which a host's link carries its packets and leaves the arbiter's guard.

    >>> slot_ms(Slots(), 4.0), slot_ms(Slots(packets=1), 4.0), slot_ms(Slots(packets=1), 20.0)
    (12.8, 3.2, 3.0)
    """
    return max(MIN_SLOT_MS, min_slot_ms(rate_mbit / (slots.packets or PACKETS)))


class ArbiterProcess(ChildProcess):
    """``sopa arbiter`` as a child process, whose datagrams are authenticated.

    Args:
        controllers: Their URLs. They run when this is started.
        state_dir: Of a controller, with the fabric's secret.
        rate_mbit: Rate of hosts' links in Mbit/s.
        directory: Of its log and of the tokens of all hosts (``token_file``).
        enter: As of `ControllerProcess`.
        host: Address on which it serves metrics, and other namespaces reach it.
    """

    def __init__(
        self,
        tree: Clos,
        controllers: Sequence[str],
        state_dir: Path,
        slots: Slots,
        rate_mbit: float,
        directory: Path,
        seed: int = 1,
        enter: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        secret_file = state_dir / SECRET
        self.token_file = directory / "host-tokens"
        self._tree, self._secret_file = tree, secret_file
        [port] = free_ports(1)
        self._url = f"http://{host}:{port}"
        command = [*enter, sys.executable, "-m", "sopa_ryu.cli", "arbiter", f"--listen={ADDRESS}"]
        command += [f"--controller={url}" for url in controllers]
        command += [f"--slot={slot_ms(slots, rate_mbit):g}", f"--rate={rate_mbit:g}", f"--seed={seed}"]
        command += [f"--secret-file={secret_file}", f"--metrics-port={port}", f"--metrics-host={host}"]
        super().__init__(command, directory / "arbiter.log")

    def start(self) -> None:
        """Write the hosts' tokens, and start it without waiting."""
        secret = self._secret_file.read_text().strip()
        self.token_file.write_text("".join(f"{token_line(secret, self._tree.ip(host))}\n" for host in self._tree.hosts()))
        super().start()

    def wait_granting(self, hosts: int) -> None:
        """Wait until so many hosts take part, and slots are granted."""

        def granting() -> bool:
            try:
                read = self.metrics()
            except httpx.TransportError:
                return False
            return read["sopa_arbiter_participants"] == hosts and read["sopa_arbiter_granting"] == 1

        self.wait_until(granting, f"{hosts} hosts took part", READY_SECONDS)

    def metrics(self) -> dict[str, float]:
        """Return its metrics without labels by name."""
        return {sample.name: sample.value for sample in metric_samples(self._url) if not sample.labels}


MAX_BYTES = 65535
POLL_SECONDS = 0.2


class DatagramRelay(Threads):
    """Passes clients' datagrams to a server and its answers back, from a thread of its own, while the context lasts.

    A share of the answers is lost, 0 to 1; the seed decides which. Clients send to ``address``.
    ``answers`` of the server so far, and those of them that were ``lost``, are counted.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    ...     server.bind(("127.0.0.1", 0))
    ...     with DatagramRelay(server.getsockname(), 0.0, 1) as relay, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    ...         _ = client.sendto(b"demand", relay.address)
    ...         request, sender = server.recvfrom(100)
    ...         _ = server.sendto(b"grant", sender)
    ...         request, client.recv(100), relay.lost
    (b'demand', b'grant', 0)
    """

    def __init__(self, server: tuple[str, int], loss: float, seed: int) -> None:
        super().__init__(self._run)
        self.answers = self.lost = 0
        self._server, self._loss = server, loss
        self._random = random.Random(f"{seed} relay")
        self._outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._outside.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._outside.getsockname()
        self._by_client: dict[tuple[str, int], socket.socket] = {}
        self._by_socket: dict[socket.socket, tuple[str, int]] = {}

    def close(self) -> None:
        """Close all sockets."""
        for one in (self._outside, *self._by_socket):
            one.close()

    def _run(self) -> None:
        while not self.ended.is_set():
            readable, _, _ = select.select([self._outside, *self._by_socket], [], [], POLL_SECONDS)
            for one in readable:
                try:
                    self._pass(one)
                except ConnectionRefusedError:
                    continue  # the server is away: what was sent to it is lost

    def _pass(self, one: socket.socket) -> None:
        if one is self._outside:
            datagram, client = one.recvfrom(MAX_BYTES)
            self._towards_server(client).send(datagram)
            return
        datagram = one.recv(MAX_BYTES)
        self.answers += 1
        if self._random.random() < self._loss:
            self.lost += 1
        else:
            self._outside.sendto(datagram, self._by_socket[one])

    def _towards_server(self, client: tuple[str, int]) -> socket.socket:
        if client not in self._by_client:
            sock = self._by_client[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(self._server)
            self._by_socket[sock] = client
        return self._by_client[client]
