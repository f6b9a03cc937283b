"""Helpers of the tests of the whole system: a test's body runs inside a lab with controller and agents."""

import re
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec

from experiments.emulation.processes import AgentProcess
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.runtime.library import icmp
from tests.helpers.frames import label_of
from tests.helpers.veth import ALL, raw_socket
from tests.helpers.waiting import eventually
from topologies import Clos, Host
from topologies.lab.datapath import raise_receive_buffers
from topologies.lab.isolation import isolated

P = ParamSpec("P")
UDP_PORT = 9000
STARTING_BFD_MS, BFD_MS = 1000, 4000
"""Three missing packets are a failure, which no link has only because the machine stands still for some seconds."""
RECEIVE_BYTES = 1 << 24
LATE_SECONDS = 60.0
"""An answer may take so long: most of it is the time in which some process waits for a processor."""
GONE_SECONDS = 1.0
"""So long a test waits for answers that none must send."""
QUICK = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]
"""Options of a controller that uses links again as soon as they are back."""


@contextmanager
def whole(
    fabric: Clos, bfd_ms: int | None = None, probes: bool = False, agent_options: Sequence[str] = (), **options: Any
) -> Iterator[SopaLab]:
    """Start a lab with controller and agents, inside `isolated`.

    Without ``probes`` nothing but the test's own packets is on the way. Where switches get no processor for some seconds, packets
    are late, and neither BFD nor a full buffer loses any; ``bfd_ms`` is for tests that wait for BFD.
    """
    more = [] if probes else ["--no-probes"]
    its = SopaLab(fabric, options.pop("rate_mbit", None), agent_options=[*agent_options, *more], **options)
    its.lab.bfd_ms = bfd_ms or STARTING_BFD_MS
    with its as lab:
        raise_receive_buffers(lab.lab.ovs.pid(), RECEIVE_BYTES)
        if bfd_ms is None and lab.lab.bfd:
            slow_bfd(lab)
        yield lab


def slow_bfd(lab: SopaLab, bfd_ms: int = BFD_MS) -> None:
    """Have BFD bear standstills, and wait until one of the lab's start is over.

    It also costs a third of a processor less: for each packet Open vSwitch looks at all ports.
    """
    every = [f"-- set Interface {name} bfd:min_tx={bfd_ms} bfd:min_rx={bfd_ms}" for name, _ in lab.lab.fabric_interfaces()]
    lab.lab.ovs.vsctl(*" ".join(every).split())
    eventually(lambda: failures(lab), {})


def in_isolation(test: Callable[P, None]) -> Callable[P, None]:
    @wraps(test)
    def outside(*arguments: P.args, **named: P.kwargs) -> None:
        def main() -> int:
            test(*arguments, **named)
            return 0

        status = isolated(main)
        if status == 128 + signal.SIGTERM:
            raise KeyboardInterrupt
        assert status == 0

    return outside


@in_isolation
def in_lab(body: Callable[[SopaLab], None], fabric: Clos, **options: Any) -> None:
    """Run a body inside a lab of its own (`whole`); what it asserts there fails the test, with the ends of all logs."""
    with whole(fabric, **options) as lab:
        try:
            body(lab)
        except BaseException:
            for log in sorted(lab.directory.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}")
            raise


def run(lab: SopaLab, host: str, *words: str, check: bool = True) -> str:
    command = ["nsenter", f"--net={lab.lab.netns(host)}", *words]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert not check or done.returncode == 0, f"{host}: {' '.join(words)}: {done.stdout}"
    return done.stdout


def socket_at(lab: SopaLab, host: str, *kind: int) -> socket.socket:
    with inside(lab.lab.netns(lab.tree.host(host))):
        return socket.socket(*kind)


def failures(lab: SopaLab) -> dict[str, str]:
    """Return what has failed, with its reason, as the controller says."""
    return {each["name"]: each["reason"] for each in lab.controller.fabric()["failures"]}


def known(lab: SopaLab, *failed: str) -> None:
    """Wait until exactly these have failed, and all switches and agents know it."""
    eventually(lambda: set(failures(lab)), set(failed))
    in_force(lab)


def in_force(lab: SopaLab) -> None:
    """Wait until every switch and every agent goes by the present version."""
    eventually(lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"] is not None)
    if lab.agent is not None:
        lab.controller.wait_agents(len(lab.labelling))


@contextmanager
def without(lab: SopaLab, *links: str) -> Iterator[None]:
    """Cut links, which all know within the context, and plug them in again."""
    for link in links:
        lab.lab.set_link(link, up=False)
    known(lab, *links)
    yield
    for link in links:
        lab.lab.set_link(link, up=True)


def lost(lab: SopaLab, src: str, dst: str, count: int = 5, interval: float = 0.05, late: float = LATE_SECONDS) -> int:
    """Return the number of unanswered pings: ping(8) would wait for the last answer only twice as long as for the others."""
    identifier = secrets.randbits(16)
    with socket_at(lab, src, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pings:
        pings.connect((str(lab.tree.ip(lab.tree.host(dst))), 0))
        waiting = set(range(count))
        for number in range(count):
            request = icmp.icmp(icmp.ICMP_ECHO_REQUEST, data=icmp.echo(identifier, number, bytes(56)))
            pings.send(request.serialize(bytearray(), None))
            more = number + 1 < count
            due = time.monotonic() + (interval if more else late)
            while (more or waiting) and select.select([pings], [], [], max(0.0, due - time.monotonic()))[0]:
                with suppress(OSError):  # what an ICMP error makes of the call
                    answer = pings.recv(2000)
                    said, _, _ = icmp.icmp.parser(answer[(answer[0] & 15) * 4 :])
                    if said.type == icmp.ICMP_ECHO_REPLY and said.data.id == identifier:
                        waiting.discard(said.data.seq)
        return len(waiting)


def datagrams(lab: SopaLab, src: str, dst: str, count: int, source_port: int) -> list[tuple[int, int] | None]:
    """Send UDP datagrams one by one; the words that they carry on the sender's wire, in order."""
    host, to = lab.tree.host(src), str(lab.tree.ip(lab.tree.host(dst)))
    seen: list[tuple[int, int] | None] = []
    to_port = UDP_PORT.to_bytes(2, "big")
    wire = raw_socket(lab.lab.netns(host), lab.lab.interface(host, 0), ALL)
    with wire, socket_at(lab, src, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        wire.settimeout(LATE_SECONDS)
        sender.bind(("", source_port))
        for number in range(count):
            sender.sendto(b"%d" % number, (to, UDP_PORT))
            while True:
                frame = wire.recv(2000)
                ports = 14 + (frame[14] & 15) * 4
                if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[ports + 2 : ports + 4] == to_port:
                    break
            seen.append(label_of(frame))
    return seen


def agent_of(lab: SopaLab, host: Host, *options: str) -> AgentProcess:
    """An agent for one host of a lab that was started without agents; it does not probe, and sprays datagrams, too."""
    directory = lab.directory / "single"
    directory.mkdir(exist_ok=True)
    interface = f"{lab.lab.interface(host, 0)}@{lab.lab.netns(host)}"
    token = f"--token-file={lab.controller.agent_token_file}"
    arguments: Sequence[str] = [f"--state-dir={directory}", token, "--no-probes", "--spray=all", *options]
    return AgentProcess([interface], lab.controller.url, directory / "agent.log", arguments)


def revalidated(lab: SopaLab) -> None:
    """Wait until Open vSwitch has looked at all that it has cached: what packets have counted and taught, and where they go now."""
    for _ in range(2):  # the first may be the end of a round that began before
        lab.lab.ovs.appctl("revalidator/wait")


def hits(lab: SopaLab, switch: str, entry: str) -> int:
    """Return how many packets those entries of a switch have counted whose text matches a regular expression.

    Open vSwitch pushes what its datapath has counted to the flow entries about twice a second: so this waits for a whole round.
    Packets may still be on their way: a test that has sent some reads until the number is right.
    """
    revalidated(lab)
    lines = (line for line in lab.lab.ovs.ofctl("dump-flows", switch).splitlines() if re.search(entry, line))
    return sum(int(found[1]) for line in lines if (found := re.search(r"n_packets=(\d+)", line)))
