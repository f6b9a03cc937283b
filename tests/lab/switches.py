"""What the tests of labs without a controller look at and do: BFD, ports, frames that switches send, and their settings."""

import re
from typing import Any

from tests.helpers.waiting import eventually, throughout
from topologies import ovsdb
from topologies.lab.network import Lab

LINK = "a0_0-c0_1"
FRAME = f"ffffffffffff{'0' * 12}88b5{'00' * 46}"
LLDP = f"0180c200000e{'0' * 12}88cc{'00' * 46}"
UP, DOWN = [True, True], [False, False]  # of `bfd_of`


def ends(lab: Lab, link: str = LINK) -> tuple[str, str]:
    """The interfaces at the lower and the upper end of a link."""
    lower, upper = (lab.tree.switch(name) for name in link.split("-"))
    return lab.interface(lower, lab.tree.port(lower, upper)), lab.interface(upper, lab.tree.port(upper, lower))


def bfd_of(lab: Lab, link: str = LINK) -> list[bool | None]:
    """Return for each end of a link whether BFD is up; None for an end without BFD."""
    state = lab.bfd_up()
    return [state.get(end) for end in ends(lab, link)]


def flaps(lab: Lab) -> dict[str, str]:
    """Return every BFD session's count of changes."""
    select = {"op": "select", "table": "Interface", "where": [], "columns": ["name", "bfd_status"]}
    found = {row["name"]: ovsdb.entries(row["bfd_status"]) for row in lab.ovs.transact([select])[0]["rows"]}
    return {name: status["flap_count"] for name, status in found.items() if status}


def unsettled(lab: Lab) -> set[str]:
    """Sessions that are not up, or not as fast as they should be: they start slowly (RFC 5880, section 6.8.3)."""
    state, shown = lab.bfd_up(), lab.ovs.appctl("bfd/show")
    fast = f"RX Interval: Approx {lab.bfd_ms}ms"
    sessions = re.findall(r"^---- (\S+) ----\n(.*?)(?=^----|\Z)", shown, re.MULTILINE | re.DOTALL)
    settled = {name for name, text in sessions if fast in text and state.get(name)}
    return {interface for interface, _ in lab.fabric_interfaces()} - settled


def states(lab: Lab, switch: str) -> dict[str, str]:
    """From each port of a switch, by number, to its OpenFlow state."""
    shown = lab.ovs.ofctl("show", switch)
    return dict(re.findall(r"^ (\w+)\(.*?\n +config: .*?\n +state: +(.*?)$", shown, re.MULTILINE | re.DOTALL))


def sent(lab: Lab, switch: str, port: int, frame: str = FRAME) -> None:
    """Have a switch send a frame out of a port."""
    lab.ovs.ofctl("packet-out", switch, f"in_port=controller packet={frame} actions=output:{port}")


def received(lab: Lab, switch: str) -> dict[int, int]:
    """From each port of a switch to the frames received on it, of those that `sent` sends."""
    flows = lab.ovs.ofctl("dump-flows", switch)
    return {int(port): int(count) for count, port in re.findall(r"n_packets=(\d+).*in_port=(\d+)", flows) if int(count)}


def count_frames(lab: Lab, *switches: str) -> None:
    """Have switches count from 0 what `received` tells."""
    for switch in switches:
        ports, kinds = lab.tree.ports(lab.tree.switch(switch)), ("0x88b5", "0x88cc")
        entries = [f"reset_counts,dl_type={kind},in_port={port},actions=drop" for port in ports for kind in kinds]
        lab.ovs.ofctl("add-flows", switch, "-", stdin="\n".join(entries))


def forget_frames(lab: Lab, *switches: str) -> None:
    """Delete all entries of switches, those of `count_frames` and others."""
    for switch in switches:
        lab.ovs.ofctl("del-flows", switch)


def carries(lab: Lab, link: str, up: bool, down: bool) -> None:
    """Check that a link carries frames up, or down, or not; its switches have no entries but those of `count_frames`."""
    lower, upper = (lab.tree.switch(name) for name in link.split("-"))
    for one, other, carried in ((lower, upper, up), (upper, lower, down)):
        there, port = lab.tree.name(other), lab.tree.port(other, one)
        count_frames(lab, there)
        sent(lab, lab.tree.name(one), lab.tree.port(one, other))
        if carried:
            eventually(lambda there=there: received(lab, there), {port: 1})
        else:
            throughout(lambda there=there: received(lab, there), {}, seconds=0.5)
    forget_frames(lab, lab.tree.name(lower), lab.tree.name(upper))


def settings(lab: Lab) -> dict[str, list[Any]]:
    columns = {
        "Bridge": ["name", "controller", "datapath_type", "datapath_id", "fail_mode", "protocols", "other_config"],
        "Port": ["name", "tag", "trunks", "qos"],
        "Interface": ["name", "type", "ofport", "ofport_request", "bfd", "options", "link_state", "admin_state"],
        "Controller": ["target", "max_backoff", "inactivity_probe"],
    }
    selects = [{"op": "select", "table": table, "where": [], "columns": names} for table, names in columns.items()]
    rows = [result["rows"] for result in lab.ovs.transact(selects)]
    for bridge in rows[0]:
        bridge["controller"] = len(ovsdb.elements(bridge["controller"]))
    return {table: sorted(each, key=str) for table, each in zip(columns, rows, strict=True)}
