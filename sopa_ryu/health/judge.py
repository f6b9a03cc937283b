"""What the estimator's process does with each message: plans, counts and concludes. Pure: `sopa_ryu.health.worker` is its edge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from sopa_ryu.channel.messages import encode
from sopa_ryu.channel.probe_lists import HEADER
from sopa_ryu.health import plan, wire
from sopa_ryu.health.elements import Elements
from sopa_ryu.health.filling import LaneDemand, demand
from sopa_ryu.health.observer import EVALUATION_SECONDS, Observer, Told
from sopa_ryu.health.plan import Lanes
from topologies import Clos, Failures, Link, Switch

LISTS_AT_ONCE = 64
LOOK_SHARE = 0.2
"""Of a processor: what looking at the last seconds takes at most, in large fabrics that lose much."""


class Judge:
    """The estimator of one fabric.

    ``config`` has ``fabric`` as `Clos.document`, ``least_loss``, ``probe_bytes``, the ``number`` that lists begin after, and
    ``self_probes``, whether hosts send such.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.elements = Elements(Clos.from_document(config["fabric"]))
        self._self_probes = config["self_probes"]
        self.observer = Observer(self.elements, config["least_loss"], self._self_probes)
        self._probe_bytes = config["probe_bytes"]
        self._number = config["number"]
        self._digests = np.zeros(self.elements.hosts, np.uint64)
        self._planned: dict[str, Any] = {}
        self._ever = np.zeros(self.elements.hosts, bool)
        self._concluded, self._look_from = -1, 0
        self._reports = self._dropped = 0
        self._spent = 0.0

    def take(self, kind: int, payload: bytes) -> Iterator[bytes]:
        """Follow a message; yield what to answer."""
        began = time.process_time()
        if kind == wire.STATE:
            yield from self._state(json.loads(payload))
        elif kind == wire.REPORTS:
            told_ms, reports = wire.read_reports(payload, HEADER)
            second = told_ms // 1000
            self._reports += len(reports)
            self._dropped += sum(dropped for _, dropped, _ in reports)
            self.observer.take([Told(host, records) for host, _, records in reports], told_ms / 1000)
            if second - self._concluded >= EVALUATION_SECONDS:
                self._concluded = second
                answer = self._conclude()
                self._spent += time.process_time() - began
                yield answer
                return
            if told_ms >= self._look_from:
                looked = time.process_time()
                suspects = self.observer.at_once()
                self._look_from = told_ms + int(1000 * (time.process_time() - looked) / LOOK_SHARE)
                if suspects:
                    yield wire.plain(wire.NAMED, [one._asdict() for one in suspects])
        self._spent += time.process_time() - began

    def _state(self, state: dict[str, Any]) -> Iterator[bytes]:
        tree = self.elements.tree
        failures = Failures(tree, state["failures"])
        answering = np.unpackbits(np.frombuffer(bytes.fromhex(state["answering"]), np.uint8), count=self.elements.hosts)
        bits = {int(number): rate for number, rate in state["bits"].items()}
        self._ever |= answering.astype(bool)
        self.observer.answers(self._ever)
        self.observer.failed(self._down(failures), state["second"])
        began = time.process_time()
        needs = demand(self.elements, failures, bits, self._probe_bytes, state["host_bits"], self._self_probes)
        lanes = plan.lanes(self.elements, failures, answering.astype(bool), needs)
        rates = np.uint64(1 + round(1000 * needs.host_rate) + round(1000 * needs.rate))
        digests = np.where(answering, plan.digests(self.elements, lanes) + rates, np.uint64(0))
        changed = np.flatnonzero(digests != self._digests).tolist()
        self._digests = digests
        self._planned = plan.summary(self.elements, lanes, needs)
        self._planned |= {"ms": round(1000 * (time.process_time() - began), 1), "changed": len(changed)}
        if changed:
            self._number += 1
        for first in range(0, len(changed), LISTS_AT_ONCE):
            part = changed[first : first + LISTS_AT_ONCE]
            yield wire.lists([(host, self._number, self._text(lanes, host, needs)) for host in part])

    def _text(self, lanes: Lanes, host: int, needs: LaneDemand) -> str:
        return encode(plan.assignment(self.elements, lanes, host, self._number, needs))

    def _down(self, failures: Failures) -> set[int]:
        """Return the numbers of the links that have failed, or one end of which has."""
        found: set[int] = set()
        for element in failures.elements:
            if isinstance(element, Link):
                if isinstance(element.lower, Switch):
                    found.add(self.elements.of(element))
            else:
                found |= {number for number, link in self.elements.present if element in link}
        return found

    def _conclude(self) -> bytes:
        health = self.observer.conclude()
        forged, self.observer.forged = dict(self.observer.forged), type(self.observer.forged)()
        about = {
            "suspects": [one._asdict() for one in health.suspects],
            "unknown": self.observer.unknown(health),
            "background": health.background,
            "forged": {str(host): count for host, count in forged.items()},
            "plan": self._planned,
            "reports": self._reports,
            "dropped": self._dropped,
            "cpu_seconds": round(self._spent, 6),
        }
        return wire.health(about, health.loss.astype(np.float32).tobytes(), health.delay_us.astype(np.float32).tobytes())
