"""The feed's message: the whole state of the fabric, bounded for every size of the fabric."""

from __future__ import annotations

import time
from functools import cached_property
from itertools import islice
from typing import Any

from sopa_ryu.fabric.wiring import MISSING
from sopa_ryu.rest.reader import FabricReader, for_page
from sopa_ryu.rest.troubles import LAG_SECONDS, troubles
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.library import hub
from topologies import Failures, Host, Level, Link, Reason, Switch
from topologies.cabling import ABSENT
from topologies.failures import DEAD
from topologies.identity import Node
from topologies.impact import groups

MAX_DRAWN_LINKS = 3072  # of a fat-tree with k=16
"""A larger fabric is summarized and drawn by pods."""
MAX_FEW_PODS = 3
"""A fabric that is too large for a drawing and has so few pods, such as a leaf-spine fabric, is also summarized by switches."""
MAX_SUMMARIZED_SWITCHES = 1024
MAX_LISTED = 200
WIRING_SECONDS = 5.0
SHOWN_AS: dict[str, str] = {Reason.DRAINED: "drained", Reason.MISWIRED: "miswired"}


class Picture:
    """The author of the feed's message, which has the same data as the REST interface."""

    def __init__(self, fabric: FabricReader) -> None:
        self._fabric = fabric
        self._state = fabric.state
        self._tree = fabric.state.tree
        self._wiring: dict[str, Any] = {}
        self._wiring_of: tuple[int, float] | None = None
        self._groups: tuple[Failures, list[str]] = Failures(self._tree), []

    @property
    def drawn(self) -> bool:
        """True if the fabric is small enough for the message to contain every link."""
        return self._tree.host_count + self._tree.switch_link_count <= MAX_DRAWN_LINKS

    def message(self) -> dict[str, Any]:
        """Return the current state: numbers, flags, and lists of bounded length, each with its ``..._total``.

        Up to k=16, ``links`` has ``[bits/s up, bits/s down, capacity or null]`` or null for each link, in the order of
        `Clos.links`, or is null if no link's traffic is known; ``agents.hosts`` has a digit for each host, 1 with an agent. Above,
        ``pods`` has a summary of each pod, and ``switch_summaries`` one of each switch if there are few pods. ``cluster`` says who
        leads, in a cluster, who is away and whether etcd answers; ``agents.relayed`` are those at relays. ``arbiter`` is that of
        ``GET /sopa/v1/fabric``, if there has been one. ``fabric`` has the numbers of the fabric and what its fabric file says of
        single links and hosts. ``names`` tells one content of ``GET /names`` from another.
        """
        state, tree, arbiter = self._state, self._tree, self._fabric.arbiter.report()
        # first what takes long and yields to other green threads: the rest of the message is then of one moment
        traffic: dict[str, Any] = {"links": self._links()} if self.drawn else self._summaries()
        now = clock.now()
        failures = state.failure_list(now)
        missing = [tree.name(switch) for switch in state.missing]
        no_channel = [tree.name(switch) for switch in state.no_channel]
        drains = sorted(state.drained)
        # everything drawn must be in the message: up to k=16 the failures are a bounded list
        most, most_switches = (len(failures), tree.switch_count) if self.drawn else (MAX_LISTED, MAX_LISTED)
        return {
            "at": time.time(),
            "version": state.version,
            "epoch": state.epoch,
            "settled": state.settled,
            "k": tree.k,
            "fabric": self._plan,
            "names": state.aliases.tag,
            "carrier": str(self._fabric.carrier),
            "bfd": state.bfd,
            "setup": state.setup,
            "switches": tree.switch_count,
            "connected": len(state.reached),
            **({} if state.has_switches else {"no_switches": True}),
            "missing": missing[:most_switches],
            "missing_total": len(missing),
            "no_channel": no_channel[:most_switches],
            "management": state.management.report(),
            "failures": failures[:most],
            "failures_total": len(failures),
            "groups": self._common(state.failures),
            "drains": drains[:MAX_LISTED],
            "drains_total": len(drains),
            "rejected": [{"dpid": f"{dpid:016x}", "reason": why} for dpid, why in sorted(state.rejected.items())[:MAX_LISTED]],
            "rejected_total": len(state.rejected),
            "wiring": self._wiring_report(now),
            "agents": self._agents(now),
            **({} if self._fabric.cluster is None else {"cluster": for_page(self._fabric.cluster)}),
            **({} if arbiter is None else {"arbiter": arbiter}),
            "health": self._health(),
            "troubles": troubles(self._fabric, now),
            **traffic,
        }

    @cached_property
    def _plan(self) -> dict[str, Any]:
        """The fabric's numbers, and what its file says of links and hosts: the first of each kind if the fabric is not drawn."""
        tree, document = self._tree, self._tree.document()
        links = document.get("links", {})
        absent = [name for name, rate in links.items() if rate == ABSENT]
        rates = {name: rate for name, rate in links.items() if rate != ABSENT}
        hosts = {key: document.get(key, []) for key in ("gateways", "no_label")}
        most = None if self.drawn else MAX_LISTED
        return {
            "pods": tree.pods,
            "edges": tree.edges,
            "aggregations": tree.aggregations,
            "cores": tree.cores,
            "hosts_per_edge": tree.hosts_per_edge,
            **tree.described6,
            "mbit": document.get("mbit", {}),
            "absent": absent[:most],
            "absent_total": len(absent),
            "rates": dict(islice(rates.items(), most)),
            "rates_total": len(rates),
            **{key: names[:most] for key, names in hosts.items()},
            **{f"{key}_total": len(names) for key, names in hosts.items()},
        }

    def _wiring_report(self, now: float) -> dict[str, Any]:
        """Return ``GET /sopa/v1/wiring`` without failed links; made again only after a change or some seconds, as it takes long."""
        made = self._wiring_of
        if made is None or made[0] != self._state.version or now - made[1] > WIRING_SECONDS:
            self._wiring_of = self._state.version, now
            report = self._fabric.wiring_report()
            # a link that is missing because a cable or switch failed is among the failures
            problems = [
                problem for problem in report["problems"] if problem["kind"] != MISSING or not self._has_failed(problem["link"])
            ]
            self._wiring = {
                "right": report["right"],
                "unchecked": report["unchecked"],
                "links": report["links"],
                "problems": problems[:MAX_LISTED],
                "problems_total": len(problems),
            }
        return self._wiring

    def _has_failed(self, name: str) -> bool:
        """Return whether a link carries nothing, or a switch at one of its ends is not connected."""
        if self._state.failures.get(name) in DEAD:
            return True
        return any(end not in self._state.reached for end in self._tree.link_by_name(name))

    def _common(self, failures: Failures) -> list[str]:
        """Return the switches that failed links have in common, as ``GET /sopa/v1/failures`` does; made once for a version."""
        if self._groups[0] is not failures:
            self._groups = failures, [group.switch for group in groups(failures)[:MAX_LISTED]]
        return self._groups[1]

    def _health(self) -> dict[str, Any]:
        """Return suspect links in words, and in a fabric that is drawn loss upwards, loss downwards and delay of each link."""
        monitor = self._fabric.health
        suspects = [
            {"name": one.name, "text": f"{one.loss:.2%} lost {one.direction}, by {one.hosts} hosts"} for one in monitor.suspects
        ]
        links = monitor.measured() if self.drawn else None
        return {"suspects": suspects[:MAX_LISTED], "suspects_total": len(suspects), "links": links}

    def _agents(self, now: float) -> dict[str, Any]:
        connected, version = self._fabric.agents, self._state.version
        behind = [host for host, agent in connected.sessions.items() if agent.acknowledged != version]
        since = sorted((at, host) for host in behind if (at := connected.sessions[host].behind_since) is not None)
        late = [host for at, host in since if now - at > LAG_SECONDS]
        agents: dict[str, Any] = {
            "connected": len(connected.sessions),
            "behind": len(behind),
            "lagging": [connected.tell(host, version, now) for host in late[:MAX_LISTED]],
            "lagging_total": len(late),
        }
        if self._fabric.cluster is not None:
            agents["relayed"] = sum(relay["agents"] for relay in self._fabric.cluster.report()["relays"])
        if self.drawn:
            agents["hosts"] = "".join("1" if connected.has_agent(host) else "0" for host in self._tree.hosts())
        return agents

    # -- traffic ------------------------------------------------------------------------------------------------------

    @cached_property
    def _all_links(self) -> list[Link]:
        return list(self._tree.links())

    def _links(self) -> list[list[float | None] | None] | None:
        links = [self._traffic(link) for link in self._all_links]
        return links if any(links) else None

    def _traffic(self, link: Link) -> list[float | None] | None:
        rates = self._fabric.link_rates(link)
        if rates is None:
            return None
        capacity = self._fabric.link_capacity(link)
        return [round(rates[0]), round(rates[1]), None if capacity is None else round(capacity)]

    def _summaries(self) -> dict[str, Any]:
        """Summarize each pod, and each switch if there are few pods: its failures, and the utilisation of its busiest link.

        A pod's links to the core are its own; a link between two switches counts for both.
        """
        tree, failures = self._tree, self._state.failures
        few = tree.pods <= MAX_FEW_PODS and tree.switch_count <= MAX_SUMMARIZED_SWITCHES
        pods = [_summary() for _ in range(tree.pods)]
        switches: dict[Node, dict[str, Any]] = {switch: _summary() for switch in tree.switches()} if few else {}
        for pod, summary in enumerate(pods):
            used = [
                (use, link)
                for level in (Level.EDGE, Level.AGGREGATION)
                for switch in tree.switches_of(level, pod)
                for link in tree.links_above(switch)
                if (use := self._use(link)) is not None
            ]
            summary["peak"] = max((use for use, _ in used), default=None)
            for use, link in used if few else ():
                for end in link:
                    its = switches[end]
                    its["peak"] = max(use, its["peak"] or 0.0)
            hub.sleep(0)  # yield: there may be tens of thousands of links
        for element, name in failures.elements.items():
            shown = SHOWN_AS.get(failures[name], "failed")
            lowest = element.lower if isinstance(element, Link) else element
            if isinstance(lowest, Host) or lowest.level is not Level.CORE:
                pods[lowest.pod][shown] += 1
            for end in element if isinstance(element, Link) else (element,):
                if isinstance(end, Switch) and few:  # as tuples, a host may equal a switch
                    switches[end][shown] += 1
        named = [{"name": tree.name(switch), **its} for switch, its in switches.items()]
        return {"pods": pods, "switch_summaries": named} if few else {"pods": pods}

    def _use(self, link: Link) -> float | None:
        rates, capacity = self._fabric.link_rates(link), self._fabric.link_capacity(link)
        return round(max(rates) / capacity, 3) if rates is not None and capacity else None


def _summary() -> dict[str, Any]:
    return {"failed": 0, "drained": 0, "miswired": 0, "peak": None}
