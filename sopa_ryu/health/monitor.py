"""The controller's side of the estimator: starts its process, feeds it, hands out lists and follows its verdicts.

The process is another one so that no forwarding waits for it. It may end at any time: then links are not judged until the next
one has counted anew, and agents go on with the lists that they have.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import eventlet

from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.suspects import Caretaker, Suspected
from sopa_ryu.health import wire
from sopa_ryu.health.elements import Elements
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.green_threads import end_child
from topologies import Host, Link

LOG = logging.getLogger("sopa.health")

FEED_SECONDS = 0.25
STATE_SECONDS = 1.0
"""The least time between two plans: what changes meanwhile is one change."""
RESTART_SECONDS = (1.0, 60.0)
"""After the process has ended, the least and the most; twice as long each time that it ends soon."""
WELL_SECONDS = 120.0
READ_BYTES = 1 << 18
LISTS_AT_ONCE = 16
"""After so many, other green threads have their turn."""
LINKS_AT_ONCE = 256
FAST = 1e9
"""Bits per second; a hundredth of it is more than probes ever take."""


class Hands(Protocol):
    """What the monitor does to the fabric."""

    def assign(self, host: Host, number: int, text: str) -> None:
        """Give an agent its streams."""

    def forged(self, host: Host, count: int) -> None:
        """Count forged records of an agent."""

    def drain(self, name: str) -> None:
        """Drain a link; `ValueError` or `StateError` if that is not possible."""


class Monitor:
    """The health of the links.

    ``least_loss`` is the least share that makes a link a suspect, ``rate`` returns the bits per second of a link, or None,
    ``self_probes`` tells whether hosts send such. The estimator's process has ended ``restarts`` times.
    """

    def __init__(
        self,
        state: FabricState,
        lists: ProbeLists,
        hands: Hands,
        caretaker: Caretaker,
        least_loss: float,
        probe_bytes: int,
        rate: Callable[[Link], float | None],
        self_probes: bool = False,
    ) -> None:
        self.state, self.lists, self.hands, self.caretaker = state, lists, hands, caretaker
        self.elements = Elements(state.tree)
        self.verdict: wire.Verdict | None = None
        self.restarts = self.forged = 0
        self.pid: int | None = None
        self._least_loss, self._probe_bytes, self._rate = least_loss, probe_bytes, rate
        self._self_probes = self_probes
        self._number = 0

    # -- the process --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until killed: keep the process running once there is an agent that probes."""
        least, most = RESTART_SECONDS
        wait = least
        while True:
            while not self.lists.answering:
                eventlet.sleep(STATE_SECONDS)
            began = time.monotonic()
            why = self._attend()
            self.verdict, self.pid = None, None
            self.restarts += 1
            wait = least if time.monotonic() - began > WELL_SECONDS else min(most, 2 * wait)
            LOG.error(
                "estimator of links' losses ended: %s. Links are not judged until another one has counted anew. It starts in %.0f "
                "s",
                why,
                wait,
            )
            eventlet.sleep(wait)

    def _attend(self) -> str:
        """Start a process and feed it until it ends; return why it did."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                command = [sys.executable, "-m", "sopa_ryu.health.worker", str(theirs.fileno())]
                child = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            self.pid = child.pid
            LOG.info("estimator of links' losses runs as process %d", child.pid)
            reader = eventlet.spawn(self._read, ours)
            try:
                self._feed(ours, reader)
            except OSError as error:
                why = error.strerror or str(error)
            else:
                why = "it closed its socket"
            finally:
                reader.kill()
                ours.close()
                end_child(child)
        return f"{why}, exit status {child.returncode}"

    def _feed(self, sock: Any, reader: Any) -> None:
        config = {
            "fabric": self.state.tree.document(),
            "least_loss": self._least_loss,
            "probe_bytes": self._probe_bytes,
            "number": self._number,
            "self_probes": self._self_probes,
        }
        sock.sendall(wire.plain(wire.CONFIG, config))
        known: tuple[int, int] | None = None
        next_state = 0.0
        while not reader.dead:
            now = clock.now()
            version = self.state.version, self.lists.changes
            if version != known and now >= next_state:
                known, next_state = version, now + STATE_SECONDS
                sock.sendall(wire.plain(wire.STATE, self._state(now)))
            sock.sendall(wire.reports(int(1000 * now), self.lists.take_waiting()))
            eventlet.sleep(FEED_SECONDS)

    def _state(self, now: float) -> dict[str, Any]:
        answering = bytearray(-(-self.elements.hosts // 8))
        for host in self.lists.hosts():
            number = self.elements.host_number(host)
            answering[number // 8] |= 128 >> number % 8
        tree = self.state.tree
        host_links = ((number, Link(host, tree.edge_of(host))) for number, host in enumerate(tree.hosts()))
        return {
            "failures": dict(self.state.failures),
            "answering": answering.hex(),
            "bits": self._slow(self.elements.present),
            "host_bits": min(self._slow(host_links).values(), default=FAST),
            "second": int(now),
        }

    def _slow(self, links: Iterable[tuple[int, Link]]) -> dict[int, float]:
        """Return the rates of links that may bear fewer probes than others, by number."""
        rates = {}
        for turn, (number, link) in enumerate(links, 1):
            rate = self._rate(link)
            if rate is not None and rate < FAST:
                rates[number] = rate
            if turn % LINKS_AT_ONCE == 0:
                eventlet.sleep(0)
        return rates

    def _read(self, sock: Any) -> None:
        messages = wire.Messages()
        while data := sock.recv(READ_BYTES):
            for kind, payload in messages.take(data):
                if kind == wire.LISTS:
                    self._hand_out(payload)
                elif kind == wire.HEALTH:
                    self._follow(wire.read_health(payload))
                elif kind == wire.NAMED:
                    self._decide(json.loads(payload), whole=False)
            eventlet.sleep(0)

    def _hand_out(self, payload: bytes) -> None:
        for turn, (place, number, text) in enumerate(wire.read_lists(payload), 1):
            self._number = max(self._number, number)
            self.hands.assign(self.elements.host(place), number, text)
            if turn % LISTS_AT_ONCE == 0:
                eventlet.sleep(0)

    def _follow(self, verdict: wire.Verdict) -> None:
        self.verdict = verdict
        for place, count in verdict.about["forged"].items():
            self.forged += count
            self.hands.forged(self.elements.host(int(place)), count)
        self._decide(verdict.about["suspects"])

    def _decide(self, suspects: list[dict[str, Any]], whole: bool = True) -> None:
        for name in self.caretaker.decide(list(self._suspected(suspects)), self.state.failures, whole):
            try:
                self.hands.drain(name)
            except (ValueError, RuntimeError) as error:
                LOG.error("link %s cannot be drained: %s. It stays in use. Drain it by hand", name, error)

    def _suspected(self, suspects: list[dict[str, Any]]) -> Iterable[Suspected]:
        tree = self.state.tree
        for suspect in suspects:
            name = tree.name(self.elements.link(suspect["link"]))
            yield Suspected(name, suspect["down"], suspect["loss"], suspect["confidence"], suspect["hosts"])

    # -- for readers --------------------------------------------------------------------------------------------------

    @property
    def suspects(self) -> list[Suspected]:
        """The links that are named."""
        return self.caretaker.confirmed()

    def links(self, only_suspects: bool = False) -> list[tuple[int, Link]]:
        """Return the links between switches with their numbers, in the order of `Clos.switch_links`."""
        if not only_suspects:
            return list(self.elements.present)
        names = {suspect.name for suspect in self.suspects}
        links = [self.state.tree.link_by_name(name) for name in sorted(names)]
        return [(self.elements.of(link), link) for link in links]

    def describe(self, item: tuple[int, Link]) -> dict[str, Any]:
        """Return what ``GET /health`` says of a link."""
        number, link = item
        name = self.state.tree.name(link)
        known = [suspect for suspect in self.suspects if suspect.name == name]
        return {
            "name": name,
            "loss": {way: self._known_loss(number, down, known) for way, down in (("up", False), ("down", True))},
            "delay_us": self._delay(number),
            "suspect": bool(known),
            "confidence": round(max((suspect.confidence for suspect in known), default=0.0), 6),
            "hosts": max((suspect.hosts for suspect in known), default=0),
            "action": self.caretaker.action(name),
        }

    def measured(self) -> list[list[float | None]] | None:
        """Return loss up, loss down and delay of each link, in the order of `Clos.switch_links`; None if nothing is known."""
        if self.verdict is None:
            return None
        size = self.elements.links
        return [[self._loss(n), self._loss(n + size), self._delay(n)] for n, _ in self.elements.present]

    def report(self) -> dict[str, Any]:
        """Return what ``GET /health`` says besides links."""
        about = self.verdict.about if self.verdict is not None else {}
        return {
            "running": self.verdict is not None,
            "policy": str(self.caretaker.policy),
            "probing": len(self.lists.answering),
            "suspects": len({suspect.name for suspect in self.suspects}),
            "streams": about.get("plan", {}).get("streams", 0),
            "unknown": about.get("unknown", len(self.elements.present)),
        }

    def _known_loss(self, number: int, down: bool, known: list[Suspected]) -> float | None:
        """Return the loss in a direction: what was measured, or more if the last seconds say so."""
        losses = [self._loss(number + down * self.elements.links), *(one.loss for one in known if one.down in (None, down))]
        return max((round(loss, 9) for loss in losses if loss is not None), default=None)

    def _loss(self, number: int) -> float | None:
        return _number(self.verdict.loss, number) if self.verdict is not None else None

    def _delay(self, number: int) -> float | None:
        value = _number(self.verdict.delay_us, number) if self.verdict is not None else None
        return None if value is None else round(value, 1)


def _number(values: array[float], at: int) -> float | None:
    value = values[at] if at < len(values) else float("nan")
    return None if value != value else round(value, 9)
