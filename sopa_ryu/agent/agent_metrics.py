"""``sopa agent --metrics-port``: the metrics of the agents of one process, for Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import AgentError
from sopa_ryu.agent.cfr_agent import CfrAgent
from sopa_ryu.agent.host.mending import Part
from sopa_ryu.agent.host_agent import HostAgent
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.probing.path_health import CAUSES
from sopa_ryu.agent.probing.prober import Prober
from sopa_ryu.agent.probing.programs import REFUSED, Seen
from sopa_ryu.agent.probing.streams import RecordRefusal
from sopa_ryu.agent.reaction import Reaction
from sopa_ryu.agent.slots.cfr_grants import Rejection
from sopa_ryu.agent.supervisor import Supervisor
from sopa_ryu.runtime.metrics import COUNTER, GAUGE, INFO, Row, Source, families, served

LOG = logging.getLogger("sopa.agent")
PartOf = TypeVar("PartOf")

UNLABELLED = (Handling.NOT_IPV4, Handling.OUTSIDE, Handling.FORWARDED, Handling.NO_PATH, Handling.NO_TABLE, Handling.MALFORMED,
              Handling.NOT_WRITABLE, Handling.NO_ROOM, Handling.TOO_BIG)  # fmt: skip
OF_MCS = (Handling.SCATTERED, Handling.UNSCATTERED, Handling.ACK_FILTERED, Handling.MCO_TAKEN, Handling.MCO_UNKNOWN,
          Handling.MCO_MALFORMED, Handling.WINDOW_LOWERED, Handling.NO_CONNECTION)  # fmt: skip
"""The last two count packets again."""
OF_CFR = (Handling.GRANTED, Handling.HELD, Handling.PASSED_IN_GUARD, Handling.GATE_OPEN)


class _Running(NamedTuple):
    """The agent of an interface that is there."""

    agent: HostAgent
    labeller: Labeller
    packets: Mapping[Handling, int]

    def counted(self, reasons: Iterable[Handling]) -> dict[str, int]:
        """Return the packets of these reasons, by label value."""
        return {reason.name.lower(): self.packets[reason] for reason in reasons}

    def info(self) -> dict[str, str]:
        """Return what identifies the agent."""
        follower, carrier = self.agent.follower, self.agent.options.carrier
        return {"address": str(follower.address), "carrier": str(carrier), "policy": follower.policy_name}

    def channels(self) -> dict[str, bool]:
        """Return whether the channel to a controller is open, by URL."""
        follower = self.agent.follower
        url = follower.controllers.url if follower.connected else None
        return {each: each == url for each in follower.controllers.urls}

    def paths(self) -> dict[tuple[str, ...], int]:
        """Return the labelled packets by ``up1`` and ``up2``."""
        view = self.agent.follower.view
        counts = {} if view is None else self.labeller.counted.by_path(view.failures.tree)
        return {tuple(map(_hop, label)): count for label, count in counts.items()}


class _Reading(NamedTuple):
    supervisor: Supervisor
    running: _Running | None


def _running(reading: _Reading) -> _Running | None:
    return reading.running


def _timed(running: _Running) -> CfrAgent | None:
    return running.agent.timed


def _reaction(running: _Running) -> Reaction | None:
    return running.agent.reaction


def _probing(running: _Running) -> tuple[Prober, Mapping[Seen, int]] | None:
    prober, program = running.agent.prober, running.labeller.probes
    return None if prober is None or program is None else (prober, program.seen())


def _hop(hop: int) -> str:
    return "none" if hop == 0xFF else "other" if hop < 0 else str(hop)


def _slots(cfr: CfrAgent) -> dict[str, int]:
    grants = cfr.grants
    return {"granted": grants.granted, "late": grants.late, "used": cfr.slots_used, "rerouted": cfr.slots_rerouted}


def _lease(cfr: CfrAgent) -> float:
    gate, now = cfr.grants.gate, time.monotonic_ns()
    return (gate.open_after - now) / 1e9 if gate and cfr.grants.is_closed(now) else 0


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _rows_of(part: Callable[[Source], PartOf | None], rows: Iterable[Row[PartOf]]) -> list[Row[Source]]:
    """Return the rows of a part of sources: without a sample where it is None."""

    def values(row: Row[PartOf]) -> Callable[[Source], float | Mapping[Any, Any] | None]:
        return lambda source: None if (present := part(source)) is None else row.values(present)

    return [Row(row.name, row.kind, row.text, values(row), row.labels) for row in rows]


_CFR: list[Row[CfrAgent]] = [
    Row("sopa_agent_cfr_slots", COUNTER, "With --policy cfr: slots granted to this host; came too late; in which anything was "
        "sent; that have another path than the granted one, which this host avoids.",
        _slots, ("outcome",)),
    Row("sopa_agent_cfr_rejected_datagrams", COUNTER, "With --policy cfr: grants that were ignored, by reason.",
        lambda c: {str(rejection): c.grants.rejected[rejection] for rejection in Rejection}, ("reason",)),
    Row("sopa_agent_cfr_clock_jumps", COUNTER, "With --policy cfr: jumps of the arbiter's clock against this host's.",
        lambda c: c.grants.clock.jumps),
    Row("sopa_agent_cfr_term", GAUGE, "With --policy cfr: the arbiter's term; 0 before the first grant.", lambda c: c.grants.term),
    Row("sopa_agent_cfr_gate_closed", GAUGE, "With --policy cfr: 1 while data waits for granted slots, 0 while no arbiter answers.",
        lambda c: not c.too_many and c.grants.is_closed(time.monotonic_ns())),
    Row("sopa_agent_cfr_lease_seconds", GAUGE, "With --policy cfr: what is left of the arbiter's lease.", _lease),
    Row("sopa_agent_cfr_clock_offset_seconds", GAUGE, "With --policy cfr: the arbiter's monotonic clock less this host's.",
        lambda c: _seconds(c.grants.clock.offset)),
    Row("sopa_agent_cfr_round_trip_seconds", GAUGE, "With --policy cfr: the shortest of the last round trips to the arbiter.",
        lambda c: _seconds(c.grants.clock.round_trip)),
    Row("sopa_agent_cfr_pass_seconds", GAUGE, "With --policy cfr: the time that an iteration over TCP's sockets takes.",
        lambda c: c.pass_ns / 1e9),
    Row("sopa_agent_cfr_departure_times", GAUGE,
        "With --policy cfr: 1 while the interface's qdisc (fq) keeps data until its slot begins, otherwise 0.",
        lambda c: c.grants.departure_times),
]  # fmt: skip
_PROBES: list[Row[tuple[Prober, Mapping[Seen, int]]]] = [
    Row("sopa_agent_probes", COUNTER, "Probes of this host by what became of them; unsent ones the device did not take.",
        lambda p: {"came_back": p[0].streams.came_back, "lost": p[0].streams.lost, "unsent": p[0].unsent}, ("result",)),
    Row("sopa_agent_probe_answers", COUNTER, "Probes of other hosts that were answered.", lambda p: p[1][Seen.ANSWERED]),
    Row("sopa_agent_refused_probes", COUNTER, "Probes and answers that were refused, by reason.",
        lambda p: {what.name.lower(): p[1][what] for what in REFUSED}
        | {str(refusal): p[0].streams.refused[refusal] for refusal in RecordRefusal}, ("reason",)),
]  # fmt: skip
_REACTION: list[Row[Reaction]] = [
    Row("sopa_agent_paths_left", COUNTER, "How often this host has left paths, those over a link together, by cause: row "
        "(probes in a row lost), share (of losses).",
        lambda r: {cause: r.left[cause] for cause in CAUSES}, ("cause",)),
    Row("sopa_agent_paths_returned", COUNTER, "How often it has taken such paths again.", lambda r: r.returned),
    Row("sopa_agent_retransmissions", COUNTER, "TCP segments sent again of which it is known which path had carried them.",
        lambda r: r.retransmissions),
]  # fmt: skip
_AGENT: list[Row[_Running]] = [
    Row("sopa_agent_controller", GAUGE, "1 while the channel to this URL of a controller is open, otherwise 0.", _Running.channels,
        ("url",)),
    Row("sopa_agent_cut_off_racks", GAUGE, "Racks to which no path is left.", lambda a: a.agent.follower.cut_off),
    Row("sopa_agent_swaps", COUNTER, "Path tables put in force.", lambda a: a.agent.follower.swaps),
    Row("sopa_agent_refused_messages", COUNTER, "Messages of the controller that were refused.",
        lambda a: a.agent.follower.refused),
    Row("sopa_agent_path_packets", COUNTER, "Packets labelled, by the uplinks that they take; none for a hop not taken.",
        _Running.paths, ("up1", "up2")),
    Row("sopa_agent_unlabelled_packets", COUNTER, "Packets that went out without a label, by reason.",
        lambda a: a.counted(UNLABELLED), ("reason",)),
    Row("sopa_agent_hashed_packets", COUNTER, "Labelled packets of flows that keep one path, since --spray does not name them.",
        lambda a: a.packets[Handling.HASHED]),
    Row("sopa_agent_spread_labels", COUNTER, "With --carrier id: labels that leave the path to the edge switch's port (spread), "
        "and those that do not since the flow's IPv4 identifications stand still (ids_stand).",
        lambda a: a.counted((Handling.SPREAD, Handling.IDS_STAND)) if a.labeller.carrier is Carrier.ID else None, ("outcome",)),
    Row("sopa_agent_segment_trains", COUNTER, "Labels that several segments share: the kernel cut the packet afterwards.",
        lambda a: a.packets[Handling.GSO]),
    Row("sopa_agent_cut_bursts", COUNTER, "Bursts that were cut into packets, each of which was labelled then.",
        lambda a: a.packets[Handling.CUT]),
    Row("sopa_agent_untracked_packets", COUNTER, "Packets whose path was hashed: no room for their flow's position.",
        lambda a: a.packets[Handling.NO_FLOW_STATE]),
    Row("sopa_agent_filtered_acks", COUNTER, "Duplicate ACKs that only showed that packets overtook each other, and were not sent.",
        lambda a: a.packets[Handling.ACK_FILTERED]),
    Row("sopa_agent_received_options", COUNTER, "Packets received with an option, by whether it was taken out.",
        lambda a: a.counted((Handling.STRIPPED, Handling.NOT_STRIPPED)), ("result",)),
    Row("sopa_agent_mcs_packets", COUNTER, "With --policy mcs: packets by what was done with them.",
        lambda a: a.counted(OF_MCS) if a.labeller.mcs else None, ("outcome",)),
    Row("sopa_agent_mcs_connections", GAUGE, "With --policy mcs: TCP connections whose state is kept.",
        lambda a: a.labeller.mcs.connections if a.labeller.mcs else None),
    Row("sopa_agent_mcs_hosts", GAUGE, "With --policy mcs: hosts that packets are scattered to.",
        lambda a: a.labeller.mcs.hosts if a.labeller.mcs else None),
    Row("sopa_agent_cfr_packets", COUNTER, "With --policy cfr: data by what was done with it; held ones are not sent.",
        lambda a: a.counted(OF_CFR) if a.agent.timed else None, ("outcome",)),
    *_rows_of(_timed, _CFR),
    *_rows_of(_probing, _PROBES),
    Row("sopa_agent_avoided_paths", GAUGE, "Candidate paths, of all racks together, that this host avoids by itself.",
        lambda a: a.agent.follower.avoided_paths if a.agent.reaction else None),
    *_rows_of(_reaction, _REACTION),
]  # fmt: skip
_ROWS: list[Row[_Reading]] = [
    *_rows_of(_running, [
        Row("sopa_agent", INFO, "Options of an agent.", _Running.info),
        Row("sopa_agent_version", GAUGE, "The fabric's version by which packets are labelled; 0 before the first.",
            lambda a: a.agent.follower.view.version if a.agent.follower.view else 0),
    ]),
    Row("sopa_agent_connected", GAUGE, "1 while the channel to the controller is open, otherwise 0.",
        lambda r: r.running is not None and r.running.agent.follower.connected),
    *_rows_of(_running, _AGENT),
    Row("sopa_agent_in_force", GAUGE, "1 while the interface is there and the program that labels is on it, otherwise 0.",
        lambda r: r.running is not None and r.running.agent.keeper.found.is_set()),
    Row("sopa_agent_mended", COUNTER, "Changes by other programs that were put right, by what they had changed.",
        lambda r: {str(part): r.supervisor.mended[part] for part in Part}, ("what",)),
    *_rows_of(_running, [
        Row("sopa_agent_wrong", GAUGE, "1 while that is not as labelling needs it, otherwise 0.",
            lambda a: {str(part): part in a.agent.keeper.wrong for part in Part}, ("what",)),
    ]),
]  # fmt: skip


class AgentMetrics:
    """A collector that reads the agents' counters at each scrape, in the scraping thread."""

    def __init__(self, agents: Sequence[Supervisor]) -> None:
        self._agents = list(agents)
        self._reading = threading.Lock()

    def close(self) -> None:
        """Report nothing from now on: the counters may be closed after this returns."""
        with self._reading:
            self._agents = []

    def collect(self) -> Iterable[Metric]:
        """Return all families; a registry calls this for each scrape."""
        with self._reading:
            return families(_ROWS, self._readings(), ("interface",))

    def _readings(self) -> Iterator[tuple[list[str], _Reading]]:
        for supervisor in self._agents:
            with supervisor.reading:
                agent, labeller = supervisor.agent, supervisor.labeller
                running = _Running(agent, labeller, labeller.counted.by_reason()) if agent and labeller else None
                yield [str(supervisor.interface)], _Reading(supervisor, running)


@contextmanager
def metrics_served(agents: Sequence[Supervisor], host: str, port: int) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port, from a thread, until the context ends.

    Raises:
        AgentError: If the port is in use, or the address is not this machine's.
    """
    registry = CollectorRegistry()
    collector = AgentMetrics(agents)
    registry.register(collector)
    with served(registry, host, port, LOG, AgentError):
        try:
            yield
        finally:
            collector.close()
