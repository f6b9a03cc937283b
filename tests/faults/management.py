"""Faults of the management network, of the controller's machine, and by people and programs that interfere."""

import json
import os
import resource
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from experiments.emulation.processes import ControllerProcess
from experiments.emulation.sopa_lab import REST_PORT, SopaLab
from flowrules.model import Table
from sopa_ryu.runtime.library import ofproto_v1_3 as of
from tests.faults.plan import part_switches
from tests.helpers.fabrics import entries
from tests.helpers.openflow_switch import PlainSwitch, packed
from tests.helpers.veth import run
from tests.helpers.waiting import eventually
from topologies import Host
from topologies.lab.batch_net import run_batch
from topologies.lab.standstill import standing_still

NOWHERE = "tcp:127.0.0.1:9"
OPENFLOW_PORT = 6653
PART_ADDRESS = IPv4Address("127.0.1.1")
CONNECTIONS = 40
IMPOSTOR_SECONDS = 3.0
CLOCK_SHIFT = -86_400.0
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_SHOT, _NEXT_FILTER = 2, 2**32 - 1
PAST = Path(__file__).parents[1] / "helpers" / "past"


def set_channels(lab: SopaLab, names: Iterable[str], connected: bool) -> None:
    """Point switches to the controller, or to an address at which nothing listens; they keep their entries."""
    _set_targets(lab, names, f"tcp:127.0.0.1:{OPENFLOW_PORT}" if connected else NOWHERE)


def part_address(part: int) -> IPv4Address:
    """Return the controller's address for the channels of a part's switches and agents, so that a filter can tell them apart."""
    return PART_ADDRESS + part


def cut_off(lab: SopaLab, part: int) -> list[str]:
    return [lab.tree.name(each) for each in part_switches(lab.tree, part)]


@contextmanager
def partitioned(lab: SopaLab, part: int | None) -> Iterator[None]:
    """Cut a part of the fabric, or all, off the management network: every packet of its channels is lost, both ways.

    No end sees a connection close: each finds out by its own silence, as behind a dead management switch.
    """
    if part is not None:
        names = cut_off(lab, part)
        target = f"{part_address(part)}:{OPENFLOW_PORT}"
        _set_targets(lab, names, f"tcp:{target}")
        eventually(lambda: _connections_to(target), len(names))
        eventually(lambda: lab.controller.fabric()["missing"], [])
    cut = f"filter add dev lo ingress protocol ip bpf direct-action bytecode '{_cut(part)}'"
    run_batch(["tc", "-batch", "-"], ["qdisc add dev lo clsact", cut])
    try:
        yield
        assert _dropped(), "no packet was lost in the partition: it has cut nothing"
    finally:
        run_batch(["tc", "-batch", "-"], ["qdisc delete dev lo clsact"])


def _cut(part: int | None) -> str:
    """Return classic BPF that drops TCP of loopback from or to a part's address, or the controller's ports."""
    values: tuple[int, ...]
    if part is None:  # behind 14 bytes of Ethernet and 20 of IPv4
        load, offsets, values = _LOAD_HALF, (34, 36), (OPENFLOW_PORT, REST_PORT)
    else:
        load, offsets, values = _LOAD_WORD, (26, 30), (int(part_address(part)),)
    last = len(offsets) * (1 + len(values)) + 1
    code: list[tuple[int, int, int, int]] = []
    for offset in offsets:
        code.append((load, 0, 0, offset))
        for value in values:
            code.append((_JUMP_IF_EQUAL, last - len(code) - 1, 0, value))
    code += [(_RETURN, 0, 0, _NEXT_FILTER), (_RETURN, 0, 0, _SHOT)]
    return ",".join([str(len(code)), *(" ".join(map(str, each)) for each in code)])


def _connections_to(target: str) -> int:
    return len(run(f"ss --no-header --tcp --numeric state established dst {target}").splitlines())


def _dropped() -> int:
    """Return how many packets loopback's filters have dropped."""
    shown = json.loads(run("tc -s -j qdisc show dev lo"))
    return sum(int(qdisc.get("drops", 0)) for qdisc in shown if qdisc["kind"] == "clsact")


def _set_targets(lab: SopaLab, names: Iterable[str], target: str) -> None:
    ovs = lab.lab.ovs
    rows = [ovs.vsctl("get", "bridge", name, "controller").strip(" []\n") for name in names]
    # the row stays, so that its other settings do
    ovs.vsctl(*(word for row in rows for word in ("--", "set", "controller", row, f'target="{target}"')))


def pause_controller(lab: SopaLab, seconds: float) -> None:
    """Stop the controller's process for a time, as a suspended or swapping machine does."""
    with standing_still(lab.controller.pid):
        time.sleep(seconds)  # the length of the pause is the fault


def impersonate(dpid: int, ports: Collection[int]) -> None:
    """Connect to the controller as a switch whose datapath id and ports are another's, and claim that its port 1 is down."""
    its = PlainSwitch(dpid, ports, [f"tcp:127.0.0.1:{OPENFLOW_PORT}"])
    status, answer = [of.OFPPR_MODIFY, *its.port(1)], its.answer
    status[5] = of.OFPPS_LINK_DOWN

    def claim(kind: str, values: Any, xid: int, write: Callable[[bytes], None]) -> None:
        answer(kind, values, xid, write)
        if kind == "ports":
            for channel in list(its.alive):
                its.write(channel, of.OFPT_PORT_STATUS, 0, packed("port-status", status))

    its.answer = claim
    its.open()
    time.sleep(IMPOSTOR_SECONDS)  # how long it stays is the fault
    its.cut()


@contextmanager
def without_files(lab: SopaLab) -> Iterator[None]:
    """Leave the controller no more open files than it has, with clients that wait for some."""
    pid = lab.controller.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    with ExitStack() as stack:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
        stack.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        for number in range(CONNECTIONS):
            port = (REST_PORT, OPENFLOW_PORT)[number % 2]
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        yield


def remove_filter(lab: SopaLab, host: Host) -> None:
    """Delete the queueing discipline to which an agent has attached its program, as a network manager may."""
    run(f"nsenter --net={lab.lab.netns(host)} tc qdisc delete dev {lab.lab.interface(host, 0)} clsact")


def change_rules(lab: SopaLab, name: str) -> None:
    """Have a switch drop everything that goes down, by a command that keeps the entries' cookies; wait until it is mended."""
    before, said = _entries(lab, name), _times_mended(lab, name)
    lab.lab.ovs.ofctl("mod-flows", name, f"table={Table.DOWN:d},actions=drop")
    # the controller may restore the entries before they can be read, so its log is the evidence
    eventually(lambda: _times_mended(lab, name) > said)
    eventually(lambda: _entries(lab, name), before)


def _times_mended(lab: SopaLab, name: str) -> int:
    lines = lab.controller.log.read_text().splitlines()
    return sum(f"switch {name}: " in line and "changed by another program" in line for line in lines)


def _entries(lab: SopaLab, name: str) -> list[str]:
    # what a switch has learned of its hosts comes and goes
    return [line for line in entries(lab.lab.ovs, name) if "hard_timeout" not in line]


def set_clock(controller: ControllerProcess, back: bool) -> None:
    """Let a controller, when it starts again, believe that it is yesterday, or the machine's clock."""
    path = os.pathsep.join([str(PAST), *filter(None, [os.environ.get("PYTHONPATH")])])  # os-ken's place, in make test-os-ken
    for name, value in (("PYTHONPATH", path), ("CLOCK_SHIFT", str(CLOCK_SHIFT))):
        controller.environment.pop(name, None)
        if back:
            controller.environment[name] = value
