"""The link rate that a machine bears: measured on a small piece of a lab's data path, in about a second.

Use `seconds_per_packet` inside `isolation.isolated`, where no lab runs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topologies.lab.batch_net import LabError, remove_interfaces, run_batch
from topologies.lab.datapath import DatapathKind
from topologies.lab.links import FRAME_BYTES, HOPS
from topologies.lab.private_ovs import PrivateOvs

DIRECTORY = Path("/run/sopa/calibration")
MEASURED_SECONDS = 0.5
WINDOW = 16  # packets on their way at a time: as in a lab under load, the switch daemon finds several when it wakes up
WINDOWS = 10  # in a part of the measurement
MIN_PARTS = 8
MIN_SECONDS = 1e-6
_GROUP = "84"
_EXPERIMENTAL = 0x88B5  # IEEE 802, for local experiments
_WAIT_SECONDS = 5.0


def seconds_per_packet(datapath: DatapathKind) -> float:
    """Return the processor time that a packet takes over as many switches as a path between pods has, in seconds.

    Processor time, and not the time that passes: what else runs on the machine hardly changes it. Raises `OvsError` or `LabError`
    if the switches do not start, or no packet arrives.
    """
    with PrivateOvs(DIRECTORY) as ovs, _chain(ovs, datapath) as (first, last):
        _pass(first, last)  # fills the caches
        found: list[float] = []
        deadline = time.monotonic() + MEASURED_SECONDS
        while len(found) < MIN_PARTS or time.monotonic() < deadline:
            before = _clock(ovs.pid()) + time.process_time()
            packets = _pass(first, last)
            found.append((_clock(ovs.pid()) + time.process_time() - before) / packets)
    # other programs disturb most parts of it on a busy machine; the lowest may be an error of the clocks
    return max(sorted(found)[len(found) // 4], MIN_SECONDS)


def _pass(first: socket.socket, last: socket.socket) -> int:
    """Send packets through the switches, `WINDOW` at a time, and return their number."""
    frame = bytes.fromhex("02000000000202000000000a") + _EXPERIMENTAL.to_bytes(2, "big")
    frame += bytes(FRAME_BYTES - len(frame))
    for _ in range(WINDOWS):
        for _ in range(WINDOW):
            first.send(frame)
        for _ in range(WINDOW):
            last.recv(16)
    return WINDOWS * WINDOW


@contextmanager
def _chain(ovs: PrivateOvs, datapath: DatapathKind) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Join `HOPS` switches in a row, and yield packet sockets at both ends of it."""
    wires = [(f"calibrate{number}a", f"calibrate{number}b") for number in range(HOPS + 1)]
    lines = [f"link add {one} mtu 1500 group {_GROUP} type veth peer name {other} group {_GROUP}" for one, other in wires]
    run_batch(["ip", "-batch", "-"], [*lines, f"link set group {_GROUP} up"])
    bridges = [f"calibrate{number}" for number in range(HOPS)]
    words: list[str] = []
    for bridge, (_, left), (right, _) in zip(bridges, wires, wires[1:], strict=False):
        words += ["--", "add-br", bridge, "--", "set", "Bridge", bridge, f"datapath_type={datapath.type}"]
        words += ["--", "add-port", bridge, left, "--", "add-port", bridge, right]
    try:
        ovs.vsctl(*words[1:])
        with _packet_socket(wires[0][0]) as first, _packet_socket(wires[-1][1], _EXPERIMENTAL) as last:
            try:
                yield first, last
            except TimeoutError as error:
                problem = f"no packet passed {HOPS} switches of the {datapath} datapath within {_WAIT_SECONDS:g} s"
                raise LabError(problem) from error
    finally:
        ovs.stop()
        remove_interfaces(_GROUP, datapath, bridges)


def _packet_socket(interface: str, protocol: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((interface, protocol))
    sock.settimeout(_WAIT_SECONDS)
    return sock


def _clock(pid: int) -> float:
    """Return the processor time of all threads of a process (clock_getcpuclockid(3)), in seconds."""
    return time.clock_gettime(~pid << 3 | 2)
