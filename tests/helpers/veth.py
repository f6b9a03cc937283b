"""Two network namespaces joined by a veth pair, and packet sockets in them."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.waiting import PATIENCE_SECONDS, eventually

IPV4, ALL = 0x0800, 0x0003  # what a packet socket receives
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40
SO_MAX_PACING_RATE = 47


def run(command: str) -> str:
    """Return the output of a command, which must succeed."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


PEER_ADDRESS = "10.2.1.3"


class Pair:
    """Two namespaces joined by a veth pair: the host's end is ``host0``, 10.0.0.2, the peer's ``peer0``, 10.2.1.3."""

    def __init__(self, host: str, peer: str) -> None:
        self.host, self.peer = f"/run/netns/{host}", f"/run/netns/{peer}"
        self._host, self._peer = host, peer

    def on_host(self, command: str) -> str:
        return run(f"ip netns exec {self._host} {command}")

    def on_peer(self, command: str) -> str:
        return run(f"ip netns exec {self._peer} {command}")


@contextmanager
def veth_pair() -> Iterator[Pair]:
    host, peer = (f"sopatest-{end}-{uuid.uuid4().hex[:8]}" for end in "hp")
    try:
        ip(f"netns add {host}", f"netns add {peer}")
        for name in (host, peer):
            with inside(f"/run/netns/{name}"):
                for which in ("all", "default"):
                    Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
        ip(f"link add host0 mtu 9000 netns {host} type veth peer name peer0 mtu 9000 netns {peer}")
        for name, interface, address in ((host, "host0", "10.0.0.2/8"), (peer, "peer0", f"{PEER_ADDRESS}/8")):
            ip("link set lo up", f"addr add {address} dev {interface}", f"link set {interface} up", netns=name)
        # the end that was up first has a queue only after a worker of the kernel has seen its carrier; until then it drops packets
        for name, interface in ((host, "host0"), (peer, "peer0")):
            eventually(lambda name=name, interface=interface: is_running(f"/run/netns/{name}", interface))
        yield Pair(host, peer)
    finally:
        subprocess.run(["ip", "-force", "-batch", "-"], input=f"netns del {host}\nnetns del {peer}\n", text=True,
                       capture_output=True, check=False)  # fmt: skip


def is_running(netns: str, interface: str) -> bool:
    """Whether an interface is up and has been seen to have a carrier."""
    with inside(netns), socket.socket() as asking:
        flags = fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16s16x", interface.encode()))
    return bool(struct.unpack_from("16xH", flags)[0] & IFF_RUNNING)


def ip(*commands: str, netns: str | None = None) -> None:
    """Run commands of ip(8), in a network namespace, by one process."""
    words = ["ip", *(("-n", netns) if netns else ()), "-batch", "-"]
    done = subprocess.run(words, input="\n".join(commands), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{commands}: {done.stderr}"


def raw_socket(netns: str, interface: str, protocol: int) -> socket.socket:
    with inside(netns):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        opened.bind((interface, protocol))
    opened.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    return opened


def frames(capture: socket.socket, wait: float = 0.5) -> list[bytes]:
    """All frames that came in, until none does for a while."""
    taken = []
    while arrives(capture, wait):
        data, address = capture.recvfrom(65536)
        if address[2] != socket.PACKET_OUTGOING:
            taken.append(data)
    return taken


def arrives(end: socket.socket, wait: float) -> bool:
    """Whether something comes in within a while, in which this process does not stand still."""
    while True:
        begun = time.monotonic()
        if select.select([end], [], [], wait)[0]:
            return True
        if time.monotonic() - begun < 2 * wait:
            return False


def transfer(
    pair: Pair, data: bytes, *, source: str | None = None, target: str = PEER_ADDRESS, pieces: int = 1,
    halfway: Callable[[], object] | None = None,
) -> bytes:  # fmt: skip
    """Send data over TCP to the peer, from the host or another namespace, in so many calls; return what arrived.

    ``halfway`` is called when half of the data has been handed over.
    """
    with inside(pair.peer):
        server = socket.create_server((target, 5001))
    received = bytearray()

    def receive() -> None:
        with server.accept()[0] as connection:
            while chunk := connection.recv(1 << 20):
                received.extend(chunk)

    receiver = threading.Thread(target=receive)
    receiver.start()
    with server, inside(source or pair.host), socket.create_connection((target, 5001), PATIENCE_SECONDS) as client:
        step = -(-len(data) // pieces)
        for at in range(0, len(data), step):
            if halfway is not None and at >= len(data) // 2:
                halfway()
                halfway = None
            client.sendall(data[at : at + step])
        client.shutdown(socket.SHUT_WR)
        receiver.join()
    return bytes(received)


class Stream:
    """A connection on which data flows until it is closed: as fast as TCP lets it, or in pieces, with pauses."""

    def __init__(self, source: str, target: str, address: str, port: int = 0, *, pause: float = 0.0, pacing: int = 0) -> None:
        self.sent = self.received = 0
        self._pause, self._done = pause, threading.Event()
        with inside(target), socket.create_server((address, port)) as server:
            with inside(source):
                self.client = socket.create_connection(server.getsockname(), PATIENCE_SECONDS)
            self._accepted, _ = server.accept()
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        if pacing:
            self.client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=I", pacing))
        self.client.settimeout(0.2)
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, exception: type[BaseException] | None, *_rest: object) -> None:
        self._done.set()
        if exception is not None:  # what is on its way may never come
            with suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self.client.close()
        self._accepted.close()
        assert exception is not None or self.received == self.sent

    def _send(self) -> None:
        while not self._done.wait(self._pause):
            with suppress(TimeoutError):
                self.sent += self.client.send(bytes(8192))
        self.client.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        while piece := self._accepted.recv(1 << 20):
            self.received += len(piece)
