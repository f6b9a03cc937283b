"""The program on a real interface: what is on the wire and left behind, bursts that are cut, and packets of containers."""

import os
import socket
import struct
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf, segmentation
from sopa_ryu.agent.kernel.build import EGRESS, EMPTY, FLAGS, OBJECTS, _multiarch
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.netns import NetnsError, cookie, inside
from sopa_ryu.agent.label.spray import Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.cli.doctor import _addresses, check_bursts, check_ipv6, check_size
from tests.bpf.labelling import kill_agent, labelling, with_ipv6
from tests.helpers.frames import FAR, HERE6, INTER_POD, label_of, table, tcp, word_of
from tests.helpers.path_tables import flow_positions
from tests.helpers.veth import ALL, IPV4, PEER_ADDRESS, Pair, frames, raw_socket, run, transfer
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from topologies import FatTree, Host
from topologies.identity import PREFIX6, Family

ROOT = Path(__file__).parents[2]
DATA = os.urandom(3_000_000)
CARRIERS = pytest.mark.parametrize("carrier", [each for each in Carrier if each is not Carrier.SRV6])
"""Those whose packets a host receives; lists of uSIDs end at a router (tests/lab)."""


def clsact(pair: Pair) -> bool:
    return "clsact" in pair.on_host("tc qdisc show dev host0")


def egress_filters(pair: Pair) -> str:
    return pair.on_host("tc filter show dev host0 egress")


def test_headers_outside_the_linear_part_of_the_buffer_are_read(pair: Pair) -> None:
    frame = tcp().ljust(6000, b"z")  # more than a page, or the kernel makes it linear anyway
    with (
        raw_socket(pair.peer, "peer0", IPV4) as capture,
        raw_socket(pair.host, "host0", 0) as sender,
        Labeller("host0", netns=pair.host) as labeller,
    ):
        labeller.swap(table())
        labeller.attach()
        sender.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        sender.send(struct.pack("=BBHHHH", 0, 0, 14, 0, 0, 0) + frame)  # linear: the Ethernet header only
        [got] = frames(capture)
        assert word_of(got) in INTER_POD
        assert got[12:] == frame[12:]
        assert labeller.counters()["labelled"] == 1


def test_detach_leaves_nothing(pair: Pair) -> None:
    before = pair.on_host("tc qdisc show dev host0")
    noted: list[bool] = []
    labeller = Labeller("host0", netns=pair.host, on_clsact=noted.append)
    labeller.load()
    assert pair.on_host("tc qdisc show dev host0") == before  # loading alone changes nothing
    labeller.attach()
    labeller.attach()
    assert egress_filters(pair).count("sopa_egress:[") == 1
    labeller.detach()
    labeller.detach()
    labeller.close()
    assert pair.on_host("tc qdisc show dev host0") == before
    assert noted == [True, False]


@pytest.mark.parametrize("stranger", ["ingress", "egress", None])
@pytest.mark.parametrize("ours", [False, True])
def test_a_clsact_that_somebody_else_uses_or_made_survives(pair: Pair, stranger: str | None, ours: bool) -> None:
    if not ours:
        pair.on_host("tc qdisc add dev host0 clsact")
    with Labeller("host0", netns=pair.host) as labeller:
        labeller.attach()
        if stranger:
            pair.on_host(f"tc filter add dev host0 {stranger} protocol ip prio 77 u32 match u32 0 0 flowid 1:1")
    assert clsact(pair) is (stranger is not None or not ours)
    if stranger:
        assert "pref 77 u32" in pair.on_host(f"tc filter show dev host0 {stranger}")
    assert not clsact(pair) or "sopa" not in egress_filters(pair)


def state_of(pair: Pair) -> list[str]:
    shows = ("sysctl net.ipv4.tcp_reordering", "ip -d link show dev host0", "tc qdisc show dev host0")
    return [pair.on_host(show) for show in shows]


@pytest.mark.parametrize(("carrier", "successor"), [(Carrier.OPTION, Carrier.OPTION), *pairwise((*Carrier, Carrier.MAC))])
def test_the_successor_of_a_killed_agent_labels_from_packet_to_packet_and_restores_the_saved_settings(
    pair: Pair, tmp_path: Path, carrier: Carrier, successor: Carrier
) -> None:
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=4")
    pair.on_host("ip link set host0 gso_max_segs 44")
    before = state_of(pair)
    # killed twice: the second must not save the first one's values as the host's own
    assert [kill_agent(pair, tmp_path, carrier) for _ in range(2)] == [False, True]
    done, sent = threading.Event(), 0

    def keep_sending() -> None:
        nonlocal sent
        with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not done.wait(0.001):  # what nobody reads meanwhile has to fit
                sender.sendto(b"x" * 100, (FAR, 5000))
                sent += 1

    with raw_socket(pair.peer, "peer0", ALL) as capture:
        sender = threading.Thread(target=keep_sending)
        sender.start()
        eventually(lambda: sent >= 2 * len(INTER_POD))  # by the killed agent's program
        with labelling(pair, tmp_path, successor, paths=table(inter_pod=((7, 7), (8, 8)))) as labeller:
            eventually(lambda: labeller.counters()["labelled"])
            assert ("sopa_strip" in pair.on_host("tc filter show dev host0 ingress")) is (successor is Carrier.OPTION)
            done.set()
            sender.join()
        taken = {label_of(frame) for frame in frames(capture)} - {None}
    assert {*INTER_POD} <= taken <= {*INTER_POD, (7, 7), (8, 8)}
    assert state_of(pair) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ifname": "nowhere0"}, libbpf.AttachError, "no interface nowhere0"),
        ({"object_file": Path("missing.o")}, libbpf.BpfLoadError, r"python -m sopa_ryu\.agent\.kernel\.build"),
        ({"object_file": "damaged"}, libbpf.BpfLoadError, r"cannot read .*damaged\.o"),
        ({"object_file": EMPTY}, libbpf.BpfLoadError, "no map flows"),
        ({"flows": 0}, ValueError, "at least one flow"),
        ({"netns": "/run/netns/sopatest-none"}, NetnsError, "no network namespace at /run/netns/sopatest-none"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(EGRESS.read_bytes()[:200])
    if options.get("object_file") == "damaged":
        options = {"object_file": damaged}
    with pytest.raises(error, match=message):
        Labeller(**{"ifname": "lo", **options}).load()


@pytest.mark.parametrize("target", OBJECTS, ids=lambda target: target.stem)
def test_this_kernels_verifier_takes_every_program(target: Path) -> None:
    with libbpf.Object(target) as its:
        assert its.loaded


def test_a_refusal_by_the_verifier_comes_with_its_log(tmp_path: Path) -> None:
    source = tmp_path / "wild.c"
    program = 'SEC("tc") int wild(struct __sk_buff *skb) { return *(__u8 *)(long)skb->data; }'
    source.write_text(f"#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n{program}\n")
    words = ["clang", *FLAGS, f"-I/usr/include/{_multiarch()}", "-c", source, "-o", tmp_path / "wild.o"]
    subprocess.run(words, check=True)
    with pytest.raises(libbpf.BpfLoadError, match="invalid access to packet"):
        libbpf.Object(tmp_path / "wild.o").load()


def test_without_privileges_the_error_says_so() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); from sopa_ryu.agent.labeller import Labeller; Labeller('lo').load()"
    # a user namespace takes the privileges away and leaves the files readable, wherever this checkout lies
    command = ["unshare", "--user", sys.executable, "-c", program, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BpfUnavailable" in done.stderr
    assert "Run as root" in done.stderr


def test_inside_returns_to_the_threads_own_namespace(pair: Pair) -> None:
    home = cookie()
    with inside(pair.host):
        there = cookie()
        with inside(pair.peer):
            assert cookie() not in (home, there)
        assert cookie() == there
    assert cookie() == home
    with pytest.raises(RuntimeError, match="boom"), inside(pair.host):
        raise RuntimeError("boom")
    assert cookie() == home


@CARRIERS
@pytest.mark.parametrize("offload", ["on", "off"])
def test_every_packet_of_a_burst_takes_the_next_path(pair: Pair, tmp_path: Path, carrier: Carrier, offload: str) -> None:
    pair.on_host(f"ethtool -K host0 tso {offload} gso {offload}")
    wire = raw_socket(pair.peer, "peer0", IPV4)
    with wire, labelling(pair, tmp_path, carrier) as labeller:
        assert transfer(pair, DATA) == DATA
        packets, paths = labeller.counted.by_reason(), labeller.counted.by_path(FatTree(8))
        got = [frame for frame in frames(wire) if frame[26:30] == bytes([10, 0, 0, 2])]
        [position] = flow_positions(labeller).values()
    assert packets[Handling.CUT] > 0
    assert packets[Handling.GSO] == packets[Handling.FORWARDED] == 0
    used = Counter({label: count for label, count in paths.items() if count})
    assert used == Counter(map(label_of, got))
    assert max(map(len, got)) <= 14 + 9000
    assert set(used) == set(INTER_POD)
    assert max(used.values()) - min(used.values()) <= 1
    assert used.total() == packets[Handling.LABELLED] == position > len(DATA) / 9000


@CARRIERS
def test_bursts_of_a_limited_size_have_one_label_each(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    with labelling(pair, tmp_path, carrier, segments=4) as labeller:
        assert transfer(pair, DATA) == DATA
        packets = labeller.counted.by_reason()
    assert packets[Handling.CUT] == 0
    assert 0 < packets[Handling.GSO] <= packets[Handling.LABELLED]
    segments = len(DATA) / 8948
    assert segments / 4 <= packets[Handling.LABELLED] < segments


def test_bursts_that_get_no_label_are_not_cut(pair: Pair, tmp_path: Path) -> None:
    pair.on_peer("ip addr add 192.0.2.1/32 dev peer0")
    pair.on_host("ip route add 192.0.2.1 dev host0")
    with labelling(pair, tmp_path) as labeller:
        assert transfer(pair, DATA, target="192.0.2.1") == DATA
        packets = labeller.counted.by_reason()
    assert packets[Handling.CUT] == packets[Handling.LABELLED] == 0
    assert 0 < packets[Handling.OUTSIDE] < len(DATA) / 9000


@CARRIERS
def test_a_transfer_outlives_its_segmentation_device(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    """While it is not there, bursts have one label each: the kernel itself takes the device out of the program's map."""
    big, cut = DATA * 20, 0
    with labelling(pair, tmp_path, carrier) as labeller:

        def remove() -> None:
            nonlocal cut
            cut = labeller.counted.by_reason()[Handling.CUT]
            with inside(pair.host):
                segmentation.remove(ifindex(pair))

        assert transfer(pair, big, pieces=60, halfway=remove) == big
        assert cut > 20
        assert labeller.counted.by_reason()[Handling.GSO] > 0


@pytest.mark.parametrize(
    ("segments", "change", "text", "is_right"),
    [
        (1, "true", "bursts are cut by sopa{}", True),
        (1, "ip link set sopa{} down", "sopa{} was set down", False),
        (1, "ip link del sopa{}", "up to 65535 packets of a burst share a label", False),
        (16, "true", "up to 16 packets of a burst share a label", True),
    ],
)
def test_the_doctor_says_what_is_done_about_bursts(
    pair: Pair, tmp_path: Path, segments: int, change: str, text: str, is_right: bool
) -> None:
    with labelling(pair, tmp_path, segments=segments):
        pair.on_host(change.format(ifindex(pair)))
        with inside(pair.host):
            finding = check_bursts("host0")
    assert (finding.right, finding.text) == (is_right, text.format(ifindex(pair)))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("true", []),
        ("ip address add {address}9/128 dev host0 nodad; ip address del {address}/128 dev host0", ["no address {address}"]),
        ("ip address del {address}/128 dev host0", []),
        ("ip address del {address}/128 dev host0; ip address add {address}/64 dev host0", ["{address}/64"]),
        ("ip -6 route del default", ["other hosts by no gateway"]),
        ("sysctl -w net.ipv6.conf.host0.accept_ra=1", ["accept_ra is 1"]),
        ("sysctl -w net.ipv6.conf.host0.disable_ipv6=1", []),
    ],
)
def test_the_doctor_says_what_a_host_lacks_for_ipv6(pair: Pair, change: str, wrong: list[str]) -> None:
    family, host = Family(PREFIX6), Host(0, 0, 2)
    address, gateway = family.address(host), family.gateway(host)
    pair.on_host("sysctl -w net.ipv6.conf.host0.disable_ipv6=0 net.ipv6.conf.host0.accept_ra=0")
    pair.on_host(f"ip address add {address}/128 dev host0 nodad")
    pair.on_host(f"ip -6 route replace default via {gateway} dev host0 onlink")
    for command in change.format(address=address).split("; "):
        pair.on_host(command)
    with inside(pair.host):
        shown = _addresses("host0")
        assert shown is not None
        found = list(check_ipv6(family, host, "host0", shown))
    said = [finding.text for finding in found if not finding.right]
    assert ("IPv4 only; for IPv6 " in found[0].text) is (not wrong and change != "true")
    assert len(said) == len(wrong)
    assert all(text.format(address=address) in its for text, its in zip(wrong, said, strict=True))


@pytest.mark.parametrize(("room", "comes"), [(9000, True), (8990, False)])
def test_the_doctor_tries_whether_the_largest_packets_come_through(pair: Pair, room: int, comes: bool) -> None:
    pair.on_host("ip link set host0 mtu 8960")
    pair.on_peer(f"ip link set peer0 mtu {room - 40}")  # a receiver takes no larger ones
    with inside(pair.host):
        finding = check_size(PEER_ADDRESS, 8960, 40)
    its = "come" if comes else "do not come"
    assert (finding.right, finding.text) == (
        comes, f"packets of 8960 bytes, 9000 with what the carrier adds, {its} through to {PEER_ADDRESS}",
    )  # fmt: skip


def test_the_doctor_says_that_another_host_has_the_address(pair: Pair) -> None:
    address = Family(PREFIX6).address(host := Host(0, 0, 2))
    for on, end in ((pair.on_peer, "peer0 nodad"), (pair.on_host, "host0")):
        on(f"sysctl -w net.ipv6.conf.{end[:5]}.disable_ipv6=0")
        on(f"ip address add {address}/128 dev {end}")
    eventually(lambda: "dadfailed" in pair.on_host("ip -6 address show dev host0"))
    with inside(pair.host):
        shown = _addresses("host0")
        assert shown is not None
        assert "duplicate" in next(check_ipv6(Family(PREFIX6), host, "host0", shown)).text


def ifindex(pair: Pair) -> int:
    return int(pair.on_host("cat /sys/class/net/host0/ifindex"))


WAYS = yaml.safe_load(Path(__file__).with_name("containers.yaml").read_text())


@pytest.fixture(params=WAYS)
def container(pair: Pair, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A namespace behind the host, connected by a veth pair, and the peer's address for it, as `transfer` takes them."""
    name = f"sopatest-c-{uuid.uuid4().hex[:8]}"
    its = WAYS[request.param]
    run(f"ip netns add {name}")
    try:
        # room for the option, since a bridge drops what is too large for a port
        pair.on_host(f"ip link add inner mtu 8996 type veth peer name outer mtu 8996 netns {name}")
        pair.on_host("ip link set inner up")
        for command in (f"addr add {its['address']}/24 dev outer", "link set outer up", "link set lo up"):
            run(f"ip -n {name} {command}")
        for command in its["host"]:
            pair.on_host(command)
        for command in its["container"]:
            run(f"ip netns exec {name} {command}")
        for command in its["peer"]:
            pair.on_peer(command)
        yield {"source": f"/run/netns/{name}", "target": "192.168.7.2" if request.param == "tunnelled" else FAR}
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@CARRIERS
def test_a_containers_flow_is_left_to_the_switches_and_its_threshold_alone(
    pair: Pair, container: dict[str, str], tmp_path: Path, carrier: Carrier
) -> None:
    with labelling(pair, tmp_path, carrier) as labeller:
        assert transfer(pair, DATA, **container) == DATA
        packets = labeller.counted.by_reason()
        assert packets[Handling.FORWARDED] > 0
        assert packets[Handling.LABELLED] == packets[Handling.GSO] == 0
        if carrier is Carrier.MAC:  # bursts, which the kernel cuts behind the program
            assert packets[Handling.FORWARDED] < len(DATA) // 9000
        with inside(container["source"]):
            assert Path("/proc/sys/net/ipv4/tcp_reordering").read_text().strip() == "3"
        # and the host's own flows are labelled as ever
        assert transfer(pair, DATA) == DATA
        after = labeller.counted.by_reason()
        if labeller.cut_by:
            assert after[Handling.LABELLED] > after[Handling.CUT] > after[Handling.GSO] == 0
        else:  # a bridge's port
            assert after[Handling.LABELLED] > after[Handling.GSO]
        assert after[Handling.FORWARDED] == packets[Handling.FORWARDED]


@pytest.mark.parametrize(
    ("carrier", "rules"), [(Carrier.MAC, "all"), (Carrier.OPTION, "all"), (Carrier.ID, "all"), (Carrier.MAC, "icmp")]
)
def test_a_containers_flow_is_sprayed_or_keeps_a_path_where_the_agent_labels_what_is_passed_on(
    pair: Pair, container: dict[str, str], tmp_path: Path, carrier: Carrier, rules: str
) -> None:
    with labelling(pair, tmp_path, carrier, spray=Spray.of(rules, forwarded=True)) as labeller:
        assert transfer(pair, DATA, **container) == DATA
        packets = labeller.counted.by_reason()
        assert packets[Handling.FORWARDED] == 0
        assert packets[Handling.LABELLED] > 0
        assert packets[Handling.HASHED] == (0 if rules == "all" else packets[Handling.LABELLED])
        taken = [path for path, count in labeller.counted.by_path(FatTree(4)).items() if count]
        if rules == "all":
            assert len(taken) == 4
        elif container["target"] == FAR:  # a tunnel has a flow for each of those inside
            assert len(taken) == 1


def test_a_reset_by_ipv6_is_the_hosts_own_although_no_socket_has_sent_it(pair: Pair, tmp_path: Path) -> None:
    with_ipv6(pair)
    with labelling(pair, tmp_path, paths=table()._replace(prefix=PREFIX6)) as labeller:
        before = labeller.counted.by_reason()
        with inside(pair.peer), pytest.raises(ConnectionRefusedError):
            socket.create_connection((HERE6, 1), PATIENCE_SECONDS)
        after = labeller.counted.by_reason()
        assert after[Handling.LABELLED] == before[Handling.LABELLED] + 1
        assert after[Handling.FORWARDED] == before[Handling.FORWARDED]


@CARRIERS
def test_all_that_the_host_itself_sends_is_labelled(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    with labelling(pair, tmp_path, carrier) as labeller:
        with raw_socket(pair.peer, "peer0", IPV4) as capture:
            with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"x", (FAR, 5000))  # answered by ICMP
                sender.sendto(bytes(20_000), (FAR, 5000))  # fragments
            pair.on_host(f"ping -c 2 -i 0.2 {FAR}")
            pair.on_peer("ping -c 2 -i 0.2 10.0.0.2")
            with inside(pair.peer):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):  # answered by RST and by ICMP
                    with socket.socket(socket.AF_INET, kind) as prober:
                        prober.settimeout(PATIENCE_SECONDS)
                        with pytest.raises(ConnectionRefusedError):
                            assert prober.connect(("10.0.0.2", 9)) or prober.send(b"x") == prober.recv(1)
            sent = [frame for frame in frames(capture) if frame[26:30] == bytes([10, 0, 0, 2])]
        packets = labeller.counted.by_reason()
        assert packets[Handling.FORWARDED] == 0
        assert packets[Handling.LABELLED] == len(sent) >= 1 + 3 + 4 + 2


@CARRIERS
@pytest.mark.parametrize("container", ["routed"], indirect=True)
def test_a_gateway_labels_each_packet_that_it_brings_in_from_outside(
    pair: Pair, container: dict[str, str], tmp_path: Path, carrier: Carrier
) -> None:
    with labelling(pair, tmp_path, carrier, paths=table()._replace(leads_out=True)) as labeller:
        assert transfer(pair, DATA, **container) == DATA
        packets = labeller.counted.by_reason()
        assert packets[Handling.FORWARDED] == packets[Handling.GSO] == 0
        assert packets[Handling.LABELLED] > len(DATA) / 9000
