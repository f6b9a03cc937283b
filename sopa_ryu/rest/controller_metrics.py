"""``GET /metrics``: the controller, the switches and their ports in Prometheus' format."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from ryu.lib import hub
from webob import Request, Response

from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.fabric.switch_setup import CHECKS
from sopa_ryu.fabric.traffic import BITS, PortCounters
from sopa_ryu.fabric.unreachable import Unreachable
from sopa_ryu.health.monitor import Monitor
from sopa_ryu.rest.cluster import ClusterControl
from sopa_ryu.runtime import clock, doors
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.port_stats import PortStatsPoller
from topologies import Level, Reason, Switch

PATH = "/metrics"
SLICE_SECONDS = 0.005
"""The longest time for which rendering an answer delays the rest of the controller."""
CHANGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""In seconds: every agent has acknowledged a failure after some 15 ms at k=4 and 300 ms at k=24."""
# Each pair has a sample even while its value is 0: an alert needs to see it rise and fall.
FAILURE_KINDS = {
    "link": (Reason.DOWN, Reason.SILENT, Reason.MISWIRED, Reason.DRAINED, Reason.NO_CHANNEL),
    "switch": (Reason.DOWN, Reason.NOT_CONNECTED, Reason.NO_RULES, Reason.DRAINED),
}
PORT_COUNTERS = {
    "receive_bytes": "Bytes of Ethernet frames that a port has received.",
    "transmit_bytes": "Bytes of Ethernet frames that a port has transmitted.",
    "receive_packets": "Packets that a port has received.",
    "transmit_packets": "Packets that a port has transmitted.",
    "receive_drops": "Received packets that a port has dropped.",
    "transmit_drops": "Packets to be transmitted that a port has dropped.",
    "receive_errors": "Errors of a port in receiving.",
    "transmit_errors": "Errors of a port in transmitting.",
}
TURNED_AWAY = {
    "rest": ("share", "total", "files", "timeout", "400", "408", "413", "414", "431"),
    "openflow": ("share", "total", "files", "timeout", "tls", "malformed"),
}
MAX_SUSPECTS = 256
END = b"# EOF\n"  # of OpenMetrics
_SWITCH = ("dp_name", "level")


def _place(at: int) -> Callable[[Switch, int, PortCounters], float | None]:
    """Return the function that selects one of a port's counters."""
    return lambda _switch, _port, its: its[at]


class ControllerMetrics:
    """The metrics of the controller, collected for each scrape.

    Attributes:
        acknowledged, installed: Seconds until the last agent acknowledged a version, and until the last switch confirmed its
            rules.
        committed: In a cluster: the seconds that commits to the engine take.
    """

    def __init__(
        self,
        state: FabricState,
        fleet: SwitchManager,
        notifier: Notifier,
        meter: PortStatsPoller,
        carrier: str,
        unreachable: Unreachable | None = None,
        arbiter: ArbiterNotifier | None = None,
        health: Monitor | None = None,
        cluster: ClusterControl | None = None,
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a restart shows in process_start_time_seconds
        self.registry = CollectorRegistry()
        self._state, self._fleet, self._notifier, self._meter = state, fleet, notifier, meter
        self._tree = state.tree
        self._carrier = carrier
        self._arbiter = arbiter
        self._health, self._cluster = health, cluster
        self._unreachable = unreachable or Unreachable(state.tree)
        self._names = {switch: (self._tree.name(switch), switch.level.name.lower()) for switch in self._tree.switches()}
        self._turn = hub.Semaphore()
        self._made: tuple[float, str, bytes] = (0.0, "", b"")
        begun = "From the message that made a new version of the fabric until"
        self.acknowledged = self._histogram("change_acknowledged", f"{begun} the last agent connected had it in force.")
        self.installed = self._histogram(
            "change_installed", f"{begun} the last connected switch had confirmed its rules."
        )
        self.committed = (
            None
            if cluster is None
            else self._histogram("cluster_commit", "From the begin of a commit until the engine has confirmed it.")
        )
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def _histogram(self, what: str, text: str) -> Histogram:
        return Histogram(f"sopa_{what}_seconds", text, registry=self.registry, buckets=CHANGE_BUCKETS)

    def page(self, request: Request) -> Response:
        """Answer a scrape in the text format, or as OpenMetrics if the client accepts it."""
        asked = time.monotonic()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        with self._turn:  # concurrent scrapes share one answer
            began, made_as, body = self._made
            if began < asked or made_as != content_type:
                began = time.monotonic()
                body = self._render(encode, content_type.startswith("application/openmetrics-text"))
                self._made = began, content_type, body
        return Response(body, headerlist=[("Content-Type", content_type), ("Cache-Control", "no-store")])

    def _render(self, encode: Callable[[CollectorRegistry], bytes], openmetrics: bool) -> bytes:
        parts = [encode(self.registry).removesuffix(END)]
        parts.extend(lines.encode() for lines in self._ports(openmetrics))
        if openmetrics:
            parts.append(END)
        return b"".join(parts)

    # -- the fabric and its agents ------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family except the ports'."""
        pause = _pauses()
        state = self._state
        info = {"k": str(self._tree.k or ""), "carrier": self._carrier}
        yield InfoMetricFamily("sopa_fabric", "The fabric's size and carrier.", value=info)
        yield _gauge("fabric_version", "Version of the fabric: each change of the failures makes one.", state.version)
        yield _gauge("fabric_settled", "Whether the controller reports failures yet (0 or 1).", state.settled)
        yield _gauge("switches_verified", "Switches whose configuration was verified.", state.setup["checked"])
        wrong = _gauge("switch_setup_problems", "What is wrong with the switches' configuration.", labels=["check"])
        for check in CHECKS:
            wrong.add_metric([check], sum(problem["check"] == check for problem in state.setup["problems"]))
        yield wrong
        yield _gauge("bfd_enabled", "Whether BFD is on, which detects silent loss (0 or 1).", state.bfd["enabled"])
        yield from self._switches(pause)
        yield self._failures()
        yield self._turned_away()
        yield from self._agents()
        if self._arbiter is not None:
            yield from _of_arbiter(self._arbiter)
        if self._health is not None:
            yield from _of_health(self._health)
        if self._cluster is not None:
            yield from of_cluster(self._cluster)
        yield self._imbalance(pause)
        its = self._meter
        yield _counter("port_statistics_requests", "Requests for port statistics sent to switches.", its.asked)
        yield _counter("port_statistics_unanswered", "Requests without an answer, or refused.", its.unanswered)

    def _switches(self, pause: Callable[[], None]) -> Iterator[Metric]:
        state = self._state
        connected = Counter(switch.level for switch in state.connected)
        expected = Counter(switch.level for switch in self._names)
        for name, text, counts in (
            ("switches_connected", "Switches that are connected and have confirmed their rules.", connected),
            ("switches_expected", "Switches of the plan.", expected),
        ):
            family = _gauge(name, text, labels=["level"])
            for level in Level:
                family.add_metric([level.name.lower()], counts[level])
            yield family
        behind = sum(
            session.version != state.version
            for switch, session in self._fleet.sessions.items()
            if switch in state.connected
        )
        yield _gauge("switches_behind", "Connected switches without the rules of the current version.", behind)
        ignored = len(state.rejected)
        fleet, faults = self._fleet, state.management.faults
        no_channel = len(state.no_channel)
        yield _gauge("switches_without_channel", "Switches without a channel that are presumed to forward.", no_channel)
        lost = _counter(
            "management_faults", "Many channels lost together, and pauses of the controller.", labels=["kind"]
        )
        for kind, count in faults.items():
            lost.add_metric([kind], count)
        yield lost
        seconds = _counter(
            "second_connections", "Second connections of a datapath id, by which was kept.", labels=["kept"]
        )
        for kept, count in fleet.contests.decided.items():
            seconds.add_metric([kept], count)
        yield seconds
        yield _counter(
            "switch_certificates_refused", "Connections with another switch's certificate.", fleet.rejections.misnamed
        )
        yield _gauge(
            "deposed",
            "Whether another controller is the master of most switches (0 or 1).",
            fleet.mastership.is_deposed,
        )
        answers = _counter(
            "undeliverable_packets", "Packets to the outside while nothing leads there.", labels=["outcome"]
        )
        for outcome, count in self._unreachable.outcomes.items():
            answers.add_metric([outcome], count)
        yield answers
        if self._tree.gateways:
            gateways = _gauge("gateway_up", "Whether packets may go to a gateway (0 or 1).", labels=["gateway"])
            for each in state.gateways():
                gateways.add_metric([each["name"]], each["away"] is None)
            yield gateways
        yield _gauge("switches_rejected", "Ignored datapaths: the log and /sopa/v1/fabric have the reason.", ignored)
        up = _gauge("switch_up", "Whether a switch is connected and has confirmed its rules (0 or 1).", labels=_SWITCH)
        flows = _counter("switch_flow_mods", "Flow-mods sent to a switch.", labels=_SWITCH)
        groups = _counter("switch_group_mods", "Group-mods sent to a switch.", labels=_SWITCH)
        errors: Counter[str] = Counter(dict.fromkeys(openflow.ERROR_LABELS, 0))
        for switch, labels in self._names.items():
            up.add_metric(labels, switch in state.connected)
            sent = self._fleet.sent.get(switch)
            flows.add_metric(labels, sent.flow_mods if sent else 0)
            groups.add_metric(labels, sent.group_mods if sent else 0)
            errors.update(sent.errors if sent else ())
            pause()
        yield from (up, flows, groups)
        mended = sum(sent.mended for sent in self._fleet.sent.values())
        yield _counter(
            "rules_mended", "Flow entries and groups that another program had changed, and that were put right.", mended
        )
        refused = _counter("openflow_errors", "OpenFlow error messages of switches, by type.", labels=["type"])
        for kind, count in errors.items():
            refused.add_metric([kind], count)
        yield refused

    def _failures(self) -> Metric:
        counts = Counter({(kind, reason): 0 for kind, reasons in FAILURE_KINDS.items() for reason in reasons})
        counts.update((each["kind"], each["reason"]) for each in self._state.failure_list())
        family = _gauge("failures", "Failed and drained links and switches, by reason.", labels=["kind", "reason"])
        for labels, count in counts.items():
            family.add_metric(labels, count)
        return family

    def _turned_away(self) -> Metric:
        text = "What was rejected before it was a request or a switch, by listener and reason or HTTP status."
        family = _counter("rejected_connections", text, labels=["listener", "reason"])
        counts = Counter({(listener, reason): 0 for listener, reasons in TURNED_AWAY.items() for reason in reasons})
        counts.update(doors.turned_away)
        for labels, count in counts.items():
            family.add_metric(labels, count)
        return family

    def _agents(self) -> Iterator[Metric]:
        its, version, now = self._notifier, self._state.version, clock.now()
        behind = [session for session in its.sessions.values() if session.acknowledged != version]
        since = min((at for session in behind if (at := session.behind_since()) is not None), default=now)
        lag = max((version - session.acknowledged for session in behind if session.acknowledged), default=0)
        yield _gauge("hosts", "Hosts of the plan.", self._tree.host_count)
        yield _gauge("agents_connected", "Connected agents.", len(its.sessions))
        yield _gauge("agents_behind", "Connected agents that have not acknowledged the current version.", len(behind))
        yield _gauge("agents_lag_versions", "Largest number of versions by which an agent is behind.", lag)
        late = max(0.0, now - since)
        yield _gauge("agents_lag_seconds", "Longest time for which a version sent to an agent is unacknowledged.", late)
        claims, messages = its.refused["claims"], its.refused["messages"]
        yield _counter("agent_claims_refused", "Rejected connections: of another host, or of a second agent.", claims)
        yield _counter("agent_messages_refused", "Rejected messages of agents: not of the protocol.", messages)

    # -- traffic ------------------------------------------------------------------------------------------------------

    def _imbalance(self, pause: Callable[[], None]) -> Metric:
        family = _gauge(
            "uplink_imbalance_ratio",
            "Largest transmit rate of a switch's uplinks in use over their mean: 1 is even. No sample while they are idle.",
            labels=_SWITCH,
        )
        for switch, labels in self._names.items():
            ratio = self._meter.traffic.imbalance(switch, self._state.failures)
            if ratio is not None:
                family.add_metric(labels, ratio)
            pause()
        return family

    def _ports(self, openmetrics: bool) -> Iterator[str]:
        """Yield the families that have a line for each port: 17,280 lines each at k=24.

        They are not rendered by the client library, which takes 4 to 8 us per line: up to a second. All their label values are
        names and numbers, so that nothing has to be escaped.
        """
        pause = _pauses()
        totals = {switch: self._meter.traffic.totals(switch) for switch in self._names}
        for at, (name, text) in enumerate(PORT_COUNTERS.items()):
            yield _head(f"sopa_port_{name}", text, "counter", openmetrics)
            yield from self._lines(f"sopa_port_{name}_total", totals, _place(at), pause)
        yield _head(
            "sopa_port_speed_bytes",
            "Capacity of a port in each direction, in bytes per second.",
            "gauge",
            openmetrics,
        )
        yield from self._lines("sopa_port_speed_bytes", totals, self._speed, pause)

    def _lines(
        self,
        name: str,
        totals: Mapping[Switch, Mapping[int, PortCounters]],
        value_of: Callable[[Switch, int, PortCounters], float | None],
        pause: Callable[[], None],
    ) -> Iterator[str]:
        for switch, ports in totals.items():
            dp_name, level = self._names[switch]
            before = f'{name}{{dp_name="{dp_name}",level="{level}",port="'
            values = ((port, value_of(switch, port, its)) for port, its in ports.items())
            yield "".join(f'{before}{port}"}} {value}\n' for port, value in values if value is not None)
            pause()

    def _speed(self, switch: Switch, port: int, _its: PortCounters) -> float | None:
        bits = self._meter.port_capacity(switch, port)
        return None if bits is None else bits / BITS


def _of_arbiter(its: ArbiterNotifier) -> Iterator[Metric]:
    yield _gauge("arbiter_connected", "Whether an arbiter is connected (0 or 1).", ARBITER in its.sessions)
    yield _gauge("arbiter_term", "Term of the last arbiter that was accepted; 0 before the first.", its.term)
    yield _counter("arbiter_claims_refused", "Rejected connections of a second arbiter.", its.refused["claims"])
    yield _counter("arbiter_messages_refused", "Rejected messages of arbiters.", its.refused["messages"])


def of_cluster(its: ClusterControl) -> Iterator[Metric]:
    """Yield what a member tells of its cluster."""
    report = its.report()
    yield _gauge("cluster_leader", "Whether this member leads the cluster (0 or 1).", its.is_leader)
    yield _gauge("cluster_has_leader", "Whether this member knows of a leader (0 or 1).", report["leader"] is not None)
    yield _gauge("cluster_term", "Term of the last leader.", report["term"])
    reachable = report["engine"]["reachable"]
    yield _gauge("cluster_engine_reachable", "Whether the engine answers this member (0 or 1).", reachable)
    members = _gauge("cluster_members", "Members of the cluster, by role.", labels=["role"])
    roles = Counter(member["role"] for member in report["members"])
    for role in ("leader", "standby", "away"):
        members.add_metric([role], roles[role])
    yield members
    lag = _gauge(
        "cluster_member_lag_versions", "Versions that a member's view is behind the leader's.", labels=["member"]
    )
    for member in report["members"]:
        if member["lag"] is not None:
            lag.add_metric([member["name"]], member["lag"])
    yield lag
    relays = report["relays"]
    yield _gauge("cluster_relays", "Relays of the cluster.", len(relays))
    yield _gauge("cluster_relay_agents", "Agents connected to relays.", sum(relay["agents"] for relay in relays))
    waiting = sum(relay["waiting"] for relay in relays)
    yield _gauge("cluster_relay_agents_waiting", "Agents that have not acknowledged their relay's view.", waiting)


def _of_health(its: Monitor) -> Iterator[Metric]:
    """Yield what probes say: links by name only if they are suspect, of which there are few."""
    yield _gauge("probing_hosts", "Hosts whose agents probe paths and answer probes.", len(its.lists.answering))
    yield _gauge(
        "estimator_running", "Whether reports of probes are being evaluated (0 or 1).", its.verdict is not None
    )
    yield _counter("estimator_restarts", "How often the process that evaluates reports has ended.", its.restarts)
    about = its.verdict.about if its.verdict is not None else {}
    spent = about.get("cpu_seconds", 0.0)
    yield _counter("estimator_cpu_seconds", "Processor time of the process that evaluates reports.", spent)
    yield _gauge("probe_streams", "Streams of probes that agents were given.", about.get("plan", {}).get("streams", 0))
    reports = _counter(
        "probe_reports", "Reports of probes that were taken, or dropped as too many.", labels=["outcome"]
    )
    for outcome, count in its.lists.counts.items():
        reports.add_metric([outcome], count)
    yield reports
    yield _counter("probe_records_forged", "Records of reports that no agent can have made.", its.forged)
    suspects = its.suspects
    yield _gauge("suspect_links", "Links that lose packets by what probes say.", len({one.name for one in suspects}))
    loss = _gauge("link_loss_ratio", "Share of packets that a suspect link loses.", labels=["link", "direction"])
    for one in suspects[:MAX_SUSPECTS]:
        loss.add_metric([one.name, {True: "down", False: "up", None: "unknown"}[one.down]], one.loss)
    yield loss
    yield _counter("suspects_taken_out", "Suspect links that were drained.", its.caretaker.taken)


def _gauge(name: str, text: str, value: float | None = None, labels: Iterable[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sopa_{name}", text, value=value, labels=list(labels) or None)


def _counter(name: str, text: str, value: float | None = None, labels: Iterable[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_{name}", text, value=value, labels=list(labels) or None)


def _head(name: str, text: str, kind: str, openmetrics: bool) -> str:
    family = f"{name}_total" if kind == "counter" and not openmetrics else name
    return f"# HELP {family} {text}\n# TYPE {family} {kind}\n"


def _pauses() -> Callable[[], None]:
    """Return a function that yields to other green threads once `SLICE_SECONDS` have passed; call it often."""
    until = time.monotonic() + SLICE_SECONDS

    def pause() -> None:
        nonlocal until
        if time.monotonic() > until:
            hub.sleep(0)
            until = time.monotonic() + SLICE_SECONDS

    return pause
