"""Open vSwitch's database, read into `SwitchSetup` and mended where that interrupts nothing. It needs no Ryu."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Any

from sopa_ryu.fabric.switch_setup import SetupProblem, SwitchSetup, Target
from topologies.ovsdb import OvsdbError, elements, entries, mapping, transact

_COLUMNS = {
    "Open_vSwitch": ["ssl"],
    "SSL": ["_uuid", "ca_cert", "bootstrap_ca_cert"],
    "Bridge": [
        "_uuid", "name", "datapath_id", "fail_mode", "protocols", "other_config", "controller", "ports", "stp_enable",
        "rstp_enable",
    ],
    "Controller": ["_uuid", "target", "is_connected"],
    "Port": ["_uuid", "interfaces"],
    "Interface": ["_uuid", "name", "ofport", "bfd", "cfm_mpid"],
}  # fmt: skip
LOCAL = 65534  # the bridge's own port, as the database numbers it
MENDED = {"in-band", "fail-mode"}
"""Checks whose problems `mend` can put right: neither changes how a connected switch forwards, or interrupts its channel."""


def read(address: str, timeout: float = 5.0, tls: ssl.SSLContext | None = None) -> list[SwitchSetup]:
    """Return every bridge of a database; `OvsdbError` if it cannot be read."""
    operations = [{"op": "select", "table": name, "where": [], "columns": columns} for name, columns in _COLUMNS.items()]
    answers = transact(address, operations, timeout, tls)
    try:
        return list(_setups(dict(zip(_COLUMNS, (answer["rows"] for answer in answers), strict=True))))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise OvsdbError(f"{address}: not a database of Open vSwitch: {error!r}") from error


def _setups(rows: dict[str, list[dict[str, Any]]]) -> Iterator[SwitchSetup]:
    by_uuid = {row["_uuid"][1]: row for name in ("SSL", "Controller", "Port", "Interface") for row in rows[name]}
    used = [by_uuid[uuid] for row in rows["Open_vSwitch"] for _, uuid in elements(row["ssl"])]
    for row in rows["Bridge"]:
        yield _setup(row, by_uuid, used[0] if used else {})


def _setup(row: dict[str, Any], by_uuid: dict[str, dict[str, Any]], authority: dict[str, Any]) -> SwitchSetup:
    interfaces = [by_uuid[uuid] for _, port in elements(row["ports"]) for _, uuid in elements(by_uuid[port]["interfaces"])]
    ports = {
        number: interface
        for interface in interfaces
        for number in elements(interface["ofport"])
        if 0 < number < LOCAL  # -1: the interface does not exist
    }
    dpid = next(iter(elements(row["datapath_id"])), None)
    targets = [by_uuid[uuid] for _, uuid in elements(row["controller"])]
    return SwitchSetup(
        uuid=row["_uuid"][1],
        bridge=row["name"],
        dpid=None if dpid is None else int(dpid, 16),
        fail_mode=next(iter(elements(row["fail_mode"])), ""),
        protocols=frozenset(elements(row["protocols"])),
        other_config=entries(row["other_config"]),
        controllers=tuple(Target(each["target"], each["is_connected"]) for each in targets),
        interfaces={number: interface["name"] for number, interface in ports.items()},
        bfd={number: entries(interface["bfd"]) for number, interface in ports.items()},
        cfm=frozenset(number for number, interface in ports.items() if elements(interface["cfm_mpid"])),
        spanning_tree=row["stp_enable"] or row["rstp_enable"],
        ca=authority.get("ca_cert", ""),
        bootstraps=authority.get("bootstrap_ca_cert", False),
    )


def mend(
    address: str, setup: SwitchSetup, found: Iterable[SetupProblem], timeout: float = 5.0, tls: ssl.SSLContext | None = None
) -> None:
    """Put right those problems of a bridge that are in `MENDED`; `OvsdbError` if the database refuses it."""
    where = [["_uuid", "==", ["uuid", setup.uuid]]]
    operations: list[dict[str, Any]] = []
    for check in {problem.check for problem in found} & MENDED:
        if check == "in-band":
            off = mapping({"disable-in-band": "true"})
            change = [["other_config", "delete", ["set", ["disable-in-band"]]], ["other_config", "insert", off]]
            operations.append({"op": "mutate", "table": "Bridge", "where": where, "mutations": change})
        else:
            operations.append({"op": "update", "table": "Bridge", "where": where, "row": {"fail_mode": "secure"}})
    if operations:
        transact(address, operations, timeout, tls)
