"""Databases of Open vSwitch in memory, as far as `sopa_ryu.southbound.bfd` uses them, and the links on which it enables BFD."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sopa_ryu.southbound.bfd import REQUIRES, SENDS_TO
from topologies import Clos, Host, Reason, Switch
from topologies.ovsdb import OvsdbError, entries, mapping

End = tuple[Switch, int]

SESSION_SECONDS = 0.8
"""Seconds from enabling BFD at both ends until their session is up, and their ports are LIVE."""


class MemoryOvsdb:
    def __init__(self, tree: Clos, address_of: Callable[[Switch], str]) -> None:
        self.tree = tree
        self.bfd: dict[End, dict[str, str]] = {(its, port): {} for its in tree.switches() for port in tree.ports(its)}
        self.enabled_at: dict[End, float] = {}
        self.status: dict[End, dict[str, str]] = {}  # of BFD at each port that has any
        self.refusing: set[str] = set()  # addresses that do not answer
        self.more: dict[str, list[Switch]] = {}  # at an address, bridges with other switches' datapath ids
        self.broken: set[End] = set()  # ports at which BFD never hears anything
        self.transactions: list[str] = []  # the addresses that were asked, in order
        self.now = 0.0
        self._address_of = address_of

    def trouble(self, end: End) -> Reason | None:
        if end not in self.enabled_at:
            return None
        switch, port = end
        other = self.tree.neighbour(switch, port)
        assert isinstance(other, Switch)
        far = other, self.tree.port(other, switch)
        up = far in self.enabled_at and self.now >= max(self.enabled_at[end], self.enabled_at[far]) + SESSION_SECONDS
        # packets to another address than the required one are no BFD to a switch
        pairs = ((end, far), (far, end))
        required = [(self.bfd[there].get(REQUIRES), self.bfd[here].get(SENDS_TO)) for here, there in pairs]
        up = up and all(needed in (None, sent) for needed, sent in required)
        return None if up and end not in self.broken else Reason.SILENT

    def transact(
        self, address: str, operations: Iterable[Mapping[str, Any]], timeout: float, tls: object = None
    ) -> list[dict[str, Any]]:
        self.transactions.append(address)
        switches = [switch for switch in self.tree.switches() if self._address_of(switch) == address] + self.more.get(address, [])
        if address in self.refusing or not switches:
            raise OvsdbError(f"{address}: no answer within {timeout:g} s")
        return [self._operate(switches, operation) for operation in operations]

    def _operate(self, switches: list[Switch], operation: Mapping[str, Any]) -> dict[str, Any]:
        if operation["op"] == "select":
            return {"rows": self._rows(switches, operation["table"])}
        ((_, _, (_, uuid)),) = operation["where"]
        end = next(end for end in self.bfd if end[0] in switches and self._uuid(end) == uuid)
        was_on = self.bfd[end].get("enable") == "true"
        for column, mutator, value in operation["mutations"]:
            assert column == "bfd"
            if mutator == "delete":
                self.bfd[end] = {key: kept for key, kept in self.bfd[end].items() if key not in value[1]}
            else:
                self.bfd[end] |= entries(value)
        if not was_on and self.bfd[end].get("enable") == "true":
            self.enabled_at[end] = self.now
        return {"count": 1}

    def _rows(self, switches: list[Switch], table: str) -> list[dict[str, Any]]:
        names = {end: self._uuid(end) for end in self.bfd if end[0] in switches}
        match table:
            case "Interface":
                columns = {end: (mapping(self.bfd[end]), mapping(self.status.get(end, {}))) for end in names}
                keys = "_uuid", "ofport", "bfd", "bfd_status"
                return [dict(zip(keys, (["uuid", names[end]], end[1], *columns[end]), strict=True)) for end in names]
            case "Port":
                return [{"_uuid": ["uuid", f"port {its}"], "interfaces": ["uuid", its]} for its in names.values()]
        ports = {its: [["uuid", f"port {name}"] for end, name in names.items() if end[0] == its] for its in switches}
        return [{"datapath_id": f"{self.tree.dpid(its):016x}", "ports": ["set", ports[its]]} for its in switches]

    def _uuid(self, end: End) -> str:
        return f"{self.tree.name(end[0])} {end[1]}"

    def fabric_ends(self) -> list[End]:
        """Return the ports that lead to other switches."""
        return [end for end in self.bfd if not isinstance(self.tree.neighbour(*end), Host)]
