"""How soon a host leaves the paths over a link that has gone silent in one direction, with and without a controller.

The time is that of the last packet with a label that leads over the link, on the wire of the sending host, from before the link was
silenced: it is counted from the moment before the command that does it.
"""

from __future__ import annotations

import random
import re
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from experiments.bench.measuring import measured_in_lab, say
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.label_wire import LabelWire
from experiments.emulation.traffic.udp_stream import PORT, UdpStream
from experiments.schemes.slots import Slots
from sopa_ryu.agent.kernel.netns import inside
from topologies import FatTree
from topologies.lab.faults import set_silent
from topologies.lab.standstill import standing_still
from topologies.structure import Host

K = 4
SEED = 1
TRIALS = 21
TCP_TRIALS = 9
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


class Fault:
    """A link that goes silent in the direction of the packets of a pair, and the labels that lead over it."""

    def __init__(self, its: SopaLab, up: tuple[int, int], hop: int, pair: tuple[str, str] = (SRC, DST)) -> None:
        tree = its.tree
        src, dst = map(tree.host, pair)
        ways = {way: list(pairwise(tree.hops(src, dst, way))) for way in tree.choices_between(src, dst)}
        sender, receiver = ways[up][hop]
        self.link, self.towards = tree.name(tree.link(sender, receiver)), tree.name(receiver)
        self.labels = {(way[0], way[1]) for way, hops in ways.items() if (sender, receiver) in hops}
        self._lab = its.lab

    def set(self, silent: bool) -> None:
        """Silence the link, or heal it."""
        set_silent(self._lab, self.link, self.towards, silent)


def faults(its: SopaLab, count: int) -> Iterator[Fault]:
    """Yield faults on every link of all four paths in turn, so that none comes again soon."""
    places = [
        ((up1, up2), hop)
        for hop in range(4)
        for up1 in range(K // 2)
        for up2 in range(K // 2)
        if hop in (1, 2) or not up2
    ]
    random.Random(f"{SEED} bench reaction").shuffle(places)
    for number in range(count):
        yield Fault(its, *places[number % len(places)])


def left_after(its: SopaLab, fault: Fault, wire: LabelWire) -> tuple[float, float, float | None]:
    """Silence a link and heal it.

    Returns:
        When it was silenced, how many seconds after that the last packet has named it, and how many seconds after it was healed
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


def settled(its: SopaLab) -> None:
    """Wait until BFD has found nothing wrong any more, and probes have warmed up."""
    its.controller.wait_until(lambda: not its.controller.fabric()["failures"], "BFD found nothing wrong", 30)
    time.sleep(WARM_SECONDS)


def _datagrams(trials: int, agent_options: tuple[str, ...], stop: bool) -> dict[str, Any]:
    """Measure under 1,000 datagrams a second."""
    tree = FatTree(K)
    with SopaLab(tree, None, controller_options=HOLD_DOWN, agent_options=agent_options) as its:
        src, dst = tree.host(SRC), tree.host(DST)
        times: list[float] = []
        backs: list[float | None] = []
        lost: list[int] = []
        diverted = 0
        with (
            UdpStream(its.lab, src, dst, PER_SECOND) as stream,
            LabelWire(its.lab, src, socket.IPPROTO_UDP, PORT) as wire,
        ):
            for fault in faults(its, 2 * trials):
                settled(its)
                if stop:
                    with standing_still(its.controller.pid):
                        time.sleep(0.5)
                        began, seconds, back = left_after(its, fault, wire)
                else:
                    began, seconds, back = left_after(its, fault, wire)
                time.sleep(0.3)
                missing = len(stream.lost(began, began + SILENT_SECONDS))
                if missing < DIVERTED_SECONDS * PER_SECOND * len(fault.labels) / 4 < seconds * PER_SECOND / 2:
                    diverted += 1
                    continue
                times.append(1000 * seconds)
                backs.append(back)
                lost.append(missing)
                say(f"trial {len(times)} of {trials}: left after {times[-1]:.0f} ms")
                if len(times) == trials:
                    break
        return {
            "left_ms": [round(ms) for ms in times],
            "left_median_ms": round(statistics.median(times)),
            "lost_median": statistics.median(lost),
            "lost_worst": max(lost),
            "back_median_s": round(statistics.median(back or BACK_SECONDS for back in backs), 1),
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


def scattered(its: SopaLab, policy: str) -> None:
    """With MCS, wait until the pair knows of each other that it runs it: connections of before are not scattered."""
    src, dst = its.tree.host(SRC), its.tree.host(DST)
    for _ in range(SCATTERED_SECONDS if policy == "mcs" else 0):
        with LabelWire(its.lab, src, socket.IPPROTO_TCP, TCP_PORT) as wire, TcpFlow(its, src, dst):
            time.sleep(1.0)
            if any(label is not None for _, label in wire.seen):
                return
    if policy == "mcs":
        raise TimeoutError(f"no connection between {SRC} and {DST} is scattered after {SCATTERED_SECONDS} s")


class TcpFlow:
    """A TCP flow between two hosts, from entering until leaving the context.

    Args:
        pace: Bytes per second; None for as many as TCP sends.

    Attributes:
        received: Bytes that the receiving application has so far.
    """

    def __init__(self, its: SopaLab, src: Host, dst: Host, pace: int | None = TCP_BYTES_PER_SECOND) -> None:
        self._netns = its.lab.netns(src)
        with inside(its.lab.netns(dst)):
            self._listener = socket.create_server(("", TCP_PORT))
        with inside(self._netns):
            self._sender = socket.socket()
        if pace is not None:
            self._sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pace)
        self._sender.settimeout(60)
        self._sender.connect((str(its.tree.ip(dst)), TCP_PORT))
        self._receiver, _ = self._listener.accept()
        self._receiver.settimeout(0.2)
        self._ended = threading.Event()
        self.received = 0
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def __enter__(self) -> TcpFlow:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        self._threads[1].join()
        for its in (self._receiver, self._sender, self._listener):
            its.close()
        self._threads[0].join()

    def timeout_ms(self) -> float:
        """Return its retransmission timeout."""
        command = ["nsenter", f"--net={self._netns}", "ss", "-tin", f"dport = {TCP_PORT}"]
        found = re.search(r"rto:([0-9.]+)", subprocess.run(command, text=True, capture_output=True, check=True).stdout)
        return float(found[1]) if found else 200.0

    def _send(self) -> None:
        data = bytes(16384)
        try:
            while not self._ended.is_set():
                self._sender.sendall(data)
        except OSError:
            return

    def _receive(self) -> None:
        while not self._ended.is_set():
            try:
                self.received += len(self._receiver.recv(65536))
            except TimeoutError:
                continue


def _tcp(trials: int, policy: str = "round-robin") -> dict[str, Any]:
    """Measure under a TCP flow, with the controller stopped."""
    tree = FatTree(K)
    with SopaLab(tree, **{"rate_mbit": None, "controller_options": HOLD_DOWN, **OPTIONS[policy]}) as its:
        src, dst = tree.host(SRC), tree.host(DST)
        scattered(its, policy)
        times: list[float] = []
        timeouts: list[float] = []
        with LabelWire(its.lab, src, socket.IPPROTO_TCP, TCP_PORT) as wire, TcpFlow(its, src, dst) as flow:
            for fault in faults(its, trials):
                settled(its)
                with standing_still(its.controller.pid):
                    time.sleep(0.5)
                    timeouts.append(flow.timeout_ms())
                    times.append(1000 * left_after(its, fault, wire)[1])
                say(f"trial {len(times)} of {trials}: left after {times[-1]:.0f} ms")
        within = sum(took <= 2 * timeout for took, timeout in zip(times, timeouts, strict=True))
        return {
            "left_ms": [round(ms) for ms in times],
            "left_median_ms": round(statistics.median(times)),
            "timeout_median_ms": round(statistics.median(timeouts)),
            "within_two_timeouts": f"{within} of {trials}",
        }


def measure() -> dict[str, Any]:
    """Silence links of the k=4 lab in one direction, one after the other.

    Returns:
        ``stopped_*``: under 1,000 datagrams/s, the controller stopped (SIGSTOP): the time until the sending host has left the
        paths, the datagrams lost in the 1.5 s of silence, and the time after healing until it takes them again; ``tcp_*``: the
        same under a TCP flow, with its retransmission timeout; ``mcs_*``, ``cfr_*``: so with these policies. ``running_*``: the
        controller running; ``without_*``: so, with agents that do not probe. ``*_diverted``: trials that are not counted, since
        packets did not take the link.
    """
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "stopped": partial(_datagrams, TRIALS, (), True),
        "tcp": partial(_tcp, TCP_TRIALS),
        "mcs": partial(_tcp, TCP_TRIALS, "mcs"),
        "cfr": partial(_tcp, TCP_TRIALS, "cfr"),
        "running": partial(_datagrams, TRIALS, (), False),
        "without": partial(_datagrams, TRIALS, ("--no-probes",), False),
    }
    found: dict[str, Any] = {"k": K, "trials": TRIALS, "limit_stopped_left_median_ms": LIMIT_MS}
    for name, part in parts.items():
        its = measured_in_lab(part)
        say(f"{name}: {its}")
        found |= {f"{name}_{key}": value for key, value in its.items()}
    return found
