"""Changes of host settings by the agent, and their restoration, in a throwaway network namespace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sopa_ryu.agent.host_settings import HostSettings, InterfaceBusy, SettingsError
from sopa_ryu.agent.mending import Part
from tests.helpers.killed_agent import abandon, leave_behind
from tests.helpers.veth import Pair, run

Make = Callable[..., HostSettings]


@pytest.fixture
def make(pair: Pair, tmp_path: Path) -> Make:
    """Makes the settings of an interface of the host, with a state directory of its own."""

    def settings(ifname: str = "host0", **options: int) -> HostSettings:
        return HostSettings(ifname, state_dir=tmp_path, netns=pair.host, **options)

    return settings


def reordering(pair: Pair) -> int:
    return tcp(pair, "tcp_reordering")


def segments(pair: Pair, ifname: str = "host0") -> int:
    [link] = json.loads(pair.on_host(f"ip -d -j link show {ifname}"))
    return int(link["gso_max_segs"])


def devices(pair: Pair) -> list[str]:
    """The names of segmentation devices in the host's namespace."""
    return [link["ifname"] for link in json.loads(pair.on_host("ip -j link show")) if link["ifname"].startswith("sopa")]


@pytest.mark.parametrize(("packets", "limit", "count"), [(1, 65535, 1), (2, 2, 0), (44, 44, 0)])
def test_settings_are_changed_and_put_back(
    pair: Pair, make: Make, tmp_path: Path, packets: int, limit: int, count: int
) -> None:
    outside = Path("/proc/sys/net/ipv4/tcp_reordering").read_text()
    before = (reordering(pair), segments(pair), devices(pair))
    with make(segments=packets):
        assert (reordering(pair), segments(pair), len(devices(pair))) == (10, limit, count)
        assert Path("/proc/sys/net/ipv4/tcp_reordering").read_text() == outside
    assert (reordering(pair), segments(pair), devices(pair)) == before
    assert list(tmp_path.iterdir()) == []


TCP_SETTINGS = pytest.mark.parametrize(
    ("name", "option", "original", "default"),
    [("tcp_reordering", "fr_threshold", 3, 10), ("tcp_min_rtt_wlen", "min_rtt_window", 300, 1)],
)


def tcp(pair: Pair, name: str) -> int:
    return int(pair.on_host(f"sysctl -n net.ipv4.{name}"))


@TCP_SETTINGS
@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_tcps_settings_are_those_of_the_latest_agent_until_the_last_one_leaves(
    pair: Pair, make: Make, name: str, option: str, original: int, default: int, first_to_leave: int
) -> None:
    pair.on_host("ip link add host1 type veth peer name host2")
    both = [make("host0", segments=8), make("host1", segments=8, **{option: 14})]
    for settings, expected in zip(both, (default, 14), strict=True):
        settings.apply()
        assert tcp(pair, name) == expected
    both.pop(first_to_leave).restore()
    assert tcp(pair, name) == 14
    both.pop().restore()
    assert tcp(pair, name) == original
    assert (segments(pair), segments(pair, "host1")) == (65535, 65535)


@TCP_SETTINGS
def test_tcps_settings_of_a_killed_agent_are_put_back_by_its_successor(
    pair: Pair, make: Make, name: str, option: str, original: int, default: int
) -> None:
    leave_behind(make(**{option: 7}))
    assert tcp(pair, name) == 7
    with make():
        assert tcp(pair, name) == default
    assert tcp(pair, name) == original


@TCP_SETTINGS
def test_tcps_settings_that_somebody_else_changed_are_named_mended_and_then_put_back(
    pair: Pair, make: Make, name: str, option: str, original: int, default: int
) -> None:
    with make() as settings:
        pair.on_host(f"sysctl -qw net.ipv4.{name}=5")
        assert settings.changed() == {Part(name): f"net.ipv4.{name} was set to 5 instead of {default}"}
        settings.mend()
        assert tcp(pair, name) == default
    assert tcp(pair, name) == 5
    with make(**{option: 6}):
        pair.on_host(f"sysctl -qw net.ipv4.{name}={original}")
    assert tcp(pair, name) == original


def test_restoring_twice_changes_nothing_more(pair: Pair, make: Make) -> None:
    settings = make()
    settings.apply()
    settings.restore()
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=10")
    settings.restore()
    assert reordering(pair) == 10


@pytest.mark.parametrize(("threshold", "nearest"), [(0, 1), (151, 150)])
def test_a_threshold_out_of_range_is_refused_and_nothing_changes(
    pair: Pair, make: Make, tmp_path: Path, threshold: int, nearest: int
) -> None:
    pair.on_host("sysctl -qw net.ipv4.tcp_max_reordering=150")
    before = (reordering(pair), segments(pair))
    with pytest.raises(SettingsError, match=r"must be 1 to 150 .*not -?\d+"):
        make(fr_threshold=threshold).apply()
    with pytest.raises(SettingsError, match="no interface nowhere0"):
        make("nowhere0").apply()
    assert (reordering(pair), segments(pair)) == before
    assert list(tmp_path.iterdir()) == []
    with make(fr_threshold=nearest):
        assert reordering(pair) == nearest


def test_one_interface_has_one_agent(pair: Pair, make: Make) -> None:
    with make(), pytest.raises(InterfaceBusy, match=r"pid \d+\) works on host0"):
        make(fr_threshold=20).apply()
    assert reordering(pair) == 3
    with make():
        assert reordering(pair) == 10


@pytest.mark.parametrize("packets", [1, 4])
def test_what_somebody_else_changed_meanwhile_stays(pair: Pair, make: Make, packets: int) -> None:
    with make(segments=packets):
        pair.on_host("sysctl -qw net.ipv4.tcp_reordering=6")
        pair.on_host("ip link set host0 gso_max_segs 9")
    assert (reordering(pair), segments(pair)) == (6, 9)


def test_an_interface_that_has_gone_does_not_keep_the_threshold(pair: Pair, make: Make) -> None:
    with make():
        pair.on_host("ip link del host0")
    assert reordering(pair) == 3


def test_saved_settings_do_not_apply_to_a_new_interface_of_the_same_name(pair: Pair, make: Make) -> None:
    pair.on_host("ip link add host1 type veth peer name host2")
    pair.on_host("ip link set host1 gso_max_segs 50")
    killed = make("host1", segments=4)
    leave_behind(killed)
    pair.on_host("ip link del host1")
    pair.on_host("ip link add host1 type veth peer name host2")
    pair.on_host("ip link set host1 gso_max_segs 60")
    with make("host1") as settings:
        assert not settings.clsact_added
    assert (reordering(pair), segments(pair, "host1")) == (3, 60)


@contextmanager
def changed_state(state_dir: Path) -> Iterator[dict[str, Any]]:
    """What a killed agent has saved, to be changed."""
    [path] = state_dir.glob("*.json")
    state = json.loads(path.read_text())
    yield state
    path.write_text(json.dumps(state))


def test_a_state_file_of_another_boot_is_ignored(pair: Pair, make: Make, tmp_path: Path) -> None:
    leave_behind(make(segments=4))
    with changed_state(tmp_path) as state:
        state["boot_id"] = "another"
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=5")
    pair.on_host("ip link set host0 gso_max_segs 80")
    make().__enter__().restore()
    assert (reordering(pair), segments(pair)) == (5, 80)


def test_a_damaged_state_file_is_reported_and_nothing_changes(pair: Pair, make: Make, tmp_path: Path) -> None:
    leave_behind(make())
    [path] = tmp_path.glob("*.json")
    path.write_text("{")
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=5")
    with pytest.raises(SettingsError, match=r"is damaged .*check tcp_reordering"):
        make().apply()
    assert reordering(pair) == 5


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 4), (4, 1), (4, 8)])
def test_the_successor_of_a_killed_agent_may_let_bursts_have_another_size(
    pair: Pair, make: Make, first: int, second: int
) -> None:
    pair.on_host("ip link set host0 gso_max_segs 50")
    leave_behind(make(segments=first))
    with make(segments=second) as settings:
        assert (segments(pair), len(devices(pair))) == ((50, 1) if second == 1 else (second, 0))
        assert not settings.changed()
    assert (segments(pair), devices(pair)) == (50, [])


def test_what_an_agent_of_an_earlier_release_left_is_put_back(pair: Pair, make: Make, tmp_path: Path) -> None:
    pair.on_host("ip link set host0 gso_max_segs 50")
    leave_behind(make(segments=4))
    pair.on_host("ip link set host0 gso_max_segs 1")  # which is what it wrote
    pair.on_host("sysctl -qw net.ipv4.tcp_min_rtt_wlen=300")  # it did not know this one
    with changed_state(tmp_path) as state:
        del state["interfaces"]["host0"]["gso_written"], state["tcp_min_rtt_wlen"]
    with make():
        assert (segments(pair), tcp(pair, "tcp_min_rtt_wlen")) == (50, 1)
    assert (segments(pair), reordering(pair), tcp(pair, "tcp_min_rtt_wlen")) == (50, 3, 300)


@pytest.mark.parametrize(
    ("commands", "ifname", "reason"),
    [
        (["ip link add br0 type bridge", "ip link set host0 master br0"], "host0", "busy"),
        (["ip link add link host0 name mac0 type macvlan"], "mac0", "would be on another interface"),
        (["ip tuntap add tun0 mode tun"], "tun0", "Invalid argument"),
    ],
    ids=["a bridge's port", "a macvlan", "no Ethernet"],
)
def test_where_the_kernel_makes_no_segmentation_device_tcp_sends_packet_by_packet(
    pair: Pair, make: Make, caplog: pytest.LogCaptureFixture, commands: list[str], ifname: str, reason: str
) -> None:
    for command in commands:
        pair.on_host(command)
    before = (segments(pair, ifname), reordering(pair))
    with make(ifname) as settings:
        assert (segments(pair, ifname), devices(pair), settings.cut_by) == (1, [], 0)
        assert not settings.changed()
        settings.mend()
    [record] = caplog.records
    assert f"{ifname}: the kernel makes no segmentation device (macvlan) on it: " in record.message
    assert reason in record.message
    assert "--segments 16" in record.message
    assert (segments(pair, ifname), reordering(pair)) == before


@pytest.mark.parametrize("kind", ["type ifb", "type veth peer name other1", "tap", "type bridge"])
def test_interfaces_of_many_kinds_have_a_segmentation_device(pair: Pair, make: Make, kind: str) -> None:
    pair.on_host("ip tuntap add other0 mode tap" if kind == "tap" else f"ip link add other0 {kind}")
    with make("other0") as settings:
        assert settings.cut_by
        assert not settings.changed()
    assert devices(pair) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ip link del {}", "{} was removed"),
        ("ip link set {} down", "{} was set down"),
        ("ip link set {} gso_max_segs 7", "gso_max_segs of {} was set to 7 instead of 1"),
        ("ip link del {0}; ip link add {0} type bridge", "{} was removed"),
    ],
)
def test_a_segmentation_device_that_is_changed_is_noticed_and_mended(
    pair: Pair, make: Make, change: str, said: str
) -> None:
    with make() as settings:
        [device] = devices(pair)
        for command in change.format(device).split(";"):
            pair.on_host(command)
        assert settings.changed() == {Part.SEGMENTS: said.format(device)}
        settings.mend()
        if "bridge" in change:  # somebody else's, which stays
            assert settings.cut_by == 0
            assert segments(pair) == 1
        else:
            assert settings.changed() == {}
            assert devices(pair) == [device]
    assert segments(pair) == 65535
    assert bool(devices(pair)) == ("bridge" in change)


def test_a_segmentation_device_goes_with_its_interface(pair: Pair, make: Make) -> None:
    with make():
        pair.on_host("ip link del host0")
        assert devices(pair) == []


@pytest.mark.parametrize("killed", [False, True])
def test_no_segmentation_device_is_left_of_an_interface_that_was_in_another_namespace(
    pair: Pair, make: Make, killed: bool
) -> None:
    pair.on_peer("ip link add taken type veth peer name taken2")  # so that its index is not free there
    settings = make()
    settings.apply()
    pair.on_host(f"ip link set host0 netns {Path(pair.peer).name}")
    if killed:
        abandon(settings)
    else:
        settings.restore()
        assert devices(pair) == []
    pair.on_peer(f"ip link set host0 netns {Path(pair.host).name}")
    with make() as settings:
        assert len(devices(pair)) == 1
        assert not settings.changed()
    assert devices(pair) == []


def test_whether_clsact_is_ours_outlives_the_agent(make: Make) -> None:
    killed = make()
    killed.apply()
    assert not killed.clsact_added
    killed.note_clsact(True)
    abandon(killed)
    with make() as settings:
        assert settings.clsact_added
        settings.note_clsact(False)
        assert not settings.clsact_added


def test_an_unusable_state_directory_stops_the_agent_before_any_change(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="Nothing was changed"):
        HostSettings("host0", state_dir=tmp_path / "file" / "state", netns=pair.host).apply()
    assert (reordering(pair), segments(pair)) == (3, 65535)


def test_a_full_disk_stops_the_agent_before_any_change(pair: Pair, tmp_path: Path) -> None:
    run(f"mount -t tmpfs -o size=8k sopatest {tmp_path}")
    try:
        with (tmp_path / "filler").open("wb", buffering=0) as filler:
            filler.write(bytes(8192))
        with pytest.raises(SettingsError, match=r"No space left on device\. Nothing was changed"):
            HostSettings("host0", state_dir=tmp_path, netns=pair.host).apply()
        assert (reordering(pair), segments(pair)) == (3, 65535)
        (tmp_path / "filler").unlink()
        with HostSettings("host0", state_dir=tmp_path, netns=pair.host):
            assert (reordering(pair), len(devices(pair))) == (10, 1)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


# -- the MTU of other interfaces -------------------------------------------------------------------------------------------


def mtus(pair: Pair) -> dict[str, int]:
    """The MTU of every interface of the host, but for segmentation devices."""
    links = json.loads(pair.on_host("ip -d -j link show"))
    return {link["ifname"]: link["mtu"] for link in links if not link["ifname"].startswith("sopa")}


@pytest.mark.parametrize("overhead", [0, 4])
def test_only_what_is_on_top_of_the_interface_in_its_namespace_has_its_mtu_changed(
    pair: Pair, make: Make, overhead: int
) -> None:
    index = json.loads(pair.on_host("ip -j link show host0"))[0]["ifindex"]
    for command in (
        # the peer of a veth has, in its own namespace, the index that host0 has here
        f"ip link add other mtu 9000 type veth peer name far0 netns {Path(pair.peer).name} index {index + 50}",
        f"ip link add index {index + 50} name here1 mtu 9000 type veth peer name here2",
        "ip link set here2 mtu 9000",
        "ip link add link host0 name mac0 mtu 9000 type macvlan",
        "ip link add link mac0 name mac1 mtu 8000 type macvlan",
    ):
        pair.on_host(command)
    before = mtus(pair)
    with make("here1", overhead=overhead) as settings:
        assert settings.fabric_mtu == 9000
        # neither here2, whose lower interface here1 is by name only, nor other, whose peer has that index elsewhere
        assert mtus(pair) == before | {"here1": 9000 - overhead}
        assert "sopa" not in str(settings.changed())
    assert mtus(pair) == before
    with make(overhead=overhead):
        assert mtus(pair) == before | {"host0": 9000 - overhead, "mac0": 9000 - overhead}
    assert mtus(pair) == before
