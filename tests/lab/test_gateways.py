"""The way out under traffic: a leaf-spine fabric with two gateways, each with an address that is outside of the fabric."""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from experiments.emulation.routers.frr_daemons import Daemons
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import in_lab, run
from tests.helpers.waiting import Containing, eventually
from topologies import Clos

pytestmark = pytest.mark.lab

OUTSIDE = "198.51.100.7"
UDP_PORT, TCP_PORT = 9800, 9801
FLOWS = 20
FLOOD = 3000
MAX_LOST = 50
"""Of 1,000 datagrams a second, when a gateway dies and no process has waited for a processor."""
LEAVES = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=2, gateways=["h0_1_2", "h0_2_2"])
GATEWAYS = [LEAVES.name(gateway) for gateway in LEAVES.gateways]
QUICK = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]


def open_socket(lab: SopaLab, host: str, kind: socket.SocketKind) -> socket.socket:
    with inside(lab.lab.netns(lab.tree.host(host))):
        return socket.socket(socket.AF_INET, kind)


class Outside:
    """The address outside at each gateway: it takes datagrams, and sends back what it gets by TCP."""

    def __init__(self, lab: SopaLab, stack: ExitStack) -> None:
        self.got: dict[str, dict[int, int]] = {name: {} for name in GATEWAYS}
        """By gateway, the flow of each datagram, which is its source port."""
        self.senders: set[str] = set()
        for name in GATEWAYS:
            run(lab, name, "ip", "address", "add", f"{OUTSIDE}/32", "dev", "lo")
            udp = stack.enter_context(open_socket(lab, name, socket.SOCK_DGRAM))
            tcp = stack.enter_context(open_socket(lab, name, socket.SOCK_STREAM))
            udp.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
            udp.bind((OUTSIDE, UDP_PORT))
            tcp.bind((OUTSIDE, TCP_PORT))
            tcp.listen()
            for work, its in ((self._take, udp), (self._echo, tcp)):
                threading.Thread(target=work, args=(name, its), daemon=True).start()

    def arrived(self) -> set[int]:
        """Return the numbers of the datagrams that have arrived."""
        return {number for got in self.got.values() for number in got}

    def _take(self, name: str, its: socket.socket) -> None:
        while True:
            try:
                data, (sender, port) = its.recvfrom(100)
            except OSError:
                return
            self.senders.add(sender)
            self.got[name][int(data)] = port

    def _echo(self, _name: str, its: socket.socket) -> None:
        while True:
            try:
                connection, _ = its.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)


@contextmanager
def outside(lab: SopaLab) -> Iterator[Outside]:
    with ExitStack() as stack:
        yield Outside(lab, stack)


class Stream:
    """1,000 datagrams a second to the outside, of several flows in turn."""

    def __init__(self, lab: SopaLab, host: str) -> None:
        self.sent: list[int] = []
        """The source port of each."""
        self._sockets = [open_socket(lab, host, socket.SOCK_DGRAM) for _ in range(FLOWS)]
        for at, its in enumerate(self._sockets):
            its.bind(("", 20000 + at))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Stream:
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
            its = self._sockets[number % FLOWS]
            self.sent.append(20000 + number % FLOWS)
            its.sendto(b"%d" % number, (OUTSIDE, UDP_PORT))
            due += 0.001
            time.sleep(max(0.0, due - time.monotonic()))


def wait_for(stream: Stream, more: int) -> None:
    enough = len(stream.sent) + more
    eventually(lambda: len(stream.sent) > enough, True)


def away(lab: SopaLab, gateway: str) -> str | None:
    return {each["name"]: each["away"] for each in lab.controller.fabric()["gateways"]}[gateway]


def restore(lab: SopaLab, gateway: str) -> None:
    """Bring a gateway's interface up again, and wait until it is in use."""
    host = lab.tree.host(gateway)
    run(lab, gateway, "ip", "link", "set", lab.lab.interface(host, 0), "up")
    run(lab, gateway, "ip", "route", "replace", "default", "via", str(lab.tree.gateway(host)))
    eventually(lambda: lab.controller.fabric()["failures"], [])
    in_force(lab)


def in_force(lab: SopaLab) -> None:
    """Wait until every switch and every agent goes by the present version."""
    eventually(lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"] is not None, True)
    lab.controller.wait_agents(lab.tree.host_count if lab.agent is not None else 0)
    for _ in range(2):  # what Open vSwitch has cached; the first may be the end of a round that began before
        lab.lab.ovs.appctl("revalidator/wait")


@pytest.mark.parametrize("agents", [True, False], ids=["labelled", "unlabelled"])
def test_a_gateway_that_dies_loses_few_datagrams_and_other_gateways_flows_none(agents: bool) -> None:
    def body(lab: SopaLab) -> None:
        interface = lab.lab.interface(lab.tree.host(GATEWAYS[0]), 0)
        counts = []
        with outside(lab) as world:
            for _ in range(3):
                for its in world.got.values():
                    its.clear()
                with Stream(lab, "h0_0_2") as stream:
                    wait_for(stream, 400)
                    cut_at = len(stream.sent)
                    run(lab, GATEWAYS[0], "ip", "link", "set", interface, "down")
                    eventually(lambda: away(lab, GATEWAYS[0]) is not None, True)
                    in_force(lab)
                    known_at = len(stream.sent)
                    wait_for(stream, 400)
                last = set(range(len(stream.sent) - FLOWS, len(stream.sent)))  # one of each flow
                eventually(lambda last=last: last <= world.arrived(), True)
                assert world.senders == {str(lab.tree.ip(lab.tree.host("h0_0_2")))}
                its_flows = set(world.got[GATEWAYS[0]].values())
                assert 0 < len(its_flows) < FLOWS  # the other gateway has flows of its own
                arrived = world.arrived()
                lost = [(number, flow) for number, flow in enumerate(stream.sent) if number not in arrived]
                print(
                    f"{len(stream.sent)} sent, cut at {cut_at}, lost {lost}, flows of the gateway {sorted(its_flows)}"
                )
                assert {flow for _, flow in lost} <= its_flows
                assert all(number <= known_at for number, _ in lost)
                counts.append(len(lost))
                restore(lab, GATEWAYS[0])

        assert min(counts) <= MAX_LOST

    in_lab(body, fabric=LEAVES, agents=agents, controller_options=QUICK)


def test_connections_to_the_outside_and_an_answer_once_no_gateway_is_left() -> None:
    def body(lab: SopaLab) -> None:
        payload = bytes(range(256)) * 4096
        with outside(lab):
            for _ in range(6):
                with open_socket(lab, "h0_0_2", socket.SOCK_STREAM) as its:
                    its.settimeout(20)
                    its.connect((OUTSIDE, TCP_PORT))
                    sender = threading.Thread(target=its.sendall, args=(payload,))
                    sender.start()
                    back = bytearray()
                    while len(back) < len(payload):
                        back += its.recv(1 << 16)
                    sender.join()
                    assert bytes(back) == payload
            # agents and switches agree on what is in use; a drain is enough
            link = f"{GATEWAYS[0]}-e0_1"
            assert lab.controller.change("PUT", f"/drains/{link}").is_success
            found = lab.controller.get("/paths", src="10.0.0.2", dst=OUTSIDE).json()
            assert {path["gateway"] for path in found["candidates"]} == {GATEWAYS[1]}
            assert {(path["gateway"], path["reason"]) for path in found["excluded"]} == {
                (GATEWAYS[0], f"link {link} drained")
            }
        for name in GATEWAYS:
            run(lab, name, "ip", "link", "set", lab.lab.interface(lab.tree.host(name), 0), "down")
        eventually(lambda: all("down" in (each["away"] or "") for each in lab.controller.fabric()["gateways"]), True)
        in_force(lab)
        said = run(lab, "h0_0_2", "ping", "-c", "3", "-i", "1.5", "-W", "20", OUTSIDE, check=False)
        assert "From 10.0.0.1" in said
        assert "Net Unreachable" in said
        with open_socket(lab, "h0_0_3", socket.SOCK_STREAM) as its:
            its.settimeout(30)
            assert its.connect_ex((OUTSIDE, TCP_PORT)) in (errno.ENETUNREACH, errno.EHOSTUNREACH)
        # of a flood the controller gets what comes before the switch's cache has what was learned, and then a few a second
        before, began = answers(lab), time.monotonic()
        with open_socket(lab, "h0_0_2", socket.SOCK_DGRAM) as its:
            for number in range(FLOOD):
                with suppress(OSError):  # what an answer makes of the next call
                    its.sendto(b"", ("203.0.113.9", 1 + number))
        assert answers(lab) - before <= FLOOD / 4 + 4 * (time.monotonic() - began)

    in_lab(body, fabric=LEAVES, controller_options=QUICK)


def answers(lab: SopaLab) -> float:
    """Return how many undeliverable packets have reached the controller."""
    text = httpx.get(f"{lab.controller.url}/metrics").text
    return sum(
        float(value) for value in re.findall(r"^sopa_undeliverable_packets_total\{.*\} (\S+)$", text, re.MULTILINE)
    )


PEER = """
bfd
 peer 10.0.1.1 local-address 10.0.1.2 interface {interface}
  receive-interval 100
  transmit-interval 100
"""


def test_a_gateway_that_falls_silent_is_left_if_it_has_spoken_bfd() -> None:
    """FRR's BFD daemon runs at one gateway and none at the other: only the silence of the first one tells anything."""

    def body(lab: SopaLab) -> None:
        speaking, other = LEAVES.gateways
        link = LEAVES.name(LEAVES.link(speaking, LEAVES.edge_of(speaking)))
        configuration = {GATEWAYS[0]: {"bfdd": PEER.format(interface=lab.lab.interface(speaking, 0))}}

        def to_outside() -> set[str]:
            body = lab.controller.get("/paths", src="10.0.0.2", dst=OUTSIDE).json()
            return {candidate["gateway"] for candidate in body["candidates"]}

        def failures() -> dict[str, str]:
            return {one["name"]: one["reason"] for one in lab.controller.fabric()["failures"]}

        daemons = Daemons(lab.directory / "frr", lambda name: str(lab.lab.netns(LEAVES.host(name))))
        try:
            daemons.start(configuration)
            edge = LEAVES.edge_of(speaking)
            port = lab.lab.interface(edge, LEAVES.port(edge, speaking))
            eventually(
                lambda: lab.lab.ovs.vsctl("get", "Interface", port, "bfd_status"), Containing("state=up"), seconds=60
            )
            lab.lab.ovs.appctl("bridge/reconnect", LEAVES.name(edge))  # the controller looks once a minute, and then
            answers = Containing("2 of 2 ports to gateways, of which 1")
            eventually(lambda: lab.controller.fabric()["bfd"]["detail"], answers, seconds=150)
            assert failures() == {}
            assert to_outside() == set(GATEWAYS)
            daemons.freeze(GATEWAYS[0])
            eventually(failures, {link: "silent"})
            assert to_outside() == {LEAVES.name(other)}
            run(lab, "h0_0_2", "ping", "-c", "1", str(LEAVES.ip(speaking)))  # its port is up, and it is still a host
            daemons.end(GATEWAYS[0])
            daemons.start(configuration)
            eventually(failures, {}, seconds=60)
            assert to_outside() == set(GATEWAYS)
        finally:
            daemons.close()

    in_lab(body, fabric=LEAVES, controller_options=QUICK)
