"""The way out under traffic: a leaf-spine fabric with two gateways, each with an address that is outside of the fabric."""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from socketserver import BaseRequestHandler, TCPServer

from experiments.emulation.routers.frr_daemons import Daemons
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.shared_lab import of_fabric, shared
from tests.helpers.sopa_lab import QUICK, failures, in_force, revalidated, run, socket_at, whole
from tests.helpers.veth import ip
from tests.helpers.waiting import Containing, eventually
from topologies import Clos
from topologies.identity import PREFIX6
from topologies.lab.batch_net import routes

gateways = shared(lambda: whole(LEAVES, controller_options=QUICK), of_fabric)

OUTSIDE = "198.51.100.7"
FAR = {
    "203.0.113.7": (socket.AF_INET, socket.IPPROTO_IP, 14),  # IP_MTU
    "2001:db8::7": (socket.AF_INET6, socket.IPPROTO_IPV6, 24),  # IPV6_MTU
}
NARROW = 1300
UDP_PORT, TCP_PORT = 9800, 9801
TAKE_SECONDS = 0.1
FLOWS = 20
LEAVES = Clos(
    pods=1, edges=3, aggregations=2, cores=0, hosts=2, gateways=["h0_1_2", "h0_2_2"], no_label=["h0_0_3"], prefix6=str(PREFIX6)
)
SENDERS = ("h0_0_2", "h0_0_3")
"""A host that labels and one that does not."""
GATEWAYS = [LEAVES.name(gateway) for gateway in LEAVES.gateways]


class Echo(BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


class Outside:
    """The address outside at each gateway: it takes datagrams, and sends back what it gets by TCP.

    Datagrams wait for each other in the socket: to take each when it comes costs a processor what the product may need of it.
    """

    def __init__(self, lab: SopaLab, stack: ExitStack) -> None:
        self._ended = threading.Event()
        self.got: dict[str, dict[tuple[str, int], int]] = {name: {} for name in GATEWAYS}
        """By gateway, the flow, which is the source port, of each datagram: its sender's address and its number."""
        for name, got in self.got.items():
            run(lab, name, "ip", "address", "add", f"{OUTSIDE}/32", "dev", "lo")
            stack.callback(run, lab, name, "ip", "address", "del", f"{OUTSIDE}/32", "dev", "lo")
            with inside(lab.lab.netns(lab.tree.host(name))):
                echo = stack.enter_context(TCPServer((OUTSIDE, TCP_PORT), Echo))
                datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            datagrams.bind((OUTSIDE, UDP_PORT))
            datagrams.setblocking(False)
            datagrams.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
            taking = threading.Thread(target=self._take, args=(datagrams, got))
            for thread in (threading.Thread(target=echo.serve_forever), taking):
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._ended.set)
            stack.callback(echo.shutdown)

    def _take(self, datagrams: socket.socket, got: dict[tuple[str, int], int]) -> None:
        while not self._ended.wait(TAKE_SECONDS):
            with suppress(BlockingIOError):
                while True:
                    number, (sender, port) = datagrams.recvfrom(64)
                    got[sender, int(number)] = port

    def arrived(self, sender: str) -> set[int]:
        """Return the numbers of a sender's datagrams that have arrived."""
        return {number for got in self.got.values() for its, number in list(got) if its == sender}


@contextmanager
def outside(lab: SopaLab) -> Iterator[Outside]:
    with ExitStack() as stack:
        yield Outside(lab, stack)


@contextmanager
def behind_a_narrow_link(lab: SopaLab) -> Iterator[None]:
    """A host outside with the addresses `FAR`, behind each gateway and a link of a smaller MTU, which that host does not know."""
    with ExitStack() as stack:
        for name in GATEWAYS:
            far, forwards = f"far-{name}", ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
            ip(f"netns add {far}")
            stack.callback(ip, f"netns del {far}")
            run(lab, name, "ip", "link", "add", "far", "mtu", str(NARROW), "type", "veth", "peer", "name", "eth0", "netns", far)
            run(
                lab,
                name,
                "sysctl",
                "-w",
                "net.ipv6.conf.far.disable_ipv6=0",
                "net.ipv6.conf.far.accept_dad=0",
                *(f"{its}=1" for its in forwards),
            )
            stack.callback(run, lab, name, "sysctl", "-w", *(f"{its}=0" for its in forwards))
            run(lab, name, "ip", "link", "set", "far", "up")
            ip("link set lo up", "link set eth0 up", netns=far)
            for address, (family, *_) in FAR.items():
                router = address.removesuffix("7") + "1"
                length, nodad = (24, ()) if family == socket.AF_INET else (64, ("nodad",))
                run(lab, name, "ip", "address", "add", f"{router}/{length}", "dev", "far", *nodad)
                ip(f"address add {address}/{length} dev eth0 {' '.join(nodad)}", netns=far)
                # what it sends fits; its segments may be as large as Ethernet's
                ip(f"route add default via {router} mtu {NARROW} advmss 1440", netns=far)
                with inside(f"/run/netns/{far}"):
                    echo = TCPServer((address, TCP_PORT), Echo, bind_and_activate=False)
                    echo.socket = socket.socket(family, socket.SOCK_STREAM)
                echo.server_bind()
                echo.server_activate()
                serving = threading.Thread(target=echo.serve_forever)
                serving.start()
                for end in (echo.server_close, serving.join, echo.shutdown):
                    stack.callback(end)
        yield


class Stream:
    """Datagrams to the outside, of several flows in turn; ``sent`` has the source port of each."""

    def __init__(self, lab: SopaLab, host: str, per_second: int = 300) -> None:
        self._interval = 1 / per_second
        self.sent: list[int] = []
        self.address = str(lab.tree.ip(lab.tree.host(host)))
        self._sockets = [socket_at(lab, host, socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Stream:
        for at, its in enumerate(self._sockets):
            its.bind(("", 20000 + at))
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        self._thread.join()
        for its in self._sockets:
            its.close()

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            number = len(self.sent)
            self.sent.append(20000 + number % FLOWS)
            self._sockets[number % FLOWS].sendto(b"%d" % number, (OUTSIDE, UDP_PORT))
            due += self._interval
            time.sleep(max(0.0, due - time.monotonic()))


def wait_for(stream: Stream, more: int) -> None:
    enough = len(stream.sent) + more
    eventually(lambda: len(stream.sent) > enough, True)


def away(lab: SopaLab, gateway: str) -> str | None:
    return {each["name"]: each["away"] for each in lab.controller.fabric()["gateways"]}[gateway]


def restore(lab: SopaLab, gateway: str, failed: int = 0) -> None:
    """Bring a gateway's interface up again, and wait until it is in use, and only so many links are not."""
    host = lab.tree.host(gateway)
    run(lab, gateway, "ip", "link", "set", lab.lab.interface(host, 0), "up")
    for line in routes(lab.lab.net[gateway]):
        run(lab, gateway, "ip", *line.split())
    eventually(lambda: len(lab.controller.fabric()["failures"]), failed)
    in_force(lab)
    revalidated(lab)


def test_a_gateway_that_dies_loses_datagrams_until_all_know_it_and_other_gateways_flows_none(gateways: SopaLab) -> None:
    lab, interface = gateways, gateways.lab.interface(gateways.tree.host(GATEWAYS[0]), 0)
    with outside(lab) as world, Stream(lab, SENDERS[0]) as labelled, Stream(lab, SENDERS[1]) as unlabelled:
        streams = labelled, unlabelled
        both = {(gateway, stream.address) for gateway, stream in product(GATEWAYS, streams)}
        eventually(lambda: {(gateway, sender) for gateway, got in world.got.items() for sender, _ in [*got]}, both)
        run(lab, GATEWAYS[0], "ip", "link", "set", interface, "down")
        eventually(lambda: away(lab, GATEWAYS[0]) is not None, True)
        in_force(lab)
        revalidated(lab)
        known_at = [len(stream.sent) for stream in streams]
        for stream, since in zip(streams, known_at, strict=True):
            wait_for(stream, 200)
            its = set(range(since, len(stream.sent)))
            eventually(lambda stream=stream, its=its: its - world.arrived(stream.address), set())
            ports = {port for (sender, _), port in world.got[GATEWAYS[0]].items() if sender == stream.address}
            assert 0 < len(ports) < FLOWS  # the other gateway has flows of its own
            arrived = world.arrived(stream.address)
            lost = {flow for number, flow in enumerate(stream.sent[:since]) if number not in arrived}
            assert lost <= ports
    restore(lab, GATEWAYS[0])


def test_connections_to_the_outside_and_an_answer_once_no_gateway_is_left(gateways: SopaLab) -> None:
    lab, payload = gateways, bytes(range(256)) * 400

    @contextmanager
    def connected(host: str, address: str, family: int = socket.AF_INET) -> Iterator[socket.socket]:
        """Connect a host to an address outside, and have the payload come back."""
        with socket_at(lab, host, family, socket.SOCK_STREAM) as its:
            its.settimeout(60)
            its.connect((address, TCP_PORT))
            sender = threading.Thread(target=its.sendall, args=(payload,))
            sender.start()
            back = bytearray()
            while len(back) < len(payload):
                back += its.recv(1 << 16)
            sender.join()
            assert bytes(back) == payload
            yield its

    with outside(lab):
        for _ in range(6):
            with connected("h0_0_2", OUTSIDE):
                pass
    with behind_a_narrow_link(lab):
        for host, (address, (family, level, mtu)) in product(SENDERS, FAR.items()):
            with connected(host, address, family) as its:
                assert its.getsockopt(level, mtu) == NARROW  # as the gateway has answered
    for name in GATEWAYS:
        run(lab, name, "ip", "link", "set", lab.lab.interface(lab.tree.host(name), 0), "down")
    eventually(lambda: all("down" in (each["away"] or "") for each in lab.controller.fabric()["gateways"]), True)
    in_force(lab)
    answer = re.compile(r"From 10\.0\.0\.1 icmp_seq=\d+ Destination Net Unreachable")
    eventually(lambda: answer.search(run(lab, "h0_0_2", "ping", "-c", "1", "-W", "5", OUTSIDE, check=False)))
    with socket_at(lab, "h0_0_3", socket.AF_INET, socket.SOCK_STREAM) as its:
        its.settimeout(60)
        assert its.connect_ex((OUTSIDE, TCP_PORT)) in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    for name in GATEWAYS:
        restore(lab, name, len(GATEWAYS) - 1 - GATEWAYS.index(name))


PEER = """
bfd
 peer 10.0.1.1 local-address 10.0.1.2 interface {interface}
  receive-interval 2000
  transmit-interval 2000
"""


def test_a_gateway_that_falls_silent_is_left_if_it_has_spoken_bfd(gateways: SopaLab) -> None:
    """FRR's BFD daemon runs at one gateway and none at the other: only the silence of the first one tells anything."""
    lab = gateways
    speaking, other = LEAVES.gateways
    link = LEAVES.name(LEAVES.link(speaking, LEAVES.edge_of(speaking)))
    configuration = {GATEWAYS[0]: {"bfdd": PEER.format(interface=lab.lab.interface(speaking, 0))}}

    def to_outside() -> set[str]:
        body = lab.controller.get("/paths", src="10.0.0.2", dst=OUTSIDE).json()
        return {candidate["gateway"] for candidate in body["candidates"]}

    daemons = Daemons(lab.directory / "frr", lambda name: str(lab.lab.netns(LEAVES.host(name))))
    try:
        daemons.start(configuration)
        edge = LEAVES.edge_of(speaking)
        port = lab.lab.interface(edge, LEAVES.port(edge, speaking))
        eventually(lambda: lab.lab.ovs.vsctl("get", "Interface", port, "bfd_status"), Containing("state=up"))
        lab.lab.ovs.appctl("bridge/reconnect", LEAVES.name(edge))  # the controller looks once a minute, and then
        answers = Containing("2 of 2 ports to gateways, of which 1")
        eventually(lambda: lab.controller.fabric()["bfd"]["detail"], answers, seconds=150)
        eventually(to_outside, set(GATEWAYS))
        daemons.freeze(GATEWAYS[0])
        eventually(lambda: failures(lab), {link: "silent"})
        assert to_outside() == {LEAVES.name(other)}
        run(lab, "h0_0_2", "ping", "-c", "1", str(LEAVES.ip(speaking)))  # its port is up, and it is still a host
        daemons.end(GATEWAYS[0])
        daemons.start(configuration)
        eventually(lambda: failures(lab), {})
        eventually(to_outside, set(GATEWAYS))
    finally:
        daemons.close()
