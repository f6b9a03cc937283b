"""The metrics of the policy ``cfr``: `AgentMetrics` has them among the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sopa_ryu.agent.cfr_agent import CfrAgent
from sopa_ryu.agent.cfr_grants import Rejection
from sopa_ryu.agent.kernel.counters import Reason

OF_CFR = (Reason.GRANTED, Reason.HELD, Reason.PASSED_IN_GUARD, Reason.GATE_OPEN)


class CfrMetrics:
    """The families of one scrape."""

    def __init__(self) -> None:
        with_cfr = "With --policy cfr: "
        self._packets = _counter(
            "packets", with_cfr + "data by what was done with it; held ones are not sent.", "outcome"
        )
        self._slots = _counter("slots", with_cfr + "slots granted to this host; came too late; in which anything was sent; "
                               "that have another path than the granted one, which this host avoids.",
                               "outcome")  # fmt: skip
        self._rejected = _counter("rejected_datagrams", with_cfr + "grants that were ignored, by reason.", "reason")
        self._jumps = _counter("clock_jumps", with_cfr + "jumps of the arbiter's clock against this host's.")
        self._term = _gauge("term", with_cfr + "the arbiter's term; 0 before the first grant.")
        self._closed = _gauge(
            "gate_closed", with_cfr + "1 while data waits for granted slots, 0 while no arbiter answers."
        )
        self._lease = _gauge("lease_seconds", with_cfr + "what is left of the arbiter's lease.")
        self._offset = _gauge("clock_offset_seconds", with_cfr + "the arbiter's monotonic clock less this host's.")
        self._round_trip = _gauge(
            "round_trip_seconds", with_cfr + "the shortest of the last round trips to the arbiter."
        )
        self._pass = _gauge("pass_seconds", with_cfr + "the time that an iteration over TCP's sockets takes.")
        self._departure = _gauge(
            "departure_times",
            with_cfr + "1 while the interface's qdisc (fq) keeps data until its slot begins, otherwise 0.",
        )

    @property
    def families(self) -> list[Metric]:
        """All of them."""
        return [self._packets, self._slots, self._rejected, self._jumps, self._term, self._closed, self._lease, self._offset,
                self._round_trip, self._pass, self._departure]  # fmt: skip

    def add(self, labels: Sequence[str], its: CfrAgent, packets: Mapping[Reason, int]) -> None:
        """Add an interface's."""
        grants, now = its.grants, time.monotonic_ns()
        for reason in OF_CFR:
            self._packets.add_metric([*labels, reason.name.lower()], packets[reason])
        for outcome, count in (("granted", grants.granted), ("late", grants.late), ("used", its.slots_used),
                               ("rerouted", its.slots_rerouted)):  # fmt: skip
            self._slots.add_metric([*labels, outcome], count)
        for rejection in Rejection:
            self._rejected.add_metric([*labels, str(rejection)], grants.rejected[rejection])
        self._jumps.add_metric(labels, grants.clock.jumps)
        self._term.add_metric(labels, grants.term)
        closed = grants.gate is not None and grants.is_closed(now)
        self._closed.add_metric(labels, closed)
        self._lease.add_metric(labels, (grants.gate.open_after - now) / 1e9 if grants.gate and closed else 0)
        if grants.clock.offset is not None and grants.clock.round_trip is not None:
            self._offset.add_metric(labels, grants.clock.offset / 1e9)
            self._round_trip.add_metric(labels, grants.clock.round_trip / 1e9)
        self._pass.add_metric(labels, its.pass_ns / 1e9)
        self._departure.add_metric(labels, grants.departure_times)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_agent_cfr_{name}", text, labels=["interface", *labels])


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sopa_agent_cfr_{name}", text, labels=["interface"])
