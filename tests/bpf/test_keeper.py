"""An agent at work while other programs change its interface: what it puts right, what it says, and what it never acknowledges."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from experiments.emulation.processes import AgentProcess
from sopa_ryu.agent.filters import HANDLE, PRIORITY
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import EMPTY
from sopa_ryu.agent.kernel.link_speed import speed
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.channel import protocol
from tests.helpers.agent_controller import ADDRESS, AgentController, agent_controller
from tests.helpers.frames import FAR
from tests.helpers.path_tables import table_in_force
from tests.helpers.veth import IPV4, Pair, frames, raw_socket, run
from tests.helpers.waiting import Containing, eventually

NOT_IN_FORCE = 4000


class Host:
    """A host with an agent on ``host0``, and its controller."""

    def __init__(self, pair: Pair, controller: AgentController, directory: Path) -> None:
        self.pair, self.controller, self._directory = pair, controller, directory
        self.log = directory / "agent.log"
        self.log.touch()

    def agent(self, *options: str) -> AgentProcess:
        """An agent, which has not been started."""
        state = f"--state-dir={self._directory / 'state'}"
        return AgentProcess([f"host0@{self.pair.host}"], self.controller.url, self.log, [state, "--wait", *options])

    def at_work(self) -> None:
        """Wait until the version that there is now is in force."""
        eventually(lambda: self.controller.acknowledged, self.controller.view.version)
        assert self.labels()

    def labels(self) -> bool:
        """Send a few datagrams; return True if all have a label."""
        # an interface that has just come up may drop some
        sent = eventually(self._datagrams, lambda sent: len(sent) == 8)
        return all(frame[6:10] == bytes.fromhex("02539e04") for frame in sent)

    def _datagrams(self) -> list[bytes]:
        with raw_socket(self.pair.peer, "peer0", IPV4) as capture:
            with inside(self.pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(8):
                    sender.sendto(b"x", (FAR, 5000))
            return [frame for frame in frames(capture, 0.2) if frame[23] == 17]

    def said(self) -> str:
        return self.log.read_text()

    def filters(self) -> str:
        return self.pair.on_host("tc filter show dev host0 egress")

    def settings(self) -> tuple[int, int, int, str]:
        """Everything that an agent changes here."""
        [link] = json.loads(self.pair.on_host("ip -d -j link show host0"))
        reordering = int(self.pair.on_host("sysctl -n net.ipv4.tcp_reordering"))
        return int(link["gso_max_segs"]), int(link["mtu"]), reordering, self.pair.on_host("tc qdisc show dev host0")


@pytest.fixture
def host(pair: Pair, tmp_path: Path) -> Iterator[Host]:
    with agent_controller() as controller:
        yield Host(pair, controller, tmp_path)


@pytest.mark.parametrize("removal", ["tc qdisc del dev host0 clsact", "tc filter del dev host0 egress"])
def test_a_program_that_is_removed_is_attached_again(host: Host, removal: str) -> None:
    before = host.settings()
    with host.agent() as agent:
        host.at_work()
        host.pair.on_host(removal)
        eventually(host.filters, Containing("sopa_egress"))
        assert host.labels()
        eventually(host.said, Containing("the labelling program was removed from host0"))
        host.controller.fail("a0_0-c0_0")
        host.at_work()
        assert host.controller.connections == 1  # it was right again before anything had to be acknowledged
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert host.settings() == before


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


def test_nothing_that_a_malicious_controller_sends_harms_the_path_table_in_the_kernel(host: Host) -> None:
    def in_force() -> PathTable | None:
        return table_in_force("host0", host.pair.host)

    version = host.controller.fail("a2_0-c0_1")
    with host.agent() as agent:
        host.at_work()
        table = in_force()
        assert table is not None
        assert set(table.candidates(IPv4Address(FAR)) or ()) == {(0, 0), (1, 0), (1, 1)}
        snapshot = json.loads(protocol.snapshot(host.controller.view._replace(version=version + 1), ADDRESS))
        delta = {"type": "delta", "epoch": 7, "base": version, "version": version + 1, "failed": {}, "healed": []}
        wrong: list[dict[str, object]] = [
            {**snapshot, "host": "10.0.0.3"},
            {**snapshot, "version": version - 1},
            {**snapshot, "k": 5},
            {**snapshot, "failures": {"a9_9": "down"}},
            {**delta, "failed": {"x": "down"}},
            {**delta, "healed": ["c0_0"]},
        ]
        for number, text in enumerate(["{", b"\x00\xff", "[]", *map(json.dumps, wrong)], 1):
            host.controller.send(text)
            eventually(lambda: host.controller.refused, number)
            assert in_force() == table
        assert host.controller.acknowledged == version
        host.controller.send("x" * (protocol.MAX_MESSAGE_BYTES + 1))
        eventually(lambda: host.controller.connections, 2)
        assert in_force() == table
        host.controller.fail("c0_0")
        host.at_work()
        assert in_force() != table
        agent.stop(signal.SIGTERM)


def test_a_program_that_is_removed_again_and_again_is_put_right_ever_more_rarely(host: Host) -> None:
    done = threading.Event()

    def fight() -> None:
        while not done.wait(0.05):
            if "sopa_egress" in host.filters():
                host.pair.on_host("tc filter del dev host0 egress")

    with host.agent() as agent:
        host.at_work()
        other = threading.Thread(target=fight)
        other.start()
        try:
            eventually(host.said, Containing("again and again"), seconds=120)
        finally:
            done.set()
            other.join()
        assert host.said().count("put right") <= 5
        eventually(lambda: host.controller.closed, Containing(NOT_IN_FORCE))
        host.controller.fail("a0_0-c0_0")
        host.at_work()
        agent.stop(signal.SIGTERM)


AWAY = {
    "renamed": (  # Linux before 6.2 renames an interface only while it is down
        ["ip link set host0 down", "ip link set host0 name host9", "ip link set host9 up"],
        ["ip link set host9 down", "ip link set host9 name host0", "ip link set host0 up"],
    ),
    "address": (["ip addr del 10.0.0.2/8 dev host0"], ["ip addr add 10.0.0.2/8 dev host0"]),
    "deleted": (
        ["ip link del host0"],
        [
            "ip link add host0 mtu 9000 type veth peer name peer0 mtu 9000 netns PEER",
            "ip addr add 10.0.0.2/8 dev host0",
            "ip link set host0 up",
            "nsenter --net=/run/netns/PEER ip addr add 10.2.1.3/8 dev peer0",
            "nsenter --net=/run/netns/PEER ip link set peer0 up",
        ],
    ),
    "moved": (
        ["ip link set host0 netns PEER"],
        [
            "nsenter --net=/run/netns/PEER ip link set host0 netns HOST",
            "ip addr add 10.0.0.2/8 dev host0",
            "ip link set host0 up",
        ],
    ),
}


def carry_out(host: Host, commands: list[str]) -> None:
    for command in commands:
        for name, path in (("HOST", host.pair.host), ("PEER", host.pair.peer)):
            command = command.replace(name, Path(path).name)
        host.pair.on_host(command)


@pytest.mark.parametrize("kind", AWAY)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_interface_that_goes_is_given_back_and_taken_when_it_returns(host: Host, kind: str, end: str) -> None:
    before = host.settings()
    go, come = AWAY[kind]
    with host.agent() as agent:
        host.at_work()
        carry_out(host, go)
        eventually(host.said, Containing("is not labelled"))
        eventually(lambda: host.controller.connected, False)
        version = host.controller.fail("a0_0-c0_0")
        if end == "kill":
            agent.stop(signal.SIGKILL)
        carry_out(host, come)
        if end == "stop":
            host.at_work()
            assert host.controller.acknowledged == version
            agent.stop(signal.SIGTERM)
    if end == "kill":
        with host.agent() as successor:
            host.at_work()
            successor.stop(signal.SIGTERM)
    assert host.settings() == before


def test_an_interface_that_is_away_at_the_start_is_waited_for(host: Host) -> None:
    carry_out(host, AWAY["deleted"][0])
    with host.agent() as agent:
        eventually(host.said, Containing("there is no interface host0"))
        commands = AWAY["deleted"][1]
        carry_out(host, commands[:1])
        eventually(host.said, Containing("has no IPv4 address"))
        carry_out(host, commands[1:])
        host.at_work()
        agent.stop(signal.SIGTERM)


def test_a_namespace_of_the_same_name_is_another_one(host: Host) -> None:
    name = Path(host.pair.host).name
    with host.agent() as agent:
        host.at_work()
        run(f"ip netns del {name}")
        eventually(host.said, Containing("is gone, or another namespace"))
        eventually(lambda: host.pair.on_peer("ip -o link"), lambda links: "peer0" not in links)
        run(f"ip netns add {name}")
        host.controller.fail("a0_0-c0_0")
        carry_out(host, AWAY["deleted"][1])
        host.at_work()
        agent.stop(signal.SIGTERM)


@pytest.mark.parametrize(
    ("change", "said", "after"),
    [
        ("sysctl -qw net.ipv4.tcp_reordering=5", "net.ipv4.tcp_reordering was set to 5 instead of 10", "5"),
        ("ip link set host0 mtu 4000", "host0 (must be 3996)", "4000"),
        ("ip link set host0 mtu 9000", "host0 (must be 8996)", "9000"),
    ],
)
def test_a_setting_that_is_changed_is_set_again_and_the_other_programs_value_put_back(
    host: Host, change: str, said: str, after: str
) -> None:
    with host.agent("--carrier=option") as agent:
        eventually(lambda: host.controller.acknowledged, 1)
        assert host.settings()[:3] == (65535, 8996, 10)
        host.pair.on_host(change)
        host.pair.on_host("ip link set host0 txqueuelen 500")  # a notification: sysctls make none
        eventually(host.said, Containing(said))
        eventually(lambda: host.settings()[2], 10)
        eventually(lambda: host.settings()[1], lambda mtu: mtu in (8996, 3996))
        assert host.controller.connections == 1
        agent.stop(signal.SIGTERM)
    assert after in re.findall(r"\d+", str(host.settings()[:3]))


def test_the_speed_of_the_link_decides_how_many_packets_share_a_label(host: Host) -> None:
    with host.agent("--segments=auto") as agent:
        host.at_work()
        assert "the link has 10000 Mbit/s: --segments auto is 1" in host.said()  # what a veth pair says
        assert host.pair.on_host("ip -o link show type macvlan").count("sopa") == 1
        agent.stop(signal.SIGTERM)


def test_an_interface_without_a_speed_says_none(pair: Pair) -> None:
    pair.on_host("ip link add bridge0 type bridge")
    with inside(pair.host):
        assert speed("host0") == 10_000
        assert speed("bridge0") is speed("lo") is speed("nowhere0") is None


@pytest.mark.parametrize(
    ("options", "change", "said"),
    [
        (["--segments=4"], "ip link set host0 gso_max_segs 9", "gso_max_segs of host0 was set to 9 instead of 4"),
        ([], "ip link del {device}", "{device} was removed"),
        ([], "ip link set {device} down", "{device} was set down"),
        ([], "ip link set {device} gso_max_segs 9", "gso_max_segs of {device} was set to 9 instead of 1"),
    ],
)
def test_bursts_are_again_as_labelling_needs_them_after_another_program_changed_that(
    host: Host, options: list[str], change: str, said: str
) -> None:
    before = host.settings()
    [link] = json.loads(host.pair.on_host("ip -j link show host0"))
    device = f"sopa{link['ifindex']}"
    with host.agent(*options) as agent:
        host.at_work()
        host.pair.on_host(change.format(device=device))
        host.pair.on_host("ip link set host0 txqueuelen 500")  # a notification: gso_max_segs makes none
        eventually(host.said, Containing(f"{said.format(device=device)}: put right"))
        host.at_work()
        agent.stop(signal.SIGTERM)
    assert host.settings()[:3] == ((9, *before[1:3]) if options else before[:3])
    assert f" {device}@" not in host.pair.on_host("ip -o link show")
