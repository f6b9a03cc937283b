"""What path probes cost: the program's time for a probe and for other packets, the agent's processor time, and TCP beside it.

Run as root: ``make bench ARGS=probes``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from experiments.bench.host_pair import HOST, PEER, PEER_NETNS, TREE, join, tcp_figures
from experiments.bench.measure_bpf import tcp_frame
from experiments.bench.measuring import measured_in_lab, say
from experiments.emulation.processes import AgentProcess
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf, tc, xdp
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.probing.frames import Ends, ProbeFrame
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen, settings
from sopa_ryu.channel import protocol
from sopa_ryu.channel.messages import Ack, Assignment, Report, Stream, encode, from_agent, unpacked
from sopa_ryu.fabric.view import View
from topologies import Failures
from topologies.structure import GATEWAY_MAC

MAX_TURN_NS = 60
MAX_PERCENT = 2.0
ROUNDS, REPEAT, TCP_ROUNDS = 15, 300_000, 5
AGENT_SECONDS = 20.0
RATES = (0, 50, 200)
_OBJECT = Path(__file__).with_name("probe_turn.o")
_ONLY = (0).to_bytes(4, sys.byteorder)
_GATEWAY = bytes.fromhex(GATEWAY_MAC.replace(":", ""))
_PRIORITY, _HANDLE = 20, 1
HERE, THERE = IPv4Address(TREE.ip(HOST)), IPv4Address(TREE.ip(PEER))


def measure() -> dict[str, Any]:
    """Measure all of it.

    Returns:
        ``turn_ns``: medians of the time of a probe turned round, with each carrier, less that of writing it anew;
        ``ordinary_ns``: of packets that are no probes, less that of an empty program; ``agent_percent``: processor time of an
        agent by its probes a second; ``tcp``: throughput and processor time by what is at the ingress of both hosts.
    """
    build()
    return {**_program(), **measured_in_lab(_in_lab)}


# -- the program ----------------------------------------------------------------------------------------------------------


def _program() -> dict[str, Any]:
    found: dict[str, Any] = {"turn_ns": {}, "ordinary_ns": {}, "limit_turn_ns": MAX_TURN_NS}
    for carrier in Carrier:
        found["turn_ns"][str(carrier)] = _turn_ns(carrier)
    with libbpf.Object(EMPTY) as empty_object:
        empty, program = empty_object.program_fd("empty"), ProbeProgram(_ends(THERE))
        try:
            user = bytes(ProbeFrame(_ends(HERE), Stream(THERE, 0, 1), 1).numbered(0, 0))
            for name, frame in {
                "tcp": tcp_frame(str(HERE), str(THERE)),
                "as_long_as_a_probe": tcp_frame(str(HERE), str(THERE), len(user)),
            }.items():
                found["ordinary_ns"][name] = _added(program.program_fd, empty, frame)
        finally:
            program.close()
    return found


def _turn_ns(carrier: Carrier) -> float:
    build([_OBJECT], force=True)  # it is made of another source, too
    ends = _ends(THERE, carrier)
    frame = bytes(ProbeFrame(_ends(HERE, carrier), Stream(THERE, 0, 1), 1).numbered(0, 0))
    with libbpf.Object(_OBJECT) as program:
        libbpf.update(program.map_fd("probe_settings"), _ONLY, settings(ends, most=0))
        libbpf.update(program.map_fd("restored"), _ONLY, frame.ljust(108, b"\0"))
        both, alone = program.program_fd("restore_and_turn"), program.program_fd("restore_only")
        took = _added(both, alone, frame)
        values = libbpf.lookup(
            program.map_fd("probe_counters"), Seen.ANSWERED.to_bytes(4, sys.byteorder), 8 * libbpf.possible_cpus()
        )
    answered = sum(
        int.from_bytes((values or b"")[at : at + 8], sys.byteorder) for at in range(0, len(values or b""), 8)
    )
    if answered != (ROUNDS + 1) * REPEAT:
        raise RuntimeError(f"{answered} of {(ROUNDS + 1) * REPEAT} probes were answered")
    return took


def _added(program: int, baseline: int, frame: bytes) -> float:
    """Return the median of what a program takes longer than another one, in nanoseconds."""
    for one in (program, baseline):
        libbpf.run_program(one, frame, repeat=REPEAT)
    return median(
        libbpf.run_program(program, frame, repeat=REPEAT).nanoseconds
        - libbpf.run_program(baseline, frame, repeat=REPEAT).nanoseconds
        for _ in range(ROUNDS)
    )


def _ends(address: IPv4Address, carrier: Carrier = Carrier.MAC) -> Ends:
    return Ends(address, b"\x02\x00" + address.packed, _GATEWAY, carrier, 1)


# -- between two hosts ----------------------------------------------------------------------------------------------------


def _in_lab() -> dict[str, Any]:
    join()
    return {"tcp": _tcp(), **_agents()}


def _tcp() -> dict[str, Any]:
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ("nothing", "tc", "xdp_native", "xdp_generic")}
    for number in range(TCP_ROUNDS):
        for name, its in rounds.items():
            say(f"round {number + 1} of {TCP_ROUNDS}: {name}")
            with ExitStack() as stack:
                for ifname, netns, address in (("host0", None, HERE), ("peer0", PEER_NETNS, THERE)):
                    stack.enter_context(_at_ingress(name, ifname, netns, address))
                its.append(tcp_figures())
    return {
        name: {figure: round(median(one[figure] for one in its), 3) for figure in its[0]}
        for name, its in rounds.items()
    }


@contextmanager
def _at_ingress(what: str, ifname: str, netns: str | None, address: IPv4Address) -> Iterator[None]:
    """Have the program at tc ingress, or one that passes everything on at XDP."""
    with ExitStack() as stack:
        with inside(netns):
            ifindex = socket.if_nametoindex(ifname)
        if what == "tc":
            program = ProbeProgram(_ends(address))
            stack.callback(program.close)
            with inside(netns):
                tc.create_clsact(ifindex)
                point = tc.Point.INGRESS
                tc.attach(ifindex, program.program_fd, handle=_HANDLE, priority=_PRIORITY, replace=False, point=point)
            yield
            with inside(netns):
                tc.destroy_clsact(ifindex)
        elif what == "nothing":
            yield
        else:
            mode = xdp.Mode(what.removeprefix("xdp_"))
            fd = stack.enter_context(libbpf.Object(EMPTY)).program_fd("empty_xdp")
            with inside(netns):
                xdp.attach(ifindex, fd, mode, None)
            yield
            with inside(netns):
                xdp.detach(ifindex, fd, mode)


class _Controller:
    """What an agent needs of a controller: a snapshot, and an assignment once it is acknowledged."""

    def __init__(self, rate: int) -> None:
        self.rate, self.reported = rate, 0

    def attend(self, channel: ServerConnection) -> None:
        try:
            channel.send(protocol.snapshot(View(1, 1, Failures(TREE)), HERE))
            for text in channel:
                message = from_agent(text)
                if isinstance(message, Ack) and message.version == 1 and self.rate:
                    paths = tuple(Stream(THERE, up1, up2) for up1 in (0, 1) for up2 in range(8))
                    channel.send(encode(Assignment(1, 1000.0 / self.rate, paths)))
                    self.rate = 0
                if isinstance(message, Report):
                    self.reported += sum(counts.probes for counts in unpacked(message.streams))
        except ConnectionClosed:
            pass


def _agents() -> dict[str, Any]:
    found: dict[str, Any] = {"agent_percent": {}, "agent_probes": {}, "limit_percent": MAX_PERCENT}
    with Labeller("peer0", netns=PEER_NETNS, probes=_ends(THERE)) as far:
        far.swap(path_table(TREE, PEER, Failures(TREE), 1, Policy.ROUND_ROBIN))
        far.attach()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for rate in RATES:
            controller = _Controller(rate)
            with serve(controller.attend, "127.0.0.1", 0) as server, tempfile.TemporaryDirectory() as directory:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
                log, state = Path(directory) / "agent.log", f"--state-dir={directory}/state"
                with AgentProcess(["host0"], url, log, [state]) as agent:
                    time.sleep(3.0)
                    before, reported = _seconds(agent.pid), controller.reported
                    time.sleep(AGENT_SECONDS)
                    found["agent_percent"][str(rate)] = round(100 * (_seconds(agent.pid) - before) / AGENT_SECONDS, 2)
                    found["agent_probes"][str(rate)] = round((controller.reported - reported) / AGENT_SECONDS, 1)
                    agent.stop(signal.SIGTERM)
                server.shutdown()
    return found


def _seconds(pid: int) -> float:
    """Return the processor time of a process so far: its own, and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
