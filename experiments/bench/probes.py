"""What path probes cost: the program's time for a probe and for other packets, the agent's processor time, and TCP beside it.

Run as root: ``make bench ARGS=probes``.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from experiments.bench.frame import Figures, Results, added_ns, cores, in_lab, medians, side_by_side
from experiments.bench.host_pair import HOST, PEER, PEER_NETNS, TREE, join, tcp_figures
from experiments.bench.programs import tcp_frame
from experiments.emulation.processes import AgentProcess
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf, tc, xdp
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.probing.frames import Ends, ProbeFrame
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen, random_key, settings
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


def probes() -> Results:
    """Measure all of it.

    ``turn_ns``: medians of the time of a probe turned round, with each carrier, less that of writing it anew; ``ordinary_ns``: of
    packets that are no probes, less that of an empty program; ``agent_percent``: processor time of an agent by its probes a second.
    """
    build()
    return {**_program(), **_in_lab()}


# -- the program ----------------------------------------------------------------------------------------------------------


def _program() -> Results:
    ordinary = {}
    with libbpf.Object(EMPTY) as empty_object:
        empty, program = empty_object.program_fd("empty"), ProbeProgram(_ends(THERE))
        try:
            user = bytes(ProbeFrame(_ends(HERE), Stream(THERE, 0, 1), 1).numbered(0, 0))
            for name, frame in {
                "tcp": tcp_frame(str(HERE), str(THERE)),
                "as_long_as_a_probe": tcp_frame(str(HERE), str(THERE), len(user)),
            }.items():
                ordinary[name] = added_ns(program.program_fd, empty, frame, ROUNDS, REPEAT)
        finally:
            program.close()
    turned = {str(carrier): _turn_ns(carrier) for carrier in Carrier if carrier is not Carrier.SRV6}
    return {"turn_ns": turned, "ordinary_ns": ordinary, "limit_turn_ns": MAX_TURN_NS}


def _turn_ns(carrier: Carrier) -> float:
    build([_OBJECT], force=True)  # it is made of another source, too
    ends = _ends(THERE, carrier)
    frame = bytes(ProbeFrame(_ends(HERE, carrier), Stream(THERE, 0, 1), 1).numbered(0, 0))
    with libbpf.Object(_OBJECT) as program:
        libbpf.update(program.map_fd("probe_settings"), _ONLY, settings(ends, most=0, key=random_key()))
        libbpf.update(program.map_fd("restored"), _ONLY, frame.ljust(108, b"\0"))
        both, alone = program.program_fd("restore_and_turn"), program.program_fd("restore_only")
        took = added_ns(both, alone, frame, ROUNDS, REPEAT)
        values = libbpf.lookup(
            program.map_fd("probe_counters"), Seen.ANSWERED.to_bytes(4, sys.byteorder), 8 * libbpf.possible_cpus()
        )
    answered = sum(int.from_bytes((values or b"")[at : at + 8], sys.byteorder) for at in range(0, len(values or b""), 8))
    if answered != (ROUNDS + 1) * REPEAT:
        raise RuntimeError(f"{answered} of {(ROUNDS + 1) * REPEAT} probes were answered")
    return took


def _ends(address: IPv4Address, carrier: Carrier = Carrier.MAC) -> Ends:
    return Ends(address, b"\x02\x00" + address.packed, _GATEWAY, carrier, 1, 2)


# -- between two hosts ----------------------------------------------------------------------------------------------------


@in_lab
def _in_lab() -> Results:
    join()
    return {"tcp": _tcp(), **_agents()}


def _tcp() -> dict[str, Figures]:
    arms = {name: partial(_at_ingress, name) for name in ("nothing", "tc", "xdp_native", "xdp_generic")}
    return {name: medians(figures) for name, figures in side_by_side(TCP_ROUNDS, arms, tcp_figures).items()}


@contextmanager
def _at_ingress(what: str) -> Iterator[None]:
    """Have the program at tc ingress of both hosts, or one that passes everything on at XDP."""
    with ExitStack() as stack:
        for ifname, netns, address in (("host0", None, HERE), ("peer0", PEER_NETNS, THERE)):
            with inside(netns):
                ifindex = socket.if_nametoindex(ifname)
                if what == "tc":
                    program = ProbeProgram(_ends(address))
                    stack.callback(program.close)
                    tc.create_clsact(ifindex)
                    fd, point = program.program_fd, tc.Point.INGRESS
                    tc.attach(ifindex, fd, handle=_HANDLE, priority=_PRIORITY, replace=False, point=point)
                    stack.callback(_detached, netns, tc.destroy_clsact, ifindex)
                elif what != "nothing":
                    mode = xdp.Mode(what.removeprefix("xdp_"))
                    fd = stack.enter_context(libbpf.Object(EMPTY)).program_fd("empty_xdp")
                    xdp.attach(ifindex, fd, mode, None)
                    stack.callback(_detached, netns, xdp.detach, ifindex, fd, mode)
        yield


def _detached(netns: str | None, detach: Callable[..., object], *arguments: object) -> None:
    with inside(netns):
        detach(*arguments)


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


def _agents() -> Results:
    percent: Figures = {}
    sent: Figures = {}
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
                    reported = controller.reported
                    percent[str(rate)] = round(100 * cores(agent.pid, AGENT_SECONDS, 4), 2)
                    sent[str(rate)] = round((controller.reported - reported) / AGENT_SECONDS, 1)
                    agent.stop(signal.SIGTERM)
                server.shutdown()
    return {"agent_percent": percent, "agent_probes": sent, "limit_percent": MAX_PERCENT}
