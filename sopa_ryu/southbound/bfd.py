"""Configuration of BFD on the links between switches, through the switches' databases.

It needs no Ryu. Enabling BFD interrupts a link for about a second: its ports are not LIVE until both ends have exchanged
packets, so that fast failover and hashing avoid it, while a plain output still sends. Hence `rollout`, which enables it on one
uplink index after the other.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topologies.ovsdb import OvsdbError, elements, entries, mapping, transact
from topologies.structure import FatTree, Host, Switch, TopologyError

_KEYS = ("enable", "min_tx", "min_rx")


class End(NamedTuple):
    """One end of a link between switches: its row in a database, and whether BFD is enabled there."""

    address: str
    uuid: str
    switch: Switch
    neighbour: Switch
    enabled: bool

    @property
    def uplink(self) -> int:
        """The uplink index of the link, which is the index of its upper end."""
        return max(self.switch, self.neighbour).index


@dataclass
class Report:
    """The outcome of `enable`.

    Attributes
    ----------
    switches : set of Switch
        The switches found in the databases.
    had : int
        The number of requested ends of links on which BFD was enabled already; they are unchanged.
    enabled : int
        The number of ends on which it was enabled.
    single : list of End
        Ends without BFD because their other end was not found: a link with BFD at one end only is down.
    problems : dict of str to str
        From the address of a database that failed to its error. If it failed at the second request, links to its switches may
        have BFD at their other ends only: call again.
    """

    switches: set[Switch] = field(default_factory=set)
    had: int = 0
    enabled: int = 0
    single: list[End] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def enable(
    addresses: Iterable[str],
    tree: FatTree,
    interval_ms: int,
    dpids: Collection[int] | None = None,
    uplink: int | None = None,
    timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> Report:
    """Enable BFD at both ends of the links between a fat-tree's switches where it is not enabled.

    Bridges are identified by their datapath ids, ports by their OpenFlow numbers. A database that fails does not affect the others.

    Parameters
    ----------
    addresses : iterable of str
        The switches' databases, such as ``tcp:192.0.2.1:6640``; one may contain several switches.
    tree : FatTree
    interval_ms : int
        The transmit interval in ms; three missing packets take the link down.
    dpids : collection of int, optional
        Restricts it to links between these switches.
    uplink : int, optional
        Restricts it to links of this uplink index: ``up1`` between edge and aggregation, ``up2`` between aggregation and core.
    timeout : float
        Seconds for each request to a database.
    tls : SSLContext, optional
        For ``ssl:`` addresses, see `topologies.ovsdb.transact`.

    Returns
    -------
    Report
    """
    report = Report()
    ends: list[End] = []
    for address in dict.fromkeys(addresses):
        try:
            rows = _rows(address, timeout, tls)
        except OvsdbError as error:
            report.problems[address] = str(error)
            continue
        for switch, ports in _bridges(rows, tree):
            if dpids is None or tree.dpid(switch) in dpids:
                report.switches.add(switch)
                ends += _ends(address, tree, switch, ports)
    wanted = [end for end in ends if uplink in (None, end.uplink)]
    there = {(end.switch, end.neighbour) for end in wanted}
    report.had = sum(end.enabled for end in wanted)
    report.single = [end for end in wanted if not end.enabled and (end.neighbour, end.switch) not in there]
    todo = [end for end in wanted if not end.enabled and (end.neighbour, end.switch) in there]
    for address in dict.fromkeys(end.address for end in todo):
        operations = [_switch_on(end.uuid, interval_ms) for end in todo if end.address == address]
        try:
            report.enabled += sum(result["count"] for result in transact(address, operations, timeout, tls))
        except OvsdbError as error:
            report.problems[address] = str(error)
    return report


def rollout(
    addresses: Collection[str],
    tree: FatTree,
    interval_ms: int,
    dpids: Collection[int] | None = None,
    timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Report]:
    """Enable BFD on one uplink index after the other, so that every switch always has other live uplinks.

    Each step is one `enable`, made when the iterator is advanced. The caller waits between steps until every port that was LIVE
    is LIVE again, about a second; if ports stay down, it must not continue, or the next uplinks would go down too.
    """
    for uplink in range(tree.half):
        yield enable(addresses, tree, interval_ms, dpids, uplink, timeout, tls)


def _rows(address: str, timeout: float, tls: ssl.SSLContext | None) -> list[list[dict[str, Any]]]:
    """Return every bridge, port and interface of a database."""
    columns = {
        "Bridge": ["datapath_id", "ports"],
        "Port": ["_uuid", "interfaces"],
        "Interface": ["_uuid", "ofport", "bfd"],
    }
    operations = [{"op": "select", "table": name, "where": [], "columns": wanted} for name, wanted in columns.items()]
    return [result["rows"] for result in transact(address, operations, timeout, tls)]


def _bridges(rows: list[list[dict[str, Any]]], tree: FatTree) -> Iterator[tuple[Switch, dict[int, dict[str, Any]]]]:
    """Yield the bridges that are switches of the fat-tree, with their interfaces by OpenFlow port."""
    bridges, ports, interfaces = rows
    of_port = {port["_uuid"][1]: elements(port["interfaces"]) for port in ports}
    by_uuid = {interface["_uuid"][1]: interface for interface in interfaces}
    for bridge in bridges:
        try:
            switch = tree.switch_by_dpid(int(elements(bridge["datapath_id"])[0], 16))
        except (IndexError, TopologyError):  # no datapath yet, or a bridge of another network
            continue
        found = [by_uuid[uuid] for _, port in elements(bridge["ports"]) for _, uuid in of_port[port]]
        yield switch, {number: interface for interface in found for number in elements(interface["ofport"])}


def _ends(address: str, tree: FatTree, switch: Switch, ports: dict[int, dict[str, Any]]) -> Iterator[End]:
    for number, neighbour in tree.ports(switch).items():
        if number in ports and not isinstance(neighbour, Host):
            interface = ports[number]
            enabled = entries(interface["bfd"]).get("enable", "").lower() == "true"
            yield End(address, interface["_uuid"][1], switch, neighbour, enabled)


def _switch_on(uuid: str, interval_ms: int) -> dict[str, Any]:
    """Return the operation that enables BFD on an interface and keeps its other BFD settings."""
    settings = mapping(dict(zip(_KEYS, ("true", str(interval_ms), str(interval_ms)), strict=True)))
    return {
        "op": "mutate",
        "table": "Interface",
        "where": [["_uuid", "==", ["uuid", uuid]], ["bfd", "excludes", mapping({"enable": "true"})]],
        "mutations": [["bfd", "delete", ["set", list(_KEYS)]], ["bfd", "insert", settings]],
    }
