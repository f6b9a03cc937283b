"""Two hosts with one agent process for the policy ``cfr``, which send to a third host by real TCP over links of 4 Mbit/s."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from experiments.emulation.processes import AgentProcess, free_ports
from tests.helpers.channel_server import ChannelServer, channel_server
from tests.helpers.frames import word_of
from tests.helpers.scrape import scrape
from tests.helpers.slot_arbiter import SlotArbiter
from tests.helpers.veth import ALL, Stream, raw_socket, run
from tests.helpers.waiting import eventually

SENDERS = ("10.0.0.2", "10.0.1.2")
RECEIVER = "10.2.1.3"
MBIT = 4


class Rack:
    """Two hosts and a receiver, each in a namespace, on one bridge; every link has 4 Mbit/s."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex[:6]
        self.switch = f"sopatest-s-{name}"
        self.ends = {address: f"sopatest-{n}-{name}" for n, address in enumerate((*SENDERS, RECEIVER))}

    def build(self) -> None:
        run(f"ip netns add {self.switch}")
        run(f"ip -n {self.switch} link add br0 type bridge")
        run(f"ip -n {self.switch} link set br0 up")
        # of the namespaces that are made from there: the iterators of the agent run through no more than these
        run(f"ip netns exec {self.switch} sysctl -qw net.ipv4.tcp_child_ehash_entries=64")
        for n, (address, name) in enumerate(self.ends.items()):
            run(f"nsenter --net=/run/netns/{self.switch} ip netns add {name}")
            run(f"ip link add eth0 netns {name} type veth peer name port{n} netns {self.switch}")
            run(f"ip netns exec {name} sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
            run(f"ip -n {name} addr add {address}/8 dev eth0")
            run(f"ip -n {name} link set lo up")
            run(f"ip -n {self.switch} link set port{n} master br0")
            for where, interface in ((name, "eth0"), (self.switch, f"port{n}")):
                run(f"ip netns exec {where} ethtool -K {interface} tso off gro off")
                run(f"ip -n {where} link set {interface} up")
                run(f"ip netns exec {where} tc qdisc add dev {interface} root tbf rate {MBIT}mbit burst 3100 limit 150000")

    def remove(self) -> None:
        for name in (self.switch, *self.ends.values()):
            run(f"ip netns del {name}")

    def path(self, address: str) -> str:
        return f"/run/netns/{self.ends[address]}"

    def on(self, address: str, command: str) -> str:
        return run(f"ip netns exec {self.ends[address]} {command}")

    def queue(self) -> int:
        """The packets that wait for the link to the receiver."""
        shown = run(f"ip netns exec {self.switch} tc -s -j qdisc show dev port2")
        return max(int(qdisc.get("qlen", 0)) for qdisc in json.loads(shown))


SO_TIMESTAMPNS = 35
CLOCK_NS = 200_000
"""Hosts may know the arbiter's clock so well."""


class Arrival(NamedTuple):
    at: int
    source: IPv4Address
    label: tuple[int, int] | None


class Clock(NamedTuple):
    """How far the clock of packets' timestamps is ahead of the monotonic one, and how exactly that is known."""

    ahead_ns: int
    error_ns: int

    @classmethod
    def read(cls) -> Clock:
        tries = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(200)]
        before, between, after = min(tries, key=lambda its: its[2] - its[0])
        return cls(between - (before + after) // 2, after - before)


class Capture:
    """TCP data that comes in at interfaces, each given by its namespace and name; the kernel keeps it until `close`."""

    def __init__(self, *ends: tuple[str, str]) -> None:
        self.clock = Clock.read()
        self._sockets = [raw_socket(*end, ALL) for end in ends]
        for each in self._sockets:
            each.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            each.setblocking(False)

    def close(self) -> list[Arrival]:
        """End it, and return what has come in."""
        found, closed = [], time.monotonic_ns()
        for each in self._sockets:
            with each, suppress(BlockingIOError):
                while True:
                    frame, ancillary, _, address = each.recvmsg(2048, 256)
                    if address[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[23] != 6:
                        continue
                    header = 34 + (frame[46] >> 4) * 4
                    if 14 + int.from_bytes(frame[16:18], "big") > header:
                        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                        at = seconds * 10**9 + nanoseconds - self.clock.ahead_ns
                        # packets before the kernel began to stamp them (SO_TIMESTAMPNS) have the time of this reading
                        if at < closed:
                            found.append(Arrival(at, IPv4Address(frame[26:30]), word_of(frame)))
        return found


class Fabric:
    """The hosts, a controller, and the senders' agent, which is one process."""

    def __init__(self, rack: Rack, controller: ChannelServer, directory: Path) -> None:
        self.rack, self.controller, self._directory = rack, controller, directory
        self.metrics_port, self.arbiter_port = free_ports(2)

    @contextmanager
    def agent(self) -> Iterator[AgentProcess]:
        log = self._directory / "agent.log"
        log.touch()
        interfaces = [f"eth0@{self.rack.path(its)}" for its in SENDERS]
        every = [f"--state-dir={self._directory / 'state'}", "--policy=cfr", f"--metrics-port={self.metrics_port}"]
        with AgentProcess(interfaces, self.controller.url, log, [*every, f"--arbiter=127.0.0.1:{self.arbiter_port}"]) as its:
            eventually(self.controller.acknowledged, len(SENDERS))
            yield its

    def log(self) -> str:
        return (self._directory / "agent.log").read_text()

    def metrics(self, name: str) -> list[float]:
        text = scrape(self.metrics_port)
        return [float(each) for each in re.findall(rf"^sopa_agent_cfr_{name} (\S+)$", text, re.MULTILINE)]

    def closed(self) -> list[float]:
        return self.metrics(r"gate_closed{.*}")

    def wire(self) -> Capture:
        """What the switch gets of the senders' data."""
        return Capture(*((f"/run/netns/{self.rack.switch}", f"port{n}") for n in range(len(SENDERS))))

    @contextmanager
    def streams(self) -> Iterator[list[Stream]]:
        with ExitStack() as closing:
            ends = [(self.rack.path(source), self.rack.path(RECEIVER)) for source in SENDERS]
            yield [closing.enter_context(Stream(*end, RECEIVER)) for end in ends]


@contextmanager
def cfr_fabric(directory: Path) -> Iterator[Fabric]:
    rack = Rack()
    with ExitStack() as stack, channel_server() as controller:
        stack.callback(rack.remove)
        rack.build()
        yield Fabric(rack, controller, directory)


def flows(streams: list[Stream], size: int = 30_000) -> None:
    """Wait until all streams make progress from now on."""
    targets = [its.received + size for its in streams]
    eventually(lambda: all(its.received >= target for its, target in zip(streams, targets, strict=True)))


def judge(arrivals: list[Arrival], arbiter: SlotArbiter, clock_ns: int = CLOCK_NS) -> tuple[list[int], int]:
    """Return how late packets in slots of their host and path were by its clock, sorted, and how many others there are."""
    late = []
    for its in arrivals:
        slot, into = divmod(its.at + arbiter.skew_ns + clock_ns, arbiter.slot_ns)
        grant = arbiter.granted.get((slot, its.source))
        if grant is not None and (str(grant.destination), (grant.up1, grant.up2)) == (RECEIVER, its.label):
            late.append(into - clock_ns)
    return sorted(late), len(arrivals) - len(late)
