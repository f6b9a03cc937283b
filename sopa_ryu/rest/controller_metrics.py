"""``GET /metrics``: the controller, the switches and their ports in Prometheus' format."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from webob import Request, Response

from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier
from sopa_ryu.channel.connected import ConnectedAgent, ConnectedAgents
from sopa_ryu.fabric.rule_changes import Sent
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.fabric.switch_setup import CHECKS
from sopa_ryu.fabric.traffic import BITS, PortCounters
from sopa_ryu.fabric.unreachable import Unreachable
from sopa_ryu.health.monitor import Monitor
from sopa_ryu.rest.reader import ClusterControl
from sopa_ryu.runtime import clock, listeners
from sopa_ryu.runtime.library import hub
from sopa_ryu.runtime.metrics import COUNTER, GAUGE, INFO, Row, add_process, families
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.port_stats import PortStatsPoller
from topologies import Level, Reason, Switch
from topologies.aliases import OWN_NAME
from topologies.failures import Failures
from topologies.impact import causes_of

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
MAX_NAMED = 256
"""Failed elements that have a sample of their own, and suspect directions of links. `sopa_failures` counts all."""
ROLES = ("leader", "standby", "away")
END = b"# EOF\n"  # of OpenMetrics
_SWITCH = ("dp_name", "level")
_ELEMENT = re.compile(rf'(dp_name|element|link|gateway|cause)="({OWN_NAME.pattern})"')


def _place(at: int) -> Callable[[Switch, int, PortCounters], float | None]:
    return lambda _switch, _port, counters: counters[at]


class ControllerMetrics:
    """The metrics of the controller, collected for each scrape.

    Attributes:
        directory: Of drains, events and tokens.
        acknowledged, installed: Seconds until the last agent acknowledged a version, and until the last switch confirmed its
            rules.
        committed: In a cluster: the seconds that commits to the engine take.
    """

    def __init__(
        self,
        state: FabricState,
        fleet: SwitchManager,
        agents: ConnectedAgents,
        meter: PortStatsPoller,
        carrier: str,
        unreachable: Unreachable | None = None,
        arbiter: ArbiterNotifier | None = None,
        health: Monitor | None = None,
        cluster: ClusterControl | None = None,
        directory: Path = Path(),
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a restart shows in process_start_time_seconds
        self.registry = CollectorRegistry()
        self.state, self.fleet, self.agents, self.meter = state, fleet, agents, meter
        self.tree = state.tree
        self.carrier = carrier
        self._arbiter = arbiter
        self._health, self._cluster, self.directory = health, cluster, directory
        self.unreachable = unreachable or Unreachable(state.tree)
        self._names = {switch: (self.tree.name(switch), switch.level.name.lower()) for switch in self.tree.switches()}
        self._until = time.monotonic() + SLICE_SECONDS
        self._turn = hub.Semaphore()
        self._causes: tuple[Failures | None, dict[str, str]] = None, {}
        self._made: tuple[float, str, bytes] = (0.0, "", b"")
        begun = "From the message that made a new version of the fabric until"
        self.acknowledged = self._histogram("change_acknowledged", f"{begun} the last agent connected had it in force.")
        self.installed = self._histogram("change_installed", f"{begun} the last connected switch had confirmed its rules.")
        self.committed = (
            None
            if cluster is None
            else self._histogram("cluster_commit", "From the begin of a commit until the engine has confirmed it.")
        )
        self.registry.register(self)
        add_process(self.registry)

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
        parts = [self._with_aliases(encode(self.registry).removesuffix(END).decode())]
        parts.extend(map(self._with_aliases, self._ports(openmetrics)))
        if openmetrics:
            parts.append(END)
        return b"".join(parts)

    def _with_aliases(self, lines: str) -> bytes:
        """Return lines with a label ``alias``, or ``cause_alias``, behind that of each element that has one; else as they are."""
        aliases = self.state.aliases

        def labels(found: re.Match[str]) -> str:
            alias = aliases.alias(found[2])
            label = "cause_alias" if found[1] == "cause" else "alias"
            return found[0] if alias is None else f'{found[0]},{label}="{alias}"'

        return (_ELEMENT.sub(labels, lines) if aliases.names else lines).encode()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family except the ports'."""
        yield from families(_FABRIC, [((), self)])
        if self.tree.gateways:
            yield from families(_GATEWAYS, [((), self.state)])
        yield from families(_SWITCHES, [((), self)])
        if self._arbiter is not None:
            yield from families(_ARBITER, [((), self._arbiter)])
        if self._health is not None:
            yield from families(_HEALTH, [((), self._health)])
        if self._cluster is not None:
            yield from of_cluster(self._cluster)
        yield from families(_TRAFFIC, [((), self)])

    def by_switch(self, value_of: Callable[[Switch], float | None]) -> dict[tuple[str, str], float]:
        """Return the value of each switch that has one, by name and level; other green threads have their turns meanwhile."""
        values = {}
        for switch, labels in self._names.items():
            value = value_of(switch)
            if value is not None:
                values[labels] = value
            self._pause()
        return values

    def _pause(self) -> None:
        """Let other green threads have their turn if they have had none for `SLICE_SECONDS`; call it often."""
        if time.monotonic() > self._until:
            hub.sleep(0)
            self._until = time.monotonic() + SLICE_SECONDS

    def sent(self, switch: Switch) -> Sent:
        """Return what was sent to a switch since the controller began."""
        return self.fleet.sent.get(switch) or Sent()

    def behind(self) -> list[ConnectedAgent]:
        """Return the agents that have not acknowledged the current version."""
        return self.agents.behind(self.state.version)

    def causes(self) -> dict[str, str]:
        """Return `causes_of` what has failed; made once for a version."""
        if self._causes[0] is not self.state.failures:
            self._causes = self.state.failures, causes_of(self.state.failures)
        return self._causes[1]

    def _ports(self, openmetrics: bool) -> Iterator[str]:
        """Yield the families that have a line for each port: 17,280 lines each at k=24.

        They are not rendered by the client library, which takes 4 to 8 us per line: up to a second. All their label values but
        those of the fabric file are names and numbers, so that nothing else has to be escaped.
        """
        totals = {switch: self.meter.traffic.totals(switch) for switch in self._names}
        for at, (name, text) in enumerate(PORT_COUNTERS.items()):
            yield _head(f"sopa_port_{name}", text, "counter", openmetrics)
            yield from self._lines(f"sopa_port_{name}_total", totals, _place(at))
        text = "Capacity of a port in each direction, in bytes per second."
        yield _head("sopa_port_speed_bytes", text, "gauge", openmetrics)
        yield from self._lines("sopa_port_speed_bytes", totals, self._speed)

    def _lines(
        self,
        name: str,
        totals: Mapping[Switch, Mapping[int, PortCounters]],
        value_of: Callable[[Switch, int, PortCounters], float | None],
    ) -> Iterator[str]:
        for switch, ports in totals.items():
            dp_name, level = self._names[switch]
            before = f'{name}{{dp_name="{dp_name}",level="{level}",port="'
            values = ((port, value_of(switch, port, counters)) for port, counters in ports.items())
            labels = {port: f',port_label="{_escaped(label)}"' for port, label in self.state.aliases.ports.get(dp_name, {}).items()}
            yield "".join(f'{before}{port}"{labels.get(port, "")}}} {value}\n' for port, value in values if value is not None)
            self._pause()

    def _speed(self, switch: Switch, port: int, _its: PortCounters) -> float | None:
        bits = self.meter.port_capacity(switch, port)
        return None if bits is None else bits / BITS


def _by_level(switches: Iterable[Switch]) -> dict[str, int]:
    counts = Counter(switch.level for switch in switches)
    return {level.name.lower(): counts[level] for level in Level}


def _setup_problems(metrics: ControllerMetrics) -> dict[str, int]:
    counts = Counter(problem["check"] for problem in metrics.state.setup["problems"])
    return {check: counts[check] for check in CHECKS}


def _switches_behind(metrics: ControllerMetrics) -> int:
    connected, version = metrics.state.connected, metrics.state.version
    return sum(session.version != version for switch, session in metrics.fleet.sessions.items() if switch in connected)


def _openflow_errors(metrics: ControllerMetrics) -> Counter[str]:
    errors: Counter[str] = Counter(dict.fromkeys(openflow.ERROR_LABELS, 0))
    for sent in metrics.fleet.sent.values():
        errors.update(sent.errors)
    return errors


def _failures(metrics: ControllerMetrics) -> Counter[tuple[str, str]]:
    counts = Counter({(kind, str(reason)): 0 for kind, reasons in FAILURE_KINDS.items() for reason in reasons})
    counts.update((each["kind"], each["reason"]) for each in metrics.state.failure_list())
    return counts


def _elements_failed(metrics: ControllerMetrics) -> dict[tuple[str, str, str, str], int]:
    """Return 1 for each failed element by kind, name, reason and cause: what was drained last, that it hides nothing."""
    causes = metrics.causes()
    listed = sorted(metrics.state.failure_list(), key=lambda each: each["reason"] == Reason.DRAINED)
    return {(each["kind"], each["name"], str(each["reason"]), causes.get(each["name"], "")): 1 for each in listed[:MAX_NAMED]}


def _state_bytes(metrics: ControllerMetrics) -> float:
    its = os.statvfs(metrics.directory)
    return 0 if its.f_flag & os.ST_RDONLY else its.f_bavail * its.f_frsize


def _turned_away(_metrics: ControllerMetrics) -> Counter[tuple[str, str]]:
    counts = Counter({(listener, reason): 0 for listener, reasons in TURNED_AWAY.items() for reason in reasons})
    counts.update(listeners.turned_away)
    return counts


def _lag_versions(metrics: ControllerMetrics) -> int:
    return max((metrics.state.version - session.acknowledged for session in metrics.behind() if session.acknowledged), default=0)


def _lag_seconds(metrics: ControllerMetrics) -> float:
    now = clock.now()
    since = min((at for session in metrics.behind() if (at := session.behind_since) is not None), default=now)
    return max(0.0, now - since)


def _about(health: Monitor) -> dict[str, Any]:
    return health.verdict.about if health.verdict is not None else {}


def _losses(health: Monitor) -> dict[tuple[str, str], float]:
    """Return the loss of links by name and direction: only of suspect ones, of which there are few."""
    directions = {True: "down", False: "up", None: "unknown"}
    return {(one.name, directions[one.down]): one.loss for one in health.suspects[:MAX_NAMED]}


_FABRIC: list[Row[ControllerMetrics]] = [
    Row("sopa_fabric", INFO, "The fabric's size and carrier.", lambda m: {"k": str(m.tree.k or ""), "carrier": m.carrier}),
    Row("sopa_fabric_version", GAUGE, "Version of the fabric: each change of the failures makes one.", lambda m: m.state.version),
    Row("sopa_fabric_settled", GAUGE, "Whether the controller reports failures yet (0 or 1).", lambda m: m.state.settled),
    Row("sopa_switches_verified", GAUGE, "Switches whose configuration was verified.", lambda m: m.state.setup["checked"]),
    Row("sopa_switch_setup_problems", GAUGE, "What is wrong with the switches' configuration.", _setup_problems, ("check",)),
    Row("sopa_bfd_enabled", GAUGE, "Whether BFD is on, which detects silent loss (0 or 1).", lambda m: m.state.bfd["enabled"]),
    Row("sopa_switches_connected", GAUGE, "Switches that are connected and have confirmed their rules.",
        lambda m: _by_level(m.state.connected), ("level",)),
    Row("sopa_switches_expected", GAUGE, "Switches of the plan.",
        lambda m: _by_level(m.tree.switches() if m.state.has_switches else ()), ("level",)),
    Row("sopa_switches_behind", GAUGE, "Connected switches without the rules of the current version.", _switches_behind),
    Row("sopa_switches_without_channel", GAUGE, "Switches without a channel that are presumed to forward.",
        lambda m: len(m.state.no_channel)),
    Row("sopa_management_faults", COUNTER, "Many channels lost together, and pauses of the controller.",
        lambda m: m.state.management.faults, ("kind",)),
    Row("sopa_second_connections", COUNTER, "Second connections of a datapath id, by which was kept.",
        lambda m: m.fleet.contests.decided, ("kept",)),
    Row("sopa_switch_certificates_refused", COUNTER, "Connections with another switch's certificate.",
        lambda m: m.fleet.rejections.misnamed),
    Row("sopa_deposed", GAUGE, "Whether another controller is the master of most switches (0 or 1).",
        lambda m: m.fleet.mastership.is_deposed),
    Row("sopa_undeliverable_packets", COUNTER, "Packets to the outside while nothing leads there.",
        lambda m: m.unreachable.outcomes, ("outcome",)),
]  # fmt: skip
_GATEWAYS: list[Row[FabricState]] = [
    Row("sopa_gateway_up", GAUGE, "Whether packets may go to a gateway (0 or 1).",
        lambda state: {each["name"]: each["away"] is None for each in state.gateways()}, ("gateway",)),
]  # fmt: skip
_SWITCHES: list[Row[ControllerMetrics]] = [
    Row("sopa_switches_rejected", GAUGE, "Ignored datapaths: the log and /sopa/v1/fabric have the reason.",
        lambda m: len(m.state.rejected)),
    Row("sopa_switch_up", GAUGE, "Whether a switch is connected and has confirmed its rules (0 or 1).",
        lambda m: m.by_switch(lambda switch: switch in m.state.connected) if m.state.has_switches else {}, _SWITCH),
    Row("sopa_switch_flow_mods", COUNTER, "Flow-mods sent to a switch.",
        lambda m: m.by_switch(lambda switch: m.sent(switch).flow_mods), _SWITCH),
    Row("sopa_switch_group_mods", COUNTER, "Group-mods sent to a switch.",
        lambda m: m.by_switch(lambda switch: m.sent(switch).group_mods), _SWITCH),
    Row("sopa_rules_mended", COUNTER, "Flow entries and groups that another program had changed, and that were put right.",
        lambda m: sum(sent.mended for sent in m.fleet.sent.values())),
    Row("sopa_openflow_errors", COUNTER, "OpenFlow error messages of switches, by type.", _openflow_errors, ("type",)),
    Row("sopa_switch_openflow_errors", COUNTER, "OpenFlow error messages of a switch.",
        lambda m: m.by_switch(lambda switch: sum(m.sent(switch).errors.values())), _SWITCH),
    Row("sopa_failures", GAUGE, "Failed and drained links and switches, by reason.", _failures, ("kind", "reason")),
    Row("sopa_element_failed", GAUGE,
        f"1 for each failed or drained link or switch, by name, with what explains it; at most {MAX_NAMED}.",
        _elements_failed, ("kind", "element", "reason", "cause")),
    Row("sopa_rejected_connections", COUNTER,
        "What was rejected before it was a request or a switch, by listener and reason or HTTP status.", _turned_away,
        ("listener", "reason")),
    Row("sopa_state_free_bytes", GAUGE,
        "Room of the file system that drains and events are written to; 0 if it is read-only.", _state_bytes),
    Row("sopa_hosts", GAUGE, "Hosts of the plan.", lambda m: m.tree.host_count),
    Row("sopa_agents_connected", GAUGE, "Connected agents.", lambda m: len(m.agents.sessions)),
    Row("sopa_agents_behind", GAUGE, "Connected agents that have not acknowledged the current version.", lambda m: len(m.behind())),
    Row("sopa_agents_lag_versions", GAUGE, "Largest number of versions by which an agent is behind.", _lag_versions),
    Row("sopa_agents_lag_seconds", GAUGE, "Longest time for which a version sent to an agent is unacknowledged.", _lag_seconds),
    Row("sopa_agent_claims_refused", COUNTER, "Rejected connections: of another host, or of a second agent.",
        lambda m: m.agents.refused["claims"]),
    Row("sopa_agent_messages_refused", COUNTER, "Rejected messages of agents: not of the protocol.",
        lambda m: m.agents.refused["messages"]),
]  # fmt: skip
_ARBITER: list[Row[ArbiterNotifier]] = [
    Row("sopa_arbiter_connected", GAUGE, "Whether an arbiter is connected (0 or 1).", lambda a: ARBITER in a.sessions),
    Row("sopa_arbiter_term", GAUGE, "Term of the last arbiter that was accepted; 0 before the first.", lambda a: a.term),
    Row("sopa_arbiter_claims_refused", COUNTER, "Rejected connections of a second arbiter.", lambda a: a.refused["claims"]),
    Row("sopa_arbiter_messages_refused", COUNTER, "Rejected messages of arbiters.", lambda a: a.refused["messages"]),
]  # fmt: skip
_HEALTH: list[Row[Monitor]] = [
    Row("sopa_probing_hosts", GAUGE, "Hosts whose agents probe paths and answer probes.", lambda h: len(h.lists.answering)),
    Row("sopa_estimator_running", GAUGE, "Whether reports of probes are being evaluated (0 or 1).",
        lambda h: h.verdict is not None),
    Row("sopa_estimator_restarts", COUNTER, "How often the process that evaluates reports has ended.", lambda h: h.restarts),
    Row("sopa_estimator_cpu_seconds", COUNTER, "Processor time of the process that evaluates reports.",
        lambda h: _about(h).get("cpu_seconds", 0.0)),
    Row("sopa_probe_streams", GAUGE, "Streams of probes that agents were given.",
        lambda h: _about(h).get("plan", {}).get("streams", 0)),
    Row("sopa_probe_reports", COUNTER, "Reports of probes that were taken, or dropped as too many.", lambda h: h.lists.counts,
        ("outcome",)),
    Row("sopa_probe_records_forged", COUNTER, "Records of reports that no agent can have made.", lambda h: h.forged),
    Row("sopa_suspect_links", GAUGE, "Links that lose packets by what probes say.",
        lambda h: len({one.name for one in h.suspects})),
    Row("sopa_link_loss_ratio", GAUGE, "Share of packets that a suspect link loses.", _losses, ("link", "direction")),
    Row("sopa_suspects_taken_out", COUNTER, "Suspect links that were drained.", lambda h: h.caretaker.taken),
]  # fmt: skip
_CLUSTER: list[Row[dict[str, Any]]] = [
    Row("sopa_cluster_leader", GAUGE, "Whether this member leads the cluster (0 or 1).", lambda r: r["leads"]),
    Row("sopa_cluster_has_leader", GAUGE, "Whether this member knows of a leader (0 or 1).", lambda r: r["leader"] is not None),
    Row("sopa_cluster_term", GAUGE, "Term of the last leader.", lambda r: r["term"]),
    Row("sopa_cluster_engine_reachable", GAUGE, "Whether the engine answers this member (0 or 1).",
        lambda r: r["engine"]["reachable"]),
    Row("sopa_cluster_members", GAUGE, "Members of the cluster, by role.",
        lambda r: {role: sum(member["role"] == role for member in r["members"]) for role in ROLES}, ("role",)),
    Row("sopa_cluster_member_up", GAUGE, "Whether a member is there: it was in the last hour (0 or 1).",
        lambda r: {one["name"]: one["role"] != "away" for one in r["members"]}, ("member",)),
    Row("sopa_cluster_member_lag_versions", GAUGE, "Versions that a member's view is behind the leader's.",
        lambda r: {one["name"]: one["lag"] for one in r["members"] if one["lag"] is not None}, ("member",)),
    Row("sopa_cluster_relays", GAUGE, "Relays of the cluster.", lambda r: len(r["relays"])),
    Row("sopa_cluster_relay_agents", GAUGE, "Agents connected to relays.", lambda r: sum(relay["agents"] for relay in r["relays"])),
    Row("sopa_cluster_relay_agents_waiting", GAUGE, "Agents that have not acknowledged their relay's view.",
        lambda r: sum(relay["waiting"] for relay in r["relays"])),
]  # fmt: skip
_TRAFFIC: list[Row[ControllerMetrics]] = [
    Row("sopa_uplink_imbalance_ratio", GAUGE,
        "Largest transmit rate of a switch's uplinks in use over their mean: 1 is even. No sample while they are idle.",
        lambda m: m.by_switch(lambda switch: m.meter.traffic.imbalance(switch, m.state.failures)), _SWITCH),
    Row("sopa_port_statistics_requests", COUNTER, "Requests for port statistics sent to switches.", lambda m: m.meter.asked),
    Row("sopa_port_statistics_unanswered", COUNTER, "Requests without an answer, or refused.", lambda m: m.meter.unanswered),
]  # fmt: skip


def of_cluster(cluster: ClusterControl) -> list[Metric]:
    """Return what a member tells of its cluster."""
    return families(_CLUSTER, [((), {"leads": cluster.is_leader, **cluster.report()})])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def _head(name: str, text: str, kind: str, openmetrics: bool) -> str:
    family = f"{name}_total" if kind == "counter" and not openmetrics else name
    return f"# HELP {family} {text}\n# TYPE {family} {kind}\n"
