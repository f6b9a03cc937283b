"""Configuration of BFD between switches, and between edge switches and gateways, through the switches' databases.

It needs no Ryu. BFD packets are sent to an Ethernet address of the fabric's own (`BFD_MAC`), and only such are taken for BFD: the
edge switches let no host's packet for that address in, so that no host can forge one (flowrules/host_ports.py). A link that has
BFD already gets the address without an interruption: first both ends send to it, then both require it.

Enabling BFD interrupts a link for about a second: its ports are not LIVE until both ends have exchanged
packets, so that fast failover and hashing avoid it, while a plain output still sends. Hence `rollout`, which enables it on one
uplink index after the other, and leaves the last live uplink of a switch for later.

A gateway that answers BFD is away as soon as it falls silent, though its port is up. Enabling it at a switch's port to a
host that does not answer costs nothing: such a port is not LIVE, but packets to hosts are sent by plain outputs, which do
not ask for that. So it is enabled at the port of every gateway, and counts where it has been up. The packets are those of
RFC 5881 with the addresses of the rack's gateway address and of the host, so that any BFD daemon on the host can answer: in
FRR ``bfd`` / ``peer 10.0.1.1 local-address 10.0.1.2 interface eth1``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sopa_ryu.southbound.databases import Databases
from sopa_ryu.southbound.switch_database import Row, dpid, ports_of
from topologies import ovsdb
from topologies.ovsdb import Kind, OvsdbError, Tls, by_uuid, entries, integer, mapping, optional, set_of, uuid
from topologies.structure import BFD_MAC, GATEWAY_MAC, Clos, Host, Level, Switch, TopologyError

_COLUMNS: dict[str, dict[str, Kind]] = {
    "Bridge": {"datapath_id": optional(dpid), "ports": set_of(uuid)},
    "Port": {"_uuid": uuid, "interfaces": set_of(uuid)},
    "Interface": {"_uuid": uuid, "ofport": optional(integer), "bfd": entries, "bfd_status": entries},
}

SENDS_TO, REQUIRES = "bfd_local_dst_mac", "bfd_remote_dst_mac"
UP, ADMIN_DOWN = "up", "admin_down"
TIMEOUT_SECONDS = 5.0
"""For each request to a database."""


class End(NamedTuple):
    """One end of a link between switches: its row in a database, and its settings of BFD."""

    address: str
    uuid: str
    switch: Switch
    neighbour: Switch
    settings: dict[str, str]

    @property
    def enabled(self) -> bool:
        """Whether BFD is enabled there."""
        return self.settings.get("enable", "").lower() == "true"

    def has_address(self, key: str) -> bool:
        """Tell whether it sends to the fabric's address (`SENDS_TO`), or requires it (`REQUIRES`)."""
        return self.settings.get(key, "").lower() == BFD_MAC

    @property
    def uplink(self) -> int:
        """The uplink index of the link, which is the index of its upper end."""
        return max(self.switch, self.neighbour).index

    @property
    def lower(self) -> Switch:
        """The switch of whose uplinks it is one."""
        return min(self.switch, self.neighbour)


@dataclass
class BfdReport:
    """The outcome of `enable`."""

    switches: set[Switch] = field(default_factory=set)
    had: int = 0
    """The number of requested ends of links on which BFD was enabled already; their intervals are unchanged."""
    enabled: int = 0
    addressed: int = 0
    """The number of ends that had BFD already, and now require the fabric's address."""
    single: list[End] = field(default_factory=list)
    """Ends without BFD because their other end was not found: a link with BFD at one end only is down."""
    postponed: list[End] = field(default_factory=list)
    """Ends without BFD because the switch below has no other live uplink now."""
    problems: dict[str, str] = field(default_factory=dict)
    """From the address of a database that failed to its error. If it failed at the second request, links to its switches may have
    BFD at their other ends only: call again."""


def enable(
    databases: Databases,
    tree: Clos,
    interval_ms: int,
    uplink: int | None = None,
    tls: Tls | None = None,
    *,
    change: bool = True,
    is_last: Callable[[Switch, int], bool] = lambda _switch, _uplink: False,
) -> BfdReport:
    """Enable BFD at both ends of the links between a fat-tree's switches where it is not enabled, with the fabric's address.

    Bridges are identified by their datapath ids, ports by their OpenFlow numbers. A database that fails does not affect the others.

    Args:
        databases: The switches' databases, such as ``tcp:192.0.2.1:6640``, and the switches that each speaks for.
        interval_ms: The transmit interval in ms; three missing packets take the link down.
        uplink: Restricts it to links of this uplink index: ``up1`` between edge and aggregation, ``up2`` between aggregation
            and core.
        tls: For ``ssl:`` addresses, see `topologies.ovsdb.transact`.
        change: False to report what there is, and change nothing.
        is_last: Tell whether an uplink of a switch, by its index, is the last live one of several: it is left for later.
    """
    report = BfdReport()
    ends: list[End] = []
    for address, switch, ports in _read(databases, tree, tls, report.problems):
        report.switches.add(switch)
        ends += _ends(address, tree, switch, ports)
    wanted = [end for end in ends if uplink in (None, end.uplink)]
    present = {(end.switch, end.neighbour) for end in wanted}
    report.had = sum(end.enabled for end in wanted)
    report.single = [end for end in wanted if not end.enabled and (end.neighbour, end.switch) not in present]
    paired: list[End] = []
    for end in wanted:
        if (end.neighbour, end.switch) in present:
            waits = not end.enabled and is_last(end.lower, end.uplink)
            (report.postponed if waits else paired).append(end)
    if not change:
        return report

    def send(changes: list[tuple[End, dict[str, str]]]) -> list[End]:
        """Make changes, one transaction for each database; return the ends that have them now."""
        done: list[End] = []
        for address in dict.fromkeys(end.address for end, _ in changes):
            own = [(end, settings) for end, settings in changes if end.address == address]
            try:
                ovsdb.transact(address, [setting(end.uuid, settings) for end, settings in own], TIMEOUT_SECONDS, tls)
                done += [end for end, _ in own]
            except OvsdbError as error:
                report.problems[address] = str(error)
        return done

    first = [
        (end, {SENDS_TO: BFD_MAC} if end.enabled else {**_enabled(interval_ms), SENDS_TO: BFD_MAC})
        for end in paired
        if not (end.enabled and end.has_address(SENDS_TO))
    ]
    changed = send(first)
    report.enabled = sum(not end.enabled for end in changed)
    sending = {(end.switch, end.neighbour) for end in (*changed, *paired) if end in changed or end.has_address(SENDS_TO)}
    # an end that required the address before the other one uses it would take the link down
    last = [end for end in paired if not end.has_address(REQUIRES) and (end.neighbour, end.switch) in sending]
    report.addressed = sum(end.enabled for end in send([(end, {REQUIRES: BFD_MAC}) for end in last]))
    return report


def rollout(
    databases: Databases,
    tree: Clos,
    interval_ms: int,
    tls: Tls | None = None,
    *,
    may_change: Callable[[], bool] = lambda: True,
    is_last: Callable[[Switch, int], bool] = lambda _switch, _uplink: False,
) -> Iterator[BfdReport]:
    """Enable BFD on one uplink index after the other, so that every switch always has other live uplinks.

    Each step is one `enable`, made when the iterator is advanced. The caller waits between steps until every port that was LIVE
    is LIVE again, about a second; if ports stay down, it must not continue, or the next uplinks would go down too. ``may_change``
    is asked before each step. A database that has failed is left out of further steps: each could cost its timeout.
    """
    failed: set[str] = set()
    for uplink in range(max(tree.uplink_count(level) for level in Level)):
        left = {address: switches for address, switches in databases.items() if address not in failed}
        report = enable(left, tree, interval_ms, uplink, tls, change=may_change(), is_last=is_last)
        failed |= report.problems.keys()
        yield report


def _read(
    databases: Databases, tree: Clos, tls: Tls | None, problems: dict[str, str]
) -> Iterator[tuple[str, Switch, dict[int, Row]]]:
    """Yield each switch that its database describes, with its interfaces by OpenFlow port; note the errors of those that fail."""
    found: set[Switch] = set()
    for address, speaks_for in databases.items():
        try:
            rows = ovsdb.select(address, _COLUMNS, TIMEOUT_SECONDS, tls)
        except OvsdbError as error:
            problems[address] = str(error)
            continue
        ports, interfaces = by_uuid(rows["Port"]), by_uuid(rows["Interface"])
        for bridge in rows["Bridge"]:
            try:
                switch = tree.switch_by_dpid(bridge["datapath_id"] or 0)
            except TopologyError:  # no datapath yet, or a bridge of another network
                continue
            if switch in speaks_for and switch not in found:
                found.add(switch)
                yield address, switch, ports_of(bridge, ports, interfaces)


def _ends(address: str, tree: Clos, switch: Switch, ports: dict[int, Row]) -> Iterator[End]:
    for number, neighbour in tree.ports(switch).items():
        if number in ports and not isinstance(neighbour, Host):
            yield End(address, ports[number]["_uuid"], switch, neighbour, ports[number]["bfd"])


def setting(uuid: str, settings: dict[str, str]) -> dict[str, Any]:
    """Return the operation that sets an interface's settings of BFD and keeps the others."""
    return {
        "op": "mutate",
        "table": "Interface",
        "where": [["_uuid", "==", ["uuid", uuid]]],
        "mutations": [["bfd", "delete", ["set", list(settings)]], ["bfd", "insert", mapping(settings)]],
    }


def _enabled(interval_ms: int) -> dict[str, str]:
    return {"enable": "true", "min_tx": str(interval_ms), "min_rx": str(interval_ms)}


@dataclass
class GatewaysReport:
    """The outcome of `enable_gateways`."""

    enabled: int = 0
    """The number of gateways at whose ports BFD was enabled now."""
    on: int = 0
    """The number of gateways at whose ports it is enabled."""
    answers: dict[Host, bool] = field(default_factory=dict)
    """The gateways whose session is up, with True, and those that have shut it down deliberately, with False."""
    problems: dict[str, str] = field(default_factory=dict)
    """From the address of a database that failed to its error."""


def enable_gateways(
    databases: Databases, tree: Clos, interval_ms: int, tls: Tls | None = None, *, change: bool = True
) -> GatewaysReport:
    """Enable BFD at the edge switches' ports to gateways where it is not enabled, and read which gateways answer.

    A database that fails does not affect the others. Without ``change`` it only reads.
    """
    report = GatewaysReport()
    changes: dict[str, list[dict[str, Any]]] = {}
    for address, switch, ports in _read(databases, tree, tls, report.problems):
        for number, neighbour in tree.ports(switch).items():
            if number not in ports or not isinstance(neighbour, Host) or neighbour not in tree.gateways:
                continue
            interface, status = ports[number], ports[number]["bfd_status"]
            if interface["bfd"].get("enable", "").lower() != "true":
                if not change:
                    continue
                wanted = _settings(tree, neighbour, interval_ms)
                changes.setdefault(address, []).append(setting(interface["_uuid"], wanted))
            report.on += 1
            if status.get("remote_state") == ADMIN_DOWN:
                report.answers[neighbour] = False
            elif status.get("state") == UP:
                report.answers[neighbour] = True
    for address, wanted_there in changes.items():
        try:
            ovsdb.transact(address, wanted_there, TIMEOUT_SECONDS, tls)
            report.enabled += len(wanted_there)
        except OvsdbError as error:
            report.problems[address] = str(error)
    return report


def _settings(tree: Clos, gateway: Host, interval_ms: int) -> dict[str, str]:
    return {
        **_enabled(interval_ms),
        "bfd_src_ip": str(tree.gateway(gateway)),
        "bfd_dst_ip": str(tree.ip(gateway)),
        "bfd_local_src_mac": GATEWAY_MAC,
        SENDS_TO: tree.mac(gateway),
        REQUIRES: GATEWAY_MAC,
    }
