"""How soon a host leaves, and TCP recovers from, a link that has gone silent in one direction, with and without a controller.

The controller stands still where it is to tell nobody. The times are those of packets on the wire of the sending host, counted
from the moment before the command that silences the link.
"""

from __future__ import annotations

import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import pairwise
from statistics import mean, median
from typing import Any

from experiments.bench.frame import Results, in_lab, say, times
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.freezer import Freezer
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.threads import Threads
from experiments.emulation.traffic.label_wire import LabelWire
from experiments.emulation.traffic.udp_stream import PORT, UdpStream
from experiments.schemes import named
from experiments.schemes.scheme import Slots
from sopa_ryu.agent.kernel.netns import inside
from topologies import FatTree
from topologies.lab.faults import set_silent
from topologies.lab.network import default_rate
from topologies.lab.standstill import standing_still
from topologies.structure import Host

K = 4
SEED = 1
TRIALS, TCP_TRIALS = times(21), times(9)
SRC, DST = "h0_0_2", "h2_1_3"
SILENT_SECONDS, WARM_SECONDS, BACK_SECONDS = 1.5, 3.0, 90.0
HOLD_DOWN = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]
TCP_PORT = 9801
PER_SECOND = 1000
DIVERTED_SECONDS = 0.03
"""Losses of less than this time are not of the link: on a busy machine BFD loses links that are well, and the switches had sent the
packets another way already. BFD itself needs ten times as long."""
_SO_MAX_PACING_RATE = 47
TCP_BYTES_PER_SECOND = 250_000
LIMIT_MS = 150


def reaction() -> Results:
    """Silence links of the k=4 lab in one direction, one after the other.

    ``stopped_*``: under 1,000 datagrams/s, the controller stopped (SIGSTOP): the time until the sending host has left the paths,
    the datagrams lost in the 1.5 s of silence, and the time after healing until it takes them again; ``tcp_*``: the same under a
    TCP flow, with its retransmission timeout; ``mcs_*``, ``cfr_*``: so with these policies. ``running_*``: the controller running;
    ``without_*``: so, with agents that do not probe. ``*_diverted``: trials without packets on the link, which are not counted.
    """
    parts: dict[str, Callable[[], Results]] = {
        "stopped": partial(_datagrams, TRIALS, (), True),
        "tcp": partial(_tcp, TCP_TRIALS),
        "mcs": partial(_tcp, TCP_TRIALS, "mcs"),
        "cfr": partial(_tcp, TCP_TRIALS, "cfr"),
        "running": partial(_datagrams, TRIALS, (), False),
        "without": partial(_datagrams, TRIALS, ("--no-probes",), False),
    }
    results: Results = {"k": K, "trials": TRIALS, "limit_stopped_left_median_ms": LIMIT_MS}
    for name, part in parts.items():
        figures = part()
        say(f"{name}: {figures}")
        results |= {f"{name}_{key}": value for key, value in figures.items()}
    return results


class Fault:
    """A link that goes silent in the direction of the packets of a pair, and the labels that lead over it."""

    def __init__(self, lab: SopaLab, up: tuple[int, int], hop: int, pair: tuple[str, str] = (SRC, DST)) -> None:
        tree = lab.tree
        src, dst = map(tree.host, pair)
        ways = {way: list(pairwise(tree.hops(src, dst, way))) for way in tree.choices_between(src, dst)}
        sender, receiver = ways[up][hop]
        self.link, self.towards = tree.name(tree.link(sender, receiver)), tree.name(receiver)
        self.labels = {(way[0], way[1]) for way, hops in ways.items() if (sender, receiver) in hops}
        self._lab = lab.lab

    def set(self, silent: bool) -> None:
        """Silence the link, or heal it."""
        set_silent(self._lab, self.link, self.towards, silent)


def faults(lab: SopaLab, count: int) -> Iterator[Fault]:
    """Yield faults on every link of all four paths in turn, so that none comes again soon."""
    places = [((up1, up2), hop) for hop in range(4) for up1 in range(K // 2) for up2 in range(K // 2) if hop in (1, 2) or not up2]
    random.Random(f"{SEED} bench reaction").shuffle(places)
    for number in range(count):
        yield Fault(lab, *places[number % len(places)])


def left_after(fault: Fault, wire: LabelWire) -> tuple[float, float, float | None]:
    """Silence a link and heal it.

    Return when it was silenced, how many seconds after that the last packet has named it, and how many seconds after it was healed
    a packet has named it again; None if none did for `BACK_SECONDS`.
    """
    began = time.time()
    fault.set(True)
    time.sleep(SILENT_SECONDS)
    last = wire.last(fault.labels, began)
    healed = time.time()
    fault.set(False)
    while (back := wire.next(fault.labels, healed)) is None and time.time() - healed < BACK_SECONDS:
        time.sleep(0.05)
    return began, (last or began) - began, None if back is None else back - healed


def settled(lab: SopaLab) -> None:
    """Wait until BFD has found nothing wrong any more, and probes have warmed up."""
    lab.controller.wait_until(lambda: not lab.controller.fabric()["failures"], "BFD found nothing wrong", 30)
    time.sleep(WARM_SECONDS)


@in_lab
def _datagrams(trials: int, agent_options: tuple[str, ...], stop: bool) -> Results:
    """Measure under 1,000 datagrams a second."""
    tree = FatTree(K)
    with SopaLab(tree, None, controller_options=HOLD_DOWN, agent_options=agent_options) as lab:
        src, dst = tree.host(SRC), tree.host(DST)
        left: list[float] = []
        backs: list[float | None] = []
        lost: list[int] = []
        diverted = 0
        with UdpStream(lab.lab, src, dst, PER_SECOND) as stream, LabelWire(lab.lab, src, socket.IPPROTO_UDP, PORT) as wire:
            for fault in faults(lab, 2 * trials):
                settled(lab)
                with standing_still(lab.controller.pid) if stop else nullcontext():
                    time.sleep(0.5)
                    began, seconds, back = left_after(fault, wire)
                time.sleep(0.3)
                missing = len(stream.lost(began, began + SILENT_SECONDS))
                if missing < DIVERTED_SECONDS * PER_SECOND * len(fault.labels) / 4 < seconds * PER_SECOND / 2:
                    diverted += 1
                    continue
                left.append(1000 * seconds)
                backs.append(back)
                lost.append(missing)
                say(f"trial {len(left)} of {trials}: left after {left[-1]:.0f} ms")
                if len(left) == trials:
                    break
        return {
            "left_ms": [round(ms) for ms in left],
            "left_median_ms": round(median(left)),
            "lost_median": median(lost),
            "lost_worst": max(lost),
            "back_median_s": round(median(back or BACK_SECONDS for back in backs), 1),
            "never_back": backs.count(None),
            "diverted": diverted,
        }


OPTIONS: dict[str, dict[str, Any]] = {
    "round-robin": {},
    "mcs": {"agent_options": ["--policy=mcs"]},
    "cfr": {"agent_options": ["--policy=cfr"], "slots": Slots(), "rate_mbit": 4.0},
}
"""Of the lab, for agents of that policy: slots need links with a rate."""
SCATTERED_SECONDS = 60


def scattered(lab: SopaLab, policy: str) -> None:
    """With MCS, wait until the pair knows of each other that it runs it: connections of before are not scattered."""
    src, dst = lab.tree.host(SRC), lab.tree.host(DST)
    for _ in range(SCATTERED_SECONDS if policy == "mcs" else 0):
        with LabelWire(lab.lab, src, socket.IPPROTO_TCP, TCP_PORT) as wire, TcpFlow(lab, src, dst):
            time.sleep(1.0)
            if any(label is not None for _, label in wire.seen):
                return
    if policy == "mcs":
        raise TimeoutError(f"no connection between {SRC} and {DST} is scattered after {SCATTERED_SECONDS} s")


class TcpFlow(Threads):
    """A TCP flow between two hosts while the context lasts, at a pace in bytes per second; None for as many as TCP sends."""

    def __init__(self, lab: SopaLab, src: Host, dst: Host, pace: int | None = TCP_BYTES_PER_SECOND) -> None:
        super().__init__(self._send, self._receive)
        self._netns = lab.lab.netns(src)
        with inside(lab.lab.netns(dst)):
            self._listener = socket.create_server(("", TCP_PORT))
        with inside(self._netns):
            self._sender = socket.socket()
        if pace is not None:
            self._sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pace)
        self._sender.settimeout(60)
        self._sender.connect((str(lab.tree.ip(dst)), TCP_PORT))
        self._receiver, _ = self._listener.accept()
        self._receiver.settimeout(0.2)
        self.received = 0

    def __exit__(self, *_exception: object) -> None:
        self._sender.shutdown(socket.SHUT_RDWR)  # a thread may wait in it
        super().__exit__()

    def close(self) -> None:
        """Close both ends."""
        for end in (self._receiver, self._sender, self._listener):
            end.close()

    def timeout_ms(self) -> float:
        """Return its retransmission timeout."""
        command = ["nsenter", f"--net={self._netns}", "ss", "-tin", f"dport = {TCP_PORT}"]
        match = re.search(r"rto:([0-9.]+)", subprocess.run(command, text=True, capture_output=True, check=True).stdout)
        return float(match[1]) if match else 200.0

    def _send(self) -> None:
        data = bytes(16384)
        try:
            while not self.ended.is_set():
                self._sender.sendall(data)
        except OSError:
            return

    def _receive(self) -> None:
        while not self.ended.is_set():
            try:
                self.received += len(self._receiver.recv(65536))
            except TimeoutError:
                continue


@in_lab
def _tcp(trials: int, policy: str = "round-robin") -> Results:
    """Measure under a TCP flow, with the controller stopped."""
    tree = FatTree(K)
    with SopaLab(tree, **{"rate_mbit": None, "controller_options": HOLD_DOWN, **OPTIONS[policy]}) as lab:
        src, dst = tree.host(SRC), tree.host(DST)
        scattered(lab, policy)
        left: list[float] = []
        timeouts: list[float] = []
        with LabelWire(lab.lab, src, socket.IPPROTO_TCP, TCP_PORT) as wire, TcpFlow(lab, src, dst) as flow:
            for fault in faults(lab, trials):
                settled(lab)
                with standing_still(lab.controller.pid):
                    time.sleep(0.5)
                    timeouts.append(flow.timeout_ms())
                    left.append(1000 * left_after(fault, wire)[1])
                say(f"trial {len(left)} of {trials}: left after {left[-1]:.0f} ms")
        within = sum(took <= 2 * timeout for took, timeout in zip(left, timeouts, strict=True))
        return {
            "left_ms": [round(ms) for ms in left],
            "left_median_ms": round(median(left)),
            "timeout_median_ms": round(median(timeouts)),
            "within_two_timeouts": f"{within} of {trials}",
        }


# -- without a processor --------------------------------------------------------------------------------------------------

STILL_TRIALS, DEAD_TRIALS = times(100), times(9)
STILL_SECONDS, MOVING_SECONDS = 3.0, 4.0
STILL_MBIT = 4.0


@in_lab
def standstill() -> Results:
    """Take the processor from everything in the k=4 lab for 3 s, again and again, while 16 flows fill links of 4 Mbit/s.

    ``left``: lines of agents' log about paths that a host leaves, which have to be none. Then one of the paths of a flow dies while
    nothing runs, the controller being stopped: ``dead_ms`` from when all goes on until a host leaves it; ``dead_without_ms`` of
    paths that die without a standstill, from then on.
    """
    tree = FatTree(K)
    hosts = list(tree.hosts())
    with Freezer() as group, ExitStack() as stack:
        group.enter()
        lab = stack.enter_context(SopaLab(tree, STILL_MBIT, controller_options=HOLD_DOWN))
        group.leave()
        for number, src in enumerate(hosts):
            stack.enter_context(TcpFlow(lab, src, hosts[(number + len(hosts) // 2) % len(hosts)], pace=None))
        settled(lab)
        before = left = _lines(lab, "leaves")
        for trial in range(STILL_TRIALS):
            with group.frozen():
                time.sleep(STILL_SECONDS)
            time.sleep(MOVING_SECONDS)
            left = _lines(lab, "leaves")
            say(f"trial {trial + 1} of {STILL_TRIALS}: {left - before} lines of paths that were left")
        results: Results = {"trials": STILL_TRIALS, "left": left - before, "limit_left": 0}
        pair = (SRC, tree.name(hosts[len(hosts) // 2]))
        for name, still in (("dead_ms", STILL_SECONDS), ("dead_without_ms", 0.0)):
            results[name] = [_left_when_going_on(lab, group, still, fault) for fault in _dead_paths(lab, pair, DEAD_TRIALS)]
            say(f"{name}: {results[name]}")
        return results


def _lines(lab: SopaLab, word: str) -> int:
    assert lab.agent is not None
    return lab.agent.log.read_text().count(f" {word} ")


def _dead_paths(lab: SopaLab, pair: tuple[str, str], count: int) -> Iterator[Fault]:
    """Yield links from core switches down: there is no other way down, so that only hosts can leave them."""
    for number in range(count):
        yield Fault(lab, (number % (K // 2), number // (K // 2) % (K // 2)), DOWN_FROM_CORE, pair)


def _left_when_going_on(lab: SopaLab, group: Freezer, still: float, fault: Fault) -> int:
    """Silence a link, while nothing runs if ``still``; return the milliseconds until a host has left it. It is back at the end."""
    assert lab.agent is not None
    settled(lab)
    left, taken = _lines(lab, "leaves"), _lines(lab, "takes")
    with standing_still(lab.controller.pid):
        with group.frozen() if still else nullcontext():
            fault.set(True)
            time.sleep(still)
        began = time.monotonic()
        lab.agent.wait_until(lambda: _lines(lab, "leaves") > left, "a host had left the path", BACK_SECONDS)
        took = time.monotonic() - began
        fault.set(False)
        lab.agent.wait_until(lambda: _lines(lab, "takes") > taken, "it took the path again", BACK_SECONDS)
    return round(1000 * took)


# -- recovery of TCP ------------------------------------------------------------------------------------------------------

SCHEMES = ("mcs", "sopa", "sopa+probes=off")
MCS_SILENT_SECONDS, MCS_WARM_SECONDS, INTERVAL_SECONDS = 6.0, 5.0, 0.02
WIDTH_SECONDS = 1.0
"""A flow is back when what arrives in the next second is 90% of what arrived in a second before."""
BACK_SHARE, LIMIT_TIMEOUTS = 0.9, 3.0
DOWN_FROM_CORE = 2

Sample = tuple[float, int]
"""A time in seconds, and the bytes that had arrived."""


def mcs_silent() -> Results:
    """Silence a link of each of the four paths of one flow, one after the other, with each scheme; the controller stands still.

    The link is one from a core switch down: BFD of the switch in front of it sees that it is dead, but there is no other way down,
    and nobody tells the hosts. ``back_s``: from each fault until the flow had 90% of its rate again (None: not within the silence);
    ``within``: the trials that were back within `LIMIT_TIMEOUTS` of TCP's retransmission timeouts before each.
    """
    results: Results = {"k": K, "limit_timeouts": LIMIT_TIMEOUTS, "silent_s": MCS_SILENT_SECONDS}
    for scheme in SCHEMES:
        results[scheme] = _scheme(scheme)
        say(f"{scheme}: {results[scheme]}")
    return results


@in_lab
def _scheme(scheme: str) -> Results:
    tree = FatTree(K)
    src, dst = tree.host(SRC), tree.host(DST)
    backs: list[float | None] = []
    silences: list[float] = []
    timeouts: list[float] = []
    rates: list[float] = []
    with EmulatedFabric(tree, named(scheme), default_rate(tree)) as fabric:
        fabric.prepare(SEED)
        lab = fabric.sopa
        assert lab is not None
        for way in tree.choices_between(src, dst)[: times(4)]:
            settled(lab)
            fault = Fault(lab, (way[0], way[1]), DOWN_FROM_CORE)
            with TcpFlow(lab, src, dst, pace=None) as flow, standing_still(lab.controller.pid):
                samples = _watched(flow, MCS_WARM_SECONDS)
                timeouts.append(flow.timeout_ms() / 1000)
                began = time.monotonic()
                fault.set(True)
                samples += _watched(flow, MCS_SILENT_SECONDS)
                fault.set(False)
            backs.append(back_after(samples, began))
            silences.append(longest_silence(samples, began))
            rates.append(8e-6 * arrived(samples, began - WIDTH_SECONDS, began) / WIDTH_SECONDS)
        fabric.finish()
    pairs = list(zip(backs, timeouts, strict=True))
    within = sum(back is not None and back <= LIMIT_TIMEOUTS * timeout for back, timeout in pairs)
    return {
        "before_mbit": round(mean(rates), 2),
        "back_s": [None if back is None else round(back, 2) for back in backs],
        "longest_silence_s": [round(one, 2) for one in silences],
        "timeout_s": [round(one, 2) for one in timeouts],
        "within": f"{within} of {len(backs)}",
    }


def arrived(samples: Sequence[Sample], begin: float, end: float) -> int:
    """Return the bytes that arrived between two times."""

    def until(at: float) -> int:
        return max((count for time, count in samples if time <= at), default=0)

    return until(end) - until(begin)


def back_after(samples: Sequence[Sample], fault: float) -> float | None:
    """Return the seconds from a fault until a flow has `BACK_SHARE` of its rate again; 0 if it never had less, None if it has not.

    The samples are in order, and begin `WIDTH_SECONDS` before the fault.
    """
    wanted = BACK_SHARE * arrived(samples, fault - WIDTH_SECONDS, fault)
    begins = [fault, *(at for at, _ in samples if fault < at <= samples[-1][0] - WIDTH_SECONDS)]
    enough = (at for at in begins if arrived(samples, at, at + WIDTH_SECONDS) >= wanted)
    return next((at - fault for at in enough), None)


def longest_silence(samples: Sequence[Sample], since: float) -> float:
    """Return the longest time in which nothing arrived, from `since` on."""
    changes = [since]
    last = arrived(samples, 0.0, since)
    for at, count in samples:
        if at > since and count > last:
            changes.append(at)
            last = count
    return max((later - earlier for earlier, later in zip(changes, [*changes[1:], samples[-1][0]], strict=True)), default=0.0)


def _watched(flow: TcpFlow, seconds: float) -> list[Sample]:
    samples = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        samples.append((now, flow.received))
        time.sleep(INTERVAL_SECONDS)
    return samples
