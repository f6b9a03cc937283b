"""The lab on the kernel's datapath of Open vSwitch: what the rules use stays in its megaflows, and no packet goes up to user space.

Only a kernel with the module openvswitch runs these, so that no other target selects them: ``make test-kernel`` boots one.
"""

import fcntl
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments.emulation.sopa_lab import SopaLab
from flowrules import label
from flowrules.label import Carrier
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import UDP_PORT, agent_of, datagrams, in_lab, lost, run
from tests.helpers.waiting import eventually
from topologies import FatTree, Level
from topologies.lab.datapath import DatapathKind, choose
from topologies.lab.faults import set_silent

SRC, DST = "h0_0_2", "h2_1_3"
BURST = 400
PATIENCE = 600.0
BFD_MS = 5000  # an emulated machine is late
NEW_FLOWS = 60  # megaflows that may be new in a burst: those of BFD, and others that expired in between (after 10 s)
HOPS = 5


def in_kernel_lab(body: Callable[[SopaLab], None], rate_mbit: float | None = None, **options: Any) -> None:
    """Run a test's body inside a k=4 lab on the kernel's datapath, without agents."""
    in_lab(body, FatTree(4), rate_mbit=rate_mbit, bfd_ms=BFD_MS, agents=False, datapath=DatapathKind.KERNEL, **options)


class Lookups(NamedTuple):
    """What the datapath has counted: packets that a megaflow decided, and packets that went up to user space."""

    hit: int
    missed: int
    lost: int


def lookups(lab: SopaLab) -> Lookups:
    found = re.search(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)", lab.lab.ovs.appctl("dpctl/show"))
    assert found is not None
    return Lookups(*map(int, found.groups()))


def megaflows(lab: SopaLab) -> list[str]:
    return lab.lab.ovs.appctl("dpctl/dump-flows", "-m").splitlines()


def udp(lab: SopaLab, host: str) -> socket.socket:
    with inside(lab.lab.netns(host)):
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def burst(lab: SopaLab, count: int) -> Lookups:
    """Send datagrams from one socket to one other, and return what the datapath has counted for them."""
    sink, sender = udp(lab, DST), udp(lab, SRC)
    with sink, sender:
        sink.bind(("", UDP_PORT))
        sink.settimeout(PATIENCE)
        sender.bind(("", 7009))
        sender.connect((str(lab.tree.ip(lab.tree.host(DST))), UDP_PORT))

        def send(packets: int) -> None:
            for _ in range(packets):
                sender.send(bytes(64))
                sink.recv(2000)

        send(16)  # every path, so that each switch has its megaflows
        before = lookups(lab)
        send(count)
        after = lookups(lab)
    return Lookups(*(now - then for now, then in zip(after, before, strict=True)))


@pytest.mark.parametrize("carrier", [each for each in Carrier if each is not Carrier.SRV6])
def test_labelled_packets_stay_in_the_kernel(carrier: Carrier) -> None:
    def body(lab: SopaLab) -> None:
        pinged(lab, SRC, DST, 3, 0.5)
        with (
            agent_of(lab, lab.tree.host(SRC), f"--carrier={carrier}"),
            agent_of(lab, lab.tree.host(DST), f"--carrier={carrier}", f"--state-dir={lab.directory}/other"),
        ):
            lab.controller.wait_agents(2, PATIENCE)
            assert set(datagrams(lab, SRC, DST, 16, 7001)) == set(lab.tree.choices(lab.tree.kind(*map(lab.tree.host, (SRC, DST)))))
            before = lab.lab.port_packets(Level.CORE)
            counted = burst(lab, BURST)
            assert counted.lost == 0
            assert counted.hit >= HOPS * BURST
            assert counted.missed <= NEW_FLOWS
            now = lab.lab.port_packets(Level.CORE)
            assert min(now[name] - before[name] for name in now) >= BURST // 4
            flows = "\n".join(megaflows(lab))
            assert "eth(src=02:53:9e:04:01:00/ff:ff:ff:ff:ff:00" in flows  # an edge switch
            assert "eth(src=02:53:9e:04:00:01/ff:ff:ff:ff:00:ff" in flows  # an aggregation switch
            # full-size segments of TCP pass with either carrier, and all of them arrive
            command = ["nsenter", f"--net={lab.lab.netns(DST)}", "iperf3", "-s", "-1"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            eventually(lambda: ":5201 " in run(lab, DST, "ss", "-ltn"), seconds=PATIENCE)
            before_tcp = lookups(lab)
            run(lab, SRC, "iperf3", "-c", str(lab.tree.ip(lab.tree.host(DST))), "-n", "1M")
            assert server.wait(PATIENCE) == 0
            assert lookups(lab).missed - before_tcp.missed <= 2 * NEW_FLOWS
            assert lookups(lab).lost == 0

    in_kernel_lab(body, carrier=carrier)


def pinged(lab: SopaLab, src: str, dst: str, count: int, interval: float) -> None:
    """Check that no ping is lost, however late its answer."""
    assert lost(lab, src, dst, count, interval, late=60.0) == 0


def test_unlabelled_packets_arp_failover_bfd_and_drains() -> None:
    def body(lab: SopaLab) -> None:
        for dst in ("h0_0_3", "h0_1_2", DST):
            pinged(lab, SRC, dst, 3, 0.5)
        counted = burst(lab, BURST)
        assert counted.hit >= HOPS * BURST
        assert counted.missed <= NEW_FLOWS
        run(lab, SRC, "ip", "neigh", "flush", "all")
        pinged(lab, SRC, "h0_0_3", 2, 0.5)
        assert "lladdr 02:00:00:00:00:01" in run(lab, SRC, "ip", "neigh", "show", "10.0.0.3")
        drained(lab)
        silent(lab)
        failover(lab)

    in_kernel_lab(body, controller_options=["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"])


def drained(lab: SopaLab) -> None:
    """Drain a core switch: traced, labels of its paths are not followed; pinged, nothing is lost."""

    def by(up: tuple[int, int]) -> str:
        flow = f"in_port=1,icmp,dl_src={label.carrier_mac(up)},dl_dst=02:00:00:00:00:01"
        said = lab.lab.ovs.appctl("ofproto/trace", "a0_0", f"{flow},nw_src=10.0.0.2,nw_dst=10.2.1.3,nw_ttl=64")
        return said.rpartition("Datapath actions: ")[2].strip()

    usual = {up2: by((0, up2)) for up2 in (0, 1)}
    assert usual[0] != usual[1]
    assert lab.controller.change("PUT", "/drains/c0_0").status_code < 300
    eventually(lambda: by((0, 0)), usual[1], seconds=PATIENCE)
    eventually(lambda: lab.controller.fabric()["failures"] != [], seconds=PATIENCE)
    carried = lab.lab.port_packets(Level.CORE)["c0_0"]
    pinged(lab, SRC, DST, 20, 0.1)
    assert lab.lab.port_packets(Level.CORE)["c0_0"] == carried
    assert lab.controller.change("DELETE", "/drains/c0_0").status_code < 300
    eventually(lambda: by((0, 0)), usual[0], seconds=PATIENCE)
    pinged(lab, SRC, DST, 5, 0.1)


def silent(lab: SopaLab) -> None:
    """Let a link lose packets in one direction: BFD finds it, and its sessions do not need the kernel to forward anything."""
    set_silent(lab.lab, "a0_0-c0_1", "c0_1", True)
    eventually(lambda: "silent" in str(lab.controller.get("/failures").json()), seconds=PATIENCE)
    pinged(lab, SRC, DST, 10, 0.1)
    set_silent(lab.lab, "a0_0-c0_1", "c0_1", False)
    eventually(lambda: lab.controller.fabric()["failures"], [], seconds=PATIENCE)


def failover(lab: SopaLab) -> None:
    """Cut an uplink without a controller: the fast-failover groups alone keep labelled packets off it."""
    with agent_of(lab, lab.tree.host(SRC)):
        lab.controller.wait_agents(1, PATIENCE)
        assert None not in datagrams(lab, SRC, DST, 8, 7003)
        lab.controller.stop(signal.SIGKILL)
        lab.lab.set_link("e0_0-a0_1", up=False)
        for _ in range(2):
            lab.lab.ovs.appctl("revalidator/wait")
        before = lookups(lab)
        pinged(lab, SRC, DST, 40, 0.05)
        assert {up for up in datagrams(lab, SRC, DST, 8, 7004) if up} == {(0, 0), (1, 0), (0, 1), (1, 1)}
        assert lookups(lab).missed - before.missed <= 2 * NEW_FLOWS


def test_a_switch_takes_packets_off_their_senders_account() -> None:
    def body(lab: SopaLab) -> None:
        edge = lab.tree.edge_of(lab.tree.host("h0_0_3"))
        port = lab.lab.interface(edge, lab.tree.port(edge, lab.tree.host("h0_0_3")))
        pinged(lab, SRC, "h0_0_3", 2, 0.5)
        slow = f"tc qdisc replace dev {port} root tbf rate 800bit burst 1600 limit 100000"
        subprocess.run(slow.split(), check=True)
        with udp(lab, SRC) as sender:
            for _ in range(20):
                sender.sendto(bytes(1000), (str(lab.tree.ip(lab.tree.host("h0_0_3"))), UDP_PORT))

            def outstanding() -> int:
                answer = fcntl.ioctl(sender.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
                return int(struct.unpack("i", answer)[0])

            eventually(outstanding, 0, seconds=PATIENCE)
            waiting = re.search(r"backlog \w+ (\d+)p", shown("tc", "-s", "qdisc", "show", "dev", port))
            assert waiting is not None
            assert int(waiting[1]) > 5

    in_kernel_lab(body, rate_mbit=20)


def test_nothing_of_a_killed_lab_is_left_and_the_next_one_starts(tmp_path: Path) -> None:
    words = ["lab", "--k", "2", "--datapath", "kernel", "--no-agents", "--rate", "20", "--script"]
    command = [sys.executable, "-m", "sopa_ryu.cli", *words]
    waits, lists = tmp_path / "waits", tmp_path / "lists"
    waits.write_text("h0_0_2 sleep 3600\n")
    lists.write_text("sh ovs-dpctl dump-dps\n")
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, str(waits)], stdout=pipe, stderr=subprocess.STDOUT, text=True) as lab:
        assert lab.stdout is not None
        assert any("kernel datapath" in line for line in lab.stdout), "the lab did not start"
        lab.kill()
    eventually(lambda: "ovs-vswitchd" in shown("ps", "-eo", "comm"), False, seconds=PATIENCE)
    assert "ovs-system" not in shown("ovs-dpctl", "dump-dps")
    assert choose(None) is DatapathKind.KERNEL
    done = subprocess.run([*command, str(lists)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "ovs-system" in done.stdout + done.stderr


def shown(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
