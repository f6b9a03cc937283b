"""Open vSwitch's database, read into `SwitchSetup` and mended where that interrupts nothing. It needs no Ryu."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sopa_ryu.fabric.switch_setup import SetupProblem, SwitchSetup, Target
from topologies import ovsdb
from topologies.fabric_plan import PREFIXES
from topologies.ovsdb import Kind, Tls, by_uuid, entries, integer, mapping, optional, references, set_of, text, truth, uuid

Row = dict[str, Any]

_DPID = re.compile("[0-9a-f]{16}")


def dpid(value: object) -> int:
    """Return a datapath id."""
    said = text(value)
    if not _DPID.fullmatch(said):
        raise ValueError(f"no datapath id: {said}")
    return int(said, 16)


_COLUMNS: dict[str, dict[str, Kind]] = {
    "Open_vSwitch": {"ssl": optional(uuid)},
    "SSL": {"_uuid": uuid, "ca_cert": text, "bootstrap_ca_cert": truth},
    "Bridge": {
        "_uuid": uuid,
        "name": text,
        "datapath_id": optional(dpid),
        "fail_mode": optional(text),
        "protocols": set_of(text),
        "other_config": entries,
        "controller": set_of(uuid),
        "ports": set_of(uuid),
        "stp_enable": truth,
        "rstp_enable": truth,
        "flow_tables": references,
    },
    "Flow_Table": {"_uuid": uuid, "prefixes": set_of(text)},
    "Controller": {"_uuid": uuid, "target": text, "is_connected": truth},
    "Port": {"_uuid": uuid, "interfaces": set_of(uuid)},
    "Interface": {"_uuid": uuid, "name": text, "ofport": optional(integer), "bfd": entries, "cfm_mpid": optional(integer)},
}
LOCAL = 65534  # the bridge's own port, as the database numbers it
MENDED = {"in-band", "fail-mode", "prefixes"}
"""Checks whose problems `mend` can put right: none changes how a connected switch forwards, or interrupts its channel."""


def read(address: str, timeout: float = 5.0, tls: Tls | None = None) -> list[SwitchSetup]:
    """Return every bridge of a database; `OvsdbError` if it cannot be read."""
    rows = ovsdb.select(address, _COLUMNS, timeout, tls)
    files, controllers, ports, interfaces, tables = (
        by_uuid(rows[name]) for name in ("SSL", "Controller", "Port", "Interface", "Flow_Table")
    )
    authority = next((files[root["ssl"]] for root in rows["Open_vSwitch"] if root["ssl"] in files), {})
    return [_setup(row, ports_of(row, ports, interfaces), controllers, authority, tables) for row in rows["Bridge"]]


def ports_of(bridge: Row, ports: dict[str, Row], interfaces: dict[str, Row]) -> dict[int, Row]:
    """Take a bridge's interfaces, and return them by OpenFlow port: each belongs to the first bridge that lists it."""
    mine = [ports.pop(port) for port in bridge["ports"] if port in ports]
    own = [interfaces.pop(each) for port in mine for each in port["interfaces"] if each in interfaces]
    return {interface["ofport"]: interface for interface in own if 0 < (interface["ofport"] or 0) < LOCAL}  # -1: not there


def _setup(row: Row, ports: dict[int, Row], controllers: dict[str, Row], authority: Row, tables: dict[str, Row]) -> SwitchSetup:
    targets = [controllers[each] for each in row["controller"] if each in controllers]
    return SwitchSetup(
        uuid=row["_uuid"],
        bridge=row["name"],
        dpid=row["datapath_id"],
        fail_mode=row["fail_mode"] or "",
        protocols=frozenset(row["protocols"]),
        other_config=row["other_config"],
        controllers=tuple(Target(each["target"], each["is_connected"]) for each in targets),
        interfaces={number: interface["name"] for number, interface in ports.items()},
        bfd={number: interface["bfd"] for number, interface in ports.items()},
        cfm=frozenset(number for number, interface in ports.items() if interface["cfm_mpid"] is not None),
        spanning_tree=row["stp_enable"] or row["rstp_enable"],
        prefixes={number: frozenset(tables[its]["prefixes"]) for number, its in row["flow_tables"].items() if its in tables},
        ca=authority.get("ca_cert", ""),
        bootstraps=authority.get("bootstrap_ca_cert", False),
    )


def mend(address: str, setup: SwitchSetup, found: Iterable[SetupProblem], timeout: float = 5.0, tls: Tls | None = None) -> None:
    """Put right those problems of a bridge that are in `MENDED`; `OvsdbError` if the database refuses it."""
    where = [["_uuid", "==", ["uuid", setup.uuid]]]
    operations: list[dict[str, Any]] = []
    for check in {problem.check for problem in found} & MENDED:
        if check == "in-band":
            off = mapping({"disable-in-band": "true"})
            change = [["other_config", "delete", ["set", ["disable-in-band"]]], ["other_config", "insert", off]]
            operations.append({"op": "mutate", "table": "Bridge", "where": where, "mutations": change})
        elif check == "prefixes":
            rows, its = ovsdb.flow_tables(PREFIXES)
            renew = [["flow_tables", "delete", ["set", [table for table, _ in its[1]]]], ["flow_tables", "insert", its]]
            operations += rows
            operations.append({"op": "mutate", "table": "Bridge", "where": where, "mutations": renew})
        else:
            operations.append({"op": "update", "table": "Bridge", "where": where, "row": {"fail_mode": "secure"}})
    if operations:
        ovsdb.transact(address, operations, timeout, tls)
