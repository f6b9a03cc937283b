"""``sopa agent --metrics-port``: the metrics of the agents of one process, for Prometheus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from sopa_ryu.agent.agent_options import AgentError
from sopa_ryu.agent.cfr_metrics import CfrMetrics
from sopa_ryu.agent.kernel.counters import Reason
from sopa_ryu.agent.mending import Part
from sopa_ryu.agent.probe_metrics import ProbeMetrics
from sopa_ryu.agent.supervisor import Supervisor
from sopa_ryu.runtime import metrics_server
from sopa_ryu.runtime.metrics_server import MetricsError

LOG = logging.getLogger("sopa.agent")

UNLABELLED = (
    Reason.NOT_IPV4,
    Reason.OUTSIDE,
    Reason.FORWARDED,
    Reason.NO_PATH,
    Reason.NO_TABLE,
    Reason.MALFORMED,
    Reason.NOT_WRITABLE,
    Reason.NO_ROOM,
    Reason.TOO_BIG,
)
OF_MCS = (
    Reason.SCATTERED,
    Reason.UNSCATTERED,
    Reason.ACK_FILTERED,
    Reason.MCO_TAKEN,
    Reason.MCO_UNKNOWN,
    Reason.MCO_MALFORMED,
    Reason.WINDOW_LOWERED,
    Reason.NO_CONNECTION,
)
"""The last two count packets again."""


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
            return self._families()

    def _families(self) -> list[Metric]:
        info = InfoMetricFamily("sopa_agent", "Options of an agent.", labels=["interface"])
        paths = _counter("path_packets", "Packets labelled, by the uplinks that they take; none for a hop not taken.",
                         "up1", "up2")  # fmt: skip
        unlabelled = _counter("unlabelled_packets", "Packets that went out without a label, by reason.", "reason")
        trains = _counter("segment_trains", "Labels that several segments share: the kernel cut the packet afterwards.")
        cut = _counter("cut_bursts", "Bursts that were cut into packets, each of which was labelled then.")
        untracked = _counter("untracked_packets", "Packets whose path was hashed: no room for their flow's position.")
        options = _counter("received_options", "Packets received with an option, by whether it was taken out.",
                           "result")  # fmt: skip
        of_mcs = _counter("mcs_packets", "With --policy mcs: packets by what was done with them.", "outcome")
        of_cfr, of_probes = CfrMetrics(), ProbeMetrics()
        connections = _gauge("mcs_connections", "With --policy mcs: TCP connections whose state is kept.")
        hosts = _gauge("mcs_hosts", "With --policy mcs: hosts that packets are scattered to.")
        swaps = _counter("swaps", "Path tables put in force.")
        refused = _counter("refused_messages", "Messages of the controller that were refused.")
        version = _gauge("version", "The fabric's version by which packets are labelled; 0 before the first.")
        connected = _gauge("connected", "1 while the channel to the controller is open, otherwise 0.")
        controllers = _gauge(
            "controller", "1 while the channel to this URL of a controller is open, otherwise 0.", "url"
        )
        cut_off = _gauge("cut_off_racks", "Racks to which no path is left.")
        in_force = _gauge(
            "in_force", "1 while the interface is there and the program that labels is on it, otherwise 0."
        )
        mended = _counter("mended", "Changes by other programs that were put right, by what they had changed.", "what")
        wrong = _gauge("wrong", "1 while that is not as labelling needs it, otherwise 0.", "what")
        for supervisor in self._agents:
            labels = [str(supervisor.interface)]
            for part in Part:
                mended.add_metric([*labels, str(part)], supervisor.mended[part])
            with supervisor.reading:
                agent, labeller = supervisor.agent, supervisor.labeller
                in_force.add_metric(labels, agent is not None and agent.keeper.found.is_set())
                connected.add_metric(labels, agent is not None and agent.follower.connected)
                if agent is None or labeller is None:
                    continue
                for part in Part:
                    wrong.add_metric([*labels, str(part)], part in agent.keeper.wrong)
                its = agent.follower
                info.add_metric(
                    labels,
                    {
                        "address": str(its.address),
                        "carrier": str(agent.options.carrier),
                        "policy": its.policy_name,
                    },
                )
                for url in its.controllers.urls:
                    controllers.add_metric([*labels, url], its.connected and url == its.controllers.url)
                version.add_metric(labels, its.view.version if its.view else 0)
                cut_off.add_metric(labels, its.cut_off)
                swaps.add_metric(labels, its.swaps)
                refused.add_metric(labels, its.refused)
                counted = labeller.counted
                packets = counted.by_reason()
                for reason in UNLABELLED:
                    unlabelled.add_metric([*labels, reason.name.lower()], packets[reason])
                trains.add_metric(labels, packets[Reason.GSO])
                cut.add_metric(labels, packets[Reason.CUT])
                untracked.add_metric(labels, packets[Reason.NO_FLOW_STATE])
                if labeller.mcs is not None:
                    connections.add_metric(labels, labeller.mcs.connections)
                    hosts.add_metric(labels, labeller.mcs.hosts)
                    for outcome in OF_MCS:
                        of_mcs.add_metric([*labels, outcome.name.lower()], packets[outcome])
                if agent.timed is not None:
                    of_cfr.add(labels, agent.timed, packets)
                if agent.prober is not None and labeller.probes is not None:
                    of_probes.add(labels, agent.prober, labeller.probes)
                if agent.reaction is not None:
                    of_probes.add_reaction(labels, agent.reaction, its.avoided_paths)
                for result in (Reason.STRIPPED, Reason.NOT_STRIPPED):
                    options.add_metric([*labels, result.name.lower()], packets[result])
                if its.view is not None:
                    for label, count in counted.by_path(its.view.failures.tree).items():
                        paths.add_metric([*labels, *map(_hop, label)], count)
        return [info, version, connected, controllers, cut_off, swaps, refused, paths, unlabelled, trains, cut, untracked, options,
                of_mcs, connections, hosts, *of_cfr.families, *of_probes.families, in_force, mended, wrong]  # fmt: skip


@contextmanager
def metrics_served(agents: Sequence[Supervisor], host: str, port: int) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port, from a thread, until the context ends.

    Raises:
        AgentError: If the port is in use, or the address is not this machine's.
    """
    registry = CollectorRegistry()
    metrics = AgentMetrics(agents)
    registry.register(metrics)
    try:
        with metrics_server.served(registry, host, port, LOG):
            try:
                yield
            finally:
                metrics.close()
    except MetricsError as error:
        raise AgentError(str(error)) from error


def _hop(hop: int) -> str:
    return "none" if hop == 0xFF else "other" if hop < 0 else str(hop)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_agent_{name}", text, labels=["interface", *labels])


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sopa_agent_{name}", text, labels=["interface", *labels])
