"""An agent at work while other programs change its interface: what it puts right, what it says, and what it never acknowledges.

When it looks, and how often it puts something right, is in tests/unit/agent/test_keeper.py.
"""

import json
import signal
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from sopa_ryu.agent.host.filters import HANDLE, PRIORITY
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import EMPTY
from sopa_ryu.agent.kernel.link_speed import speed
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.agent_controller import AgentHost, agent_controller
from tests.helpers.frames import FAR, word_of
from tests.helpers.veth import IPV4, Pair, frames, raw_socket, run
from tests.helpers.waiting import Containing, eventually

NOT_IN_FORCE = 4000


class Host(AgentHost):
    """A host with an agent on ``host0``, and its controller."""

    _numbers = count(500)

    def at_work(self) -> None:
        self.acknowledge()
        assert self.labels()

    def labels(self) -> bool:
        """Send a few datagrams; return True if all have a label."""
        # an interface that has just come up may drop some
        sent = eventually(self._datagrams, lambda sent: len(sent) == 8)
        return all(word_of(frame) for frame in sent)

    def _datagrams(self) -> list[bytes]:
        with raw_socket(self.pair.peer, "peer0", IPV4) as capture:
            with inside(self.pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(8):
                    sender.sendto(b"x", (FAR, 5000))
            return [frame for frame in frames(capture, 0.2) if frame[23] == 17]

    def settings(self) -> tuple[int, int, int, str]:
        """Everything that an agent changes here."""
        [link] = json.loads(self.pair.on_host("ip -d -j link show host0"))
        reordering = int(self.pair.on_host("sysctl -n net.ipv4.tcp_reordering"))
        return int(link["gso_max_segs"]), int(link["mtu"]), reordering, self.pair.on_host("tc qdisc show dev host0")

    def changed(self, command: str, said: str) -> None:
        """Have another program change something, and wait until the agent has put it right."""
        before = self.said().count(said)
        self.pair.on_host(command)
        # a notification: not every change makes one, and the same number again makes none
        self.pair.on_host(f"ip link set host0 txqueuelen {next(self._numbers)}")
        eventually(lambda: self.said().count(said) > before)


@pytest.fixture
def host(pair: Pair, tmp_path: Path) -> Iterator[Host]:
    with agent_controller() as controller:
        yield Host(pair, controller, tmp_path)


def test_what_labelling_needs_is_put_right(host: Host) -> None:
    before = host.settings()
    [link] = json.loads(host.pair.on_host("ip -j link show host0"))
    device = f"sopa{link['ifindex']}"
    with host.agent("--segments=auto") as agent:
        host.at_work()
        assert "the link has 10000 Mbit/s: --segments auto is 1" in host.said()  # what a veth pair says
        for command, said in (
            ("tc qdisc del dev host0 clsact", "the labelling program was removed from host0"),
            (f"ip link del {device}", f"{device} was removed: put right"),
            ("sysctl -qw net.ipv4.tcp_reordering=3", "tcp_reordering was set to 3 instead of 10"),
        ):
            host.changed(command, said)
            host.at_work()
            assert host.controller.connections == 1  # it was right again before anything had to be acknowledged
        for command, said in (
            (f"ip link set {device} down", f"{device} was set down: put right"),
            (f"ip link set {device} gso_max_segs 9", f"gso_max_segs of {device} was set to 9 instead of 1: put right"),
            *[("tc filter del dev host0 egress", "the labelling program was removed from host0")] * 3,
        ):
            host.changed(command, said)
            eventually(host.filters, Containing("sopa_egress"))
        assert "again and again" in host.said()
        host.controller.fail("a0_0-c0_0")
        host.at_work()
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert host.settings() == before
    assert f" {device}@" not in host.pair.on_host("ip -o link show")


def test_nothing_is_acknowledged_while_another_program_has_the_labelling_programs_place(host: Host) -> None:
    with host.agent() as agent, libbpf.Object(EMPTY) as foreign:
        host.at_work()
        with inside(host.pair.host):
            index = socket.if_nametoindex("host0")
            tc.attach(index, foreign.program_fd("empty"), handle=HANDLE, priority=PRIORITY, replace=True)
        eventually(lambda: host.controller.closed, [NOT_IN_FORCE])
        version = host.controller.fail("a0_0-c0_0")
        assert not host.labels()
        eventually(host.said, Containing("cannot be put right: host0 has another program, empty"))
        eventually(host.said, Containing("disconnected from controller"))
        assert not host.controller.connected
        assert host.controller.acknowledged < version
        host.pair.on_host(f"tc filter del dev host0 egress prio {PRIORITY}")
        host.at_work()
        assert host.controller.acknowledged == version
        agent.stop(signal.SIGTERM)


ON_PEER = "nsenter --net=/run/netns/PEER"
BACK = ["ip addr add 10.0.0.2/8 dev host0", "ip link set host0 up"]
AGAIN = ["ip link add host0 mtu 9000 type veth peer name peer0 mtu 9000 netns PEER", *BACK]
AGAIN += [f"{ON_PEER} ip addr add 10.2.1.3/8 dev peer0", f"{ON_PEER} ip link set peer0 up"]
AWAY = [
    (["ip addr del 10.0.0.2/8 dev host0"], BACK[:1]),
    (  # Linux before 6.2 renames an interface only while it is down
        ["ip link set host0 down", "ip link set host0 name host9", "ip link set host9 up"],
        ["ip link set host9 down", "ip link set host9 name host0", "ip link set host0 up"],
    ),
    (["ip link set host0 netns PEER"], [f"{ON_PEER} ip link set host0 netns HOST", *BACK]),
]


def carry_out(host: Host, commands: list[str]) -> None:
    for command in commands:
        for name, path in (("HOST", host.pair.host), ("PEER", host.pair.peer)):
            command = command.replace(name, Path(path).name)
        host.pair.on_host(command)


def leave(host: Host, commands: list[str]) -> None:
    host.log.write_text("")
    carry_out(host, commands)
    eventually(host.said, Containing("is not labelled"))
    eventually(lambda: host.controller.connected, False)


def test_an_interface_that_goes_is_given_back_and_taken_when_it_returns_also_by_a_successor(host: Host) -> None:
    before = host.settings()
    with host.agent() as agent:
        host.at_work()
        for failing, (go, come) in zip(("a0_0-c0_1", "a1_0-c0_0", "a3_0-c0_0"), AWAY, strict=True):
            leave(host, go)
            host.controller.fail(failing)
            carry_out(host, come)
            host.at_work()
        leave(host, ["ip link del host0"])
        agent.stop(signal.SIGKILL)
    host.log.write_text("")
    with host.agent() as successor:
        eventually(host.said, Containing("there is no interface host0"))
        carry_out(host, AGAIN[:1])
        eventually(host.said, Containing("has no IPv4 address"))
        carry_out(host, AGAIN[1:])
        host.controller.fail("a0_0-c0_0")
        host.at_work()
        successor.stop(signal.SIGTERM)
    assert host.settings() == before


def test_a_namespace_of_the_same_name_is_another_one(host: Host) -> None:
    name = Path(host.pair.host).name
    with host.agent() as agent:
        host.at_work()
        run(f"ip netns del {name}")
        eventually(host.said, Containing("is gone, or another namespace"))
        eventually(lambda: host.pair.on_peer("ip -o link"), lambda links: "peer0" not in links)
        run(f"ip netns add {name}")
        host.controller.fail("a0_0-c0_0")
        carry_out(host, AGAIN)
        host.at_work()
        agent.stop(signal.SIGTERM)


def test_an_interface_without_a_speed_says_none(pair: Pair) -> None:
    pair.on_host("ip link add bridge0 type bridge")
    with inside(pair.host):
        assert speed("host0") == 10_000
        assert speed("bridge0") is speed("lo") is speed("nowhere0") is None
