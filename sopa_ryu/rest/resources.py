"""The answers of the REST interface's resources: plain dictionaries, made from the controller's state."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from math import isinf
from pathlib import Path
from typing import Any

import greenlet

from flowrules import label
from sopa_ryu.agent.paths.flow_hash import FlowKey, flow_hash, round_robin
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.events.event import Event, EventKind, told
from sopa_ryu.events.store import MAX_PAGE, Query, StoreError
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.state_directory import StateError
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.rest.operations import MAX_ITEMS, Listing, Problem
from sopa_ryu.rest.reader import ALONE, ClusterControl, FabricControl, UndecidedError, in_short, undecided
from sopa_ryu.rest.schemas import HOST_PATTERN
from sopa_ryu.rest.troubles import troubles
from sopa_ryu.runtime import clock
from topologies import Failures, Host, Link, Reason, Switch, TopologyError
from topologies.cabling import NO_PREFIX6
from topologies.identity import IPV4, Family
from topologies.impact import groups, left
from topologies.srv6 import usid_list
from topologies.way_out import away, gateways_from, is_outside
from topologies.weights import sequence, weights_of

TCP = 6
WEIGHT_DIGITS = 9
_option = lru_cache(maxsize=1 << 16)(label.option)


def a_host(text: str) -> str:
    """Return a text that names a host, by address or own name; `ValueError` for any other."""
    if not re.fullmatch(HOST_PATTERN[1:-1], text):
        example = "IPv6 address or name, as in fd53:4f50:4100::2" if ":" in text else "IPv4 address or name, as in 10.0.0.2"
        raise ValueError(f"write a host's {example} or h0_0_2")
    return text


def paths_outside(
    failures: Failures, source: Host, destination: IPv4Address | IPv6Address, paths_to: Callable[[Host], dict[str, Any]]
) -> dict[str, Any]:
    """Return the candidate paths from a host that is no gateway to an address outside.

    ``paths_to`` returns the answer for a gateway as the destination, of the same family. The answer is as for a host, with the name
    of the gateway in each path. Paths to gateways that are away are excluded for that.
    """
    tree = failures.tree
    in_use = gateways_from(failures, tree.edge_of(source))
    candidates: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    body: dict[str, Any] = {}
    for gateway in tree.gateways:
        body = paths_to(gateway)
        name, why = tree.name(gateway), away(failures, gateway) or "no path to it"
        if gateway in in_use:
            candidates += ({**path, "gateway": name} for path in body["candidates"])
        else:
            excluded += ({"up": path["up"], "reason": why, "gateway": name} for path in body["candidates"])
        excluded += ({**path, "gateway": name} for path in body["excluded"])
    weighed = sum(path.get("weight", 0) for path in candidates)
    for path in candidates:
        if "weight" in path:  # gateways have equal shares of all flows
            path["weight"] = round(path["weight"] / weighed, 9)
    return {
        **body,
        "dst": str(destination),
        "kind": "outside",
        "total": len(candidates) + len(excluded),
        "candidates": candidates,
        "excluded": excluded,
    }


def packets_of(
    failures: Failures, source: Host, key: FlowKey, seed: int, packets: int, candidates: list[dict[str, Any]]
) -> list[int]:
    """Return for each packet of a flow that an agent labels round-robin the index of its path; none if it has no gateway."""
    tree = failures.tree
    table = path_table(tree, source, failures, seed, Policy.ROUND_ROBIN)
    way = table.way_out(key)
    if way is None:
        return []
    gateway = tree.name(tree.host_by_mac(way.mac.hex(":")))
    index = {tuple(path["up"]): at for at, path in enumerate(candidates) if path["gateway"] == gateway}
    labels = (table.choose(key, n) for n in range(packets))
    return [index[tuple(hop for hop in label if hop != 0xFF)] for label in labels if label is not None]


def _left(failures: Failures) -> dict[str, Any]:
    its = left(failures)
    ratios = {level: (None if isinf(ratio) else round(ratio, 3), switch) for level, (ratio, switch) in its.oversubscription.items()}
    return {
        "pairs_without_path": its.pairs,
        "cut_off": its.cut_off,
        "fewest_paths": its.fewest,
        "bisection": its.mbit,
        "oversubscription": {level: {"ratio": ratio, "switch": switch} for level, (ratio, switch) in ratios.items()},
    }


class Resources:
    """The answers, one method for each operation; `Problem` if there is none."""

    def __init__(self, fabric: FabricControl) -> None:
        self._fabric = fabric
        self.state = fabric.state
        self.tree = fabric.state.tree

    # -- the whole fabric ---------------------------------------------------------------------------------------------

    def fabric(self) -> dict[str, Any]:
        """Return size, connected switches, version and failures."""
        body = self.state.fabric()
        failures, arbiter = body["failures"], self._fabric.arbiter.report()
        return {
            **body,
            **({} if arbiter is None else {"arbiter": arbiter}),
            **({} if self._fabric.cluster is None else {"cluster": in_short(self._fabric.cluster)}),
            "carrier": str(self._fabric.carrier),
            "troubles": troubles(self._fabric, clock.now()),
            "failures": failures[:MAX_ITEMS],
            "failures_total": len(failures),
        }

    def switches(self) -> Listing:
        """List all switches of the plan."""
        sessions = self._fabric.switch_sessions()

        def describe(switch: Switch) -> dict[str, Any]:
            address, version = sessions.get(switch, (None, None))
            name = self.tree.name(switch)
            return {
                "name": name,
                "level": switch.level.name.lower(),
                "dpid": f"{self.tree.dpid(switch):016x}",
                "connected": switch in self.state.reached,
                "rules_version": version,
                "failure": self.state.failures.get(name),
                "address": address,
                **self.state.aliases.beside(name),
            }

        return self._listing("switches", self.tree.switch_count, self.tree.switches(), describe)

    def links(self) -> Listing:
        """List all links of the plan, the hosts' first."""

        def describe(link: Link) -> dict[str, Any]:
            rates = self._fabric.link_rates(link)
            name = self.tree.name(link)
            lower = None if isinstance(link.lower, Host) else self.tree.port(link.lower, link.upper)
            return {
                "name": name,
                "lower": {"name": self.tree.name(link.lower), "port": lower},
                "upper": {"name": self.tree.name(link.upper), "port": self.tree.port(link.upper, link.lower)},
                "failure": self.state.failures.get(name),
                "up_bits_per_second": rates and rates[0],
                "down_bits_per_second": rates and rates[1],
                "capacity_bits_per_second": self._fabric.link_capacity(link),
                **self.state.aliases.beside(name),
            }

        return self._listing("links", self.tree.host_count + self.tree.switch_link_count, self.tree.links(), describe)

    def hosts(self) -> Listing:
        """List all hosts of the plan."""

        def describe(host: Host) -> dict[str, Any]:
            edge, name = self.tree.edge_of(host), self.tree.name(host)
            return {
                "name": name,
                "address": str(self.tree.ip(host)),
                **({"address6": str(self.tree.ip6(host))} if self.tree.ip6(host) else {}),
                "mac": self.tree.mac(host),
                "switch": self.tree.name(edge),
                "port": self.tree.port(edge, host),
                "agent": self._fabric.agents.has_agent(host),
                **({"gateway": True} if host in self.tree.gateways else {}),
                **self.state.aliases.beside(name),
            }

        return self._listing("hosts", self.tree.host_count, self.tree.hosts(), describe)

    def names(self) -> Listing:
        """List what operators call switches and hosts, their racks, and the labels of ports."""
        return self._list("names", self.state.aliases.listed())

    # -- what has happened --------------------------------------------------------------------------------------------

    def failures(self) -> Listing:
        """List failed and drained elements, with the remaining hold-down of restored ones in seconds."""
        found, beside = [group._asdict() for group in groups(self.state.failures)], self.state.aliases.beside
        failed = [each | beside(each["name"]) for each in self.state.failure_list(clock.now())]
        return self._list("failures", failed, groups=found)

    def impact(self, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return what the fabric is left with now, and what if more were drained."""
        state, agents = self.state, self._fabric.agents
        version, now, more = state.version, state.failures, self._failures(without)
        planned, *found = self._fabric.aside(lambda: [_left(failures) for failures in (Failures(self.tree), now, more)])
        return {
            "version": version,
            "without": list(without),
            "planned": planned,
            "now": found[0],
            "left": found[1],
            "in_mbit": self.tree.in_mbit,
            "hosts_without_agent": sum(not agents.has_agent(host) for host in self.tree.hosts()),
        }

    def _failures(self, without: tuple[str, ...]) -> Failures:
        """Return what has failed, and these elements as if they were drained."""
        failures = self.state.failures
        try:
            more = {name: Reason.DRAINED for name in without if self.tree.element(name) and name not in failures}
        except TopologyError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"without: {error}") from error
        return Failures(self.tree, {**failures, **more}) if more else failures

    def changes(self) -> Listing:
        """List the last versions, the latest first."""
        return self._list("changes", self.state.change_list(), epoch=self.state.epoch)

    def events(self, since: float = 0.0, element: str | None = None, after: int = 0, limit: int = MAX_PAGE) -> dict[str, Any]:
        """List what has happened, the oldest first."""
        try:
            found = self._fabric.find_events(Query(since, element, after, limit))
        except StoreError as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        return {
            "version": self.state.version,
            **({} if self._fabric.cluster is None else {"cluster": in_short(self._fabric.cluster)}),
            "events": [told(number, event, self.state.aliases) for number, event in found.events],
            "last": found.last,
            "more": found.more,
        }

    def wiring(self) -> Listing:
        """List the links whose cabling differs from the plan or is not confirmed."""
        report = self._fabric.wiring_report()
        return self._list("problems", report.pop("problems"), **report)

    def agents(self) -> Listing:
        """List the connected agents, with their versions and lag; in a cluster, the relays with the number of theirs."""
        agents, version, cluster = self._fabric.agents, self.state.version, self._fabric.cluster
        body = {
            "version": version,
            "epoch": self.state.epoch,
            "behind": len(agents.behind(version)),
            "refused": dict(agents.refused),
            **({} if cluster is None else {"relays": cluster.report()["relays"]}),
        }
        now, hosts, beside = clock.now(), sorted(agents.sessions), self.state.aliases.beside
        return Listing(
            body, "agents", len(hosts), hosts, lambda host: agents.tell(host, version, now) | beside(self.tree.name(host))
        )

    def health(self, suspects: int = 0) -> Listing:
        """List the links between switches with what probes say of them: loss, delay, and whether they are suspect."""
        monitor = self._fabric.health
        links = monitor.links(only_suspects=bool(suspects))
        return Listing({"version": self.state.version, **monitor.report()}, "links", len(links), links, monitor.describe)

    def process(self) -> dict[str, Any]:
        """Return memory (resident), open files and green threads that have not ended, to diagnose leaks.

        It examines every object: some 10 ms, and 0.1 s with thousands of agents.
        """
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        gc.unfreeze()  # include the objects that a `Freezer` has frozen
        # isinstance would ask a weak proxy for its class, which fails if its object is gone
        greenlets = sum(1 for each in gc.get_objects() if issubclass(type(each), greenlet.greenlet) and not each.dead)
        gc.freeze()
        return {
            "pid": os.getpid(),
            "memory_mib": round(int(fields["VmRSS"].split()[0]) / 1024, 1),
            "open_files": len(os.listdir("/proc/self/fd")),
            "greenlets": greenlets,
        }

    def rules(self, name: str) -> dict[str, Any]:
        """Return the intended and the installed rules of a switch."""
        try:
            switch = self.tree.switch(name)
        except TopologyError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"{name} is not a switch of this fabric, such as e0_0: {error}") from error
        try:
            return self._fabric.switch_rules(switch)
        except SwitchError as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"the rules of {name} cannot be read: {error}") from error

    # -- the cluster --------------------------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """Return the members of the cluster, its relays, and whether the engine answers."""
        return self._cluster().report()

    def step_down(self, actor: str) -> dict[str, Any]:
        """Give up the leadership; return the cluster."""
        cluster_control = self._cluster()
        try:
            cluster_control.step_down()
        except UndecidedError as error:
            raise undecided(str(error)) from error
        self.state.note((Event(time.time(), EventKind.LEADER, cause=f"asked to step down by {actor}", actor=actor),))
        return cluster_control.report()

    def _cluster(self) -> ClusterControl:
        if self._fabric.cluster is None:
            raise Problem(HTTPStatus.NOT_FOUND, ALONE)
        return self._fabric.cluster

    # -- drains -------------------------------------------------------------------------------------------------------

    def drains(self) -> Listing:
        """List the drained links and switches."""
        known = {name: drain.report() for name, drain in sorted(self.state.drains.items())[:MAX_ITEMS]}
        return self._list("drains", sorted(self.state.drained), details=known)

    def put_drain(self, name: str, actor: str, reason: str = "", until: float | None = None) -> dict[str, Any]:
        """Drain a link or switch; return all drains."""
        now = time.time()
        if until is not None and until <= now:
            raise Problem(HTTPStatus.CONFLICT, f"until={until:.0f} is over by the controller's clock")
        return self._change_drain(name, Drain(round(now, 3), actor, reason, until), actor)

    def delete_drain(self, name: str, actor: str) -> dict[str, Any]:
        """Restore a link or switch; return all drains."""
        return self._change_drain(name, None, actor)

    def _change_drain(self, name: str, drain: Drain | None, actor: str) -> dict[str, Any]:
        try:
            self._fabric.set_drained(name, drain, actor)
        except TopologyError as error:
            raise Problem(
                HTTPStatus.NOT_FOUND, f"{name} is not a link or switch of this fabric, such as a0_0-c0_1 or c0_1: {error}"
            ) from error
        except ValueError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error
        except StateError as error:
            raise Problem(HTTPStatus.INSUFFICIENT_STORAGE, f"nothing has changed: {error}") from error
        except UndecidedError as error:
            raise undecided(f"nothing has changed: {error}") from error
        return self.drains().page(0, MAX_ITEMS)

    # -- paths --------------------------------------------------------------------------------------------------------

    def paths(
        self,
        src: str,
        dst: str,
        packets: int | None = None,
        protocol: int = TCP,
        sport: int | None = None,
        dport: int | None = None,
        seed: int = 1,
        without: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the candidate paths between two hosts, and the excluded ones."""
        family = self.family(src, dst)
        leaving = self._outside(dst, family)
        if leaving is not None:
            flow = family, packets, protocol, sport, dport, seed
            return self._paths_outside(self.host("src", src), leaving, *flow, without)
        source, destination = self.host("src", src), self.host("dst", dst)
        failures = self._failures(without) if without else self.state.failures
        usable, excluded = failures.split(source, destination)
        choices = tuple(path.up for path in usable)
        weights = weights_of(failures, source, destination, choices)
        rounded = {weight: round(weight, WEIGHT_DIGITS) for weight in set(weights)}
        candidates = [
            {"up": path.up, "option": _option(path.up), "hops": path.hops, "weight": rounded[weight]}
            for path, weight in zip(usable, weights, strict=True)
        ]
        if self.tree.srv6 and choices[:1] != ((),):
            racks = self.tree.edge_of(source), self.tree.edge_of(destination)
            for path, up in zip(candidates, choices, strict=True):
                path["usids"] = str(usid_list(self.tree, *racks, up))
        body = {
            "src": str(family.address(source)),
            "dst": str(family.address(destination)),
            "kind": self.tree.kind(source, destination),
            "version": self.state.version,
            "total": len(usable) + len(excluded),
            "candidates": candidates,
            "excluded": [{"up": path.up, "reason": path.reason} for path in excluded],
        }
        if packets is not None:
            start = 0
            if sport is not None or dport is not None:
                ends = family.address(source), family.address(destination)
                key = FlowKey.of(*ends, protocol, sport or 0, dport or 0, self.tree.prefix6)
                start = flow_hash(key, seed)
            places = {up: place for place, up in enumerate(choices)}
            order = [places[up] for up in sequence(choices, weights)]
            body["packets"] = [order[round_robin(start, n, len(order))] for n in range(packets)] if order else []
        return body

    def family(self, src: str, dst: str) -> Family:
        """Return the family of two ends: that of the addresses among them, IPv4 of names; `Problem` (404) without one."""
        version = {name: 6 if ":" in text else 4 for name, text in (("src", src), ("dst", dst)) if not text.startswith("h")}
        if len({*version.values()}) > 1:
            raise Problem(HTTPStatus.NOT_FOUND, "src and dst are of two families: write two addresses of IPv4, or two of IPv6")
        if 6 not in version.values():
            return IPV4
        if len(self.tree.families) == 1:
            raise Problem(HTTPStatus.NOT_FOUND, f"{next(iter(version))}: {NO_PREFIX6}")
        return self.tree.families[1]

    def _outside(self, text: str, family: Family) -> IPv4Address | IPv6Address | None:
        """Return the address outside the fabric that packets leave it for by a gateway; None for any other text."""
        try:
            address = ip_address(text)
        except ValueError:
            return None
        return address if self.tree.gateways and is_outside(address, family) else None

    def _paths_outside(
        self,
        source: Host,
        destination: IPv4Address | IPv6Address,
        family: Family,
        packets: int | None,
        protocol: int,
        sport: int | None,
        dport: int | None,
        seed: int,
        without: tuple[str, ...],
    ) -> dict[str, Any]:
        if source in self.tree.gateways:
            problem = f"src: {self.tree.name(source)} is a gateway: what it sends to the outside does not enter the fabric"
            raise Problem(HTTPStatus.NOT_FOUND, problem)
        failures, own = self._failures(without), str(family.address(source))

        def paths_to(gateway: Host) -> dict[str, Any]:
            return self.paths(own, str(family.address(gateway)), without=without)

        body = paths_outside(failures, source, destination, paths_to)
        if packets is not None:
            key = FlowKey.of(family.address(source), destination, protocol, sport or 0, dport or 0, self.tree.prefix6)
            body["packets"] = packets_of(failures, source, key, seed, packets, body["candidates"])
        return body

    def host(self, name: str, text: str) -> Host:
        """Return the host that ``text``, the value of parameter ``name``, names by address or by name."""
        try:
            return self.tree.host_called(text)
        except AddressValueError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name}={text} is no address: {error}") from error
        except TopologyError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"{name}: {error}") from error

    # -- lists --------------------------------------------------------------------------------------------------------

    def _list(self, key: str, items: list[Any], **more: Any) -> Listing:
        return Listing({"version": self.state.version, **more}, key, len(items), items)

    def _listing(self, key: str, total: int, items: Any, describe: Callable[[Any], Any]) -> Listing:
        return Listing({"version": self.state.version}, key, total, items, describe)
