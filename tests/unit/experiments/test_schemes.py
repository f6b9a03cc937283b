"""Schemes are declared in files, found by name, and varied by TCP's settings."""

from pathlib import Path

import pytest

from experiments.emulation.host_agents import agent_options, logged_at, paths_left
from experiments.schemes import SchemeError, named, schemes
from experiments.schemes.slots import Slots


def test_the_schemes_of_the_comparison_are_there() -> None:
    wanted = {"sopa", "plts-rr", "rps", "plts-rnd", "plts-cnt", "ecmp", "hedera", "mptcp", "flowlet", "flowcell", "bgp"}
    assert wanted <= set(schemes())
    assert all(scheme.summary and scheme.name == name for name, scheme in schemes().items())


def test_sopa_and_plts_rr_differ_only_in_how_tcp_bears_reordering() -> None:
    sopa, plts = schemes()["sopa"], schemes()["plts-rr"]
    assert (sopa.policy, sopa.fr_threshold, sopa.min_rtt_window) == ("round-robin", 10, 1)
    assert (plts.policy, plts.fr_threshold, plts.min_rtt_window) == ("round-robin", 3, 300)


def test_packets_of_a_burst_share_a_label_where_senders_write_labels() -> None:
    variant = named("sopa+fr=3+segments=16")
    assert (variant.name, variant.segments) == ("sopa+segments=16+fr=3", 16)
    for text in ("sopa+segments=45", "sopa+segments=0", "ecmp+segments=4"):
        with pytest.raises(SchemeError, match="segments=N"):
            named(text)


def test_the_channels_of_mcs_are_a_setting() -> None:
    assert [named(name).channels for name in ("mcs", "mcs-ports", "ecmp-vcc", "sopa")] == [8, 8, 1, 0]
    variant = named("mcs-ports+segments=16+channels=4")
    assert (variant.name, variant.channels, variant.segments) == ("mcs-ports+channels=4+segments=16", 4, 16)
    for text in ("mcs+channels=1", "mcs+channels=17", "sopa+channels=4", "ecmp-vcc+channels=2"):
        with pytest.raises(SchemeError, match="channels=N"):
            named(text)


def test_the_window_of_the_shortest_round_trip_is_a_setting() -> None:
    variant = named("sopa+minrtt=300+fr=3")
    assert (variant.name, variant.fr_threshold, variant.min_rtt_window) == ("sopa+fr=3+minrtt=300", 3, 300)


def test_who_compares_with_sopa_has_tcp_as_linux_has_it() -> None:
    others = [scheme for name, scheme in schemes().items() if name not in ("sopa", "sopa-feedback", "cfr")]
    assert {scheme.fr_threshold for scheme in others} == {3}
    assert {scheme.min_rtt_window for scheme in others} == {300}
    assert {scheme.recovery for scheme in schemes().values()} == {1}


def test_a_variant_has_its_settings_and_says_so() -> None:
    variant = named("sopa+rack=off+fr=6")
    assert (variant.name, variant.fr_threshold, variant.recovery) == ("sopa+fr=6+rack=off", 6, 0)
    assert variant.policy == "round-robin"
    assert named("sopa") == schemes()["sopa"]


def test_without_adapting_the_threshold_is_also_the_largest() -> None:
    variant = named("rps+adapt=off+fr=6")
    assert variant.name == "rps+fr=6+adapt=off"
    assert variant.sysctls == {"ipv4/tcp_max_reordering": "6"}
    assert named("rps+adapt=on").sysctls == {}


def test_probes_are_a_setting_where_senders_have_agents() -> None:
    assert [named(name).probes for name in ("sopa", "sopa+probes=on", "rps+probes=off")] == [None, True, False]
    variant = named("sopa+fr=3+probes=off+weights=off")
    assert variant.name == "sopa+weights=off+probes=off+fr=3"
    options = [agent_options(named(name), 1, 20.0) for name in ("sopa", "sopa+probes=on", "sopa+probes=off")]
    assert ["--no-probes" in each for each in options] == [False, False, True]
    for text in ("ecmp+probes=on", "sopa+probes=maybe"):
        with pytest.raises(SchemeError, match="probes=on or"):
            named(text)


def test_what_agents_log_of_paths_is_read(tmp_path: Path) -> None:
    log = tmp_path / "agents.log"
    begin = logged_at("2026-11-23 02:00:00,000")
    assert paths_left(log, begin) == []
    log.write_text(
        "2026-11-23 01:59:59,000 WARNING h0_0_2: leaves the paths over link a0_0-c0_1: before the run; packets take the others\n"
        "2026-11-23 02:00:01,500 WARNING h0_0_2: leaves the paths over link a0_0-c0_1: 3 probes in a row lost; packets take\n"
        "2026-11-23 02:00:02,000 INFO h0_0_2: connected to http://192.168.0.1:8080\n"
        "2026-11-23 02:00:09,250 INFO h0_0_2: takes the paths over link a0_0-c0_1 again: 20 probes in a row have come through\n"
    )
    assert paths_left(log, begin) == [
        (1.5, "h0_0_2 leaves the paths over link a0_0-c0_1"),
        (9.25, "h0_0_2 takes the paths over link a0_0-c0_1 again"),
    ]


def test_sack_is_a_setting_of_its_own() -> None:
    variant = named("rps+sack=off+fr=6+adapt=off")
    assert variant.name == "rps+fr=6+adapt=off+sack=off"
    assert variant.sysctls == {"ipv4/tcp_max_reordering": "6", "ipv4/tcp_sack": "0"}
    assert named("rps+sack=on").sysctls == {}


def test_mcs_has_channels_and_marks_and_each_is_a_setting() -> None:
    by_paths, by_ports, over_ovs = (schemes()[name] for name in ("mcs", "mcs-ports", "mcs-ports-ovs"))
    assert {(its.policy, its.channels, its.ecn) for its in (by_paths, by_ports, over_ovs)} == {("mcs", 8, True)}
    assert [its.channel_kind for its in (by_paths, by_ports, over_ovs)] == ["paths", "ports", "ports"]
    assert (by_ports.fabric, by_ports.router_sysctls) == (schemes()["bgp"].fabric, schemes()["bgp"].router_sysctls)
    variant = named("mcs+ecn=10+channels=16")
    assert (variant.name, variant.channels, variant.ecn, variant.ecn_threshold) == (
        "mcs+channels=16+ecn=10",
        16,
        True,
        10,
    )
    assert (named("mcs-ports+ecn=off").ecn, named("mcs-ports+ecn=on").ecn) == (False, True)


def test_cfr_has_slots_and_each_of_their_numbers_is_a_setting() -> None:
    assert {name for name, scheme in schemes().items() if scheme.slots} == {"cfr"}
    variant = named("cfr+demand=packet+delay=0.5us+slot=16+guard=0+order=smallest+paths=next-fit-ga")
    assert variant.name == "cfr+slot=16+delay=0.5us+guard=0+order=smallest+paths=next-fit-ga+demand=packet"
    assert variant.slots == Slots(16, 500, 0, "smallest", "next-fit-ga", "packet")
    assert (named("dctcp+ecn-bytes=30000").ecn_bytes, named("dctcp").ecn_bytes) == (30_000, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcs+channels=1", "channels=N \\(2 to 16\\)"),
        ("mcs+channels=17", "2 to 16"),
        ("sopa+channels=8", "with MCS"),
        ("mcs+ecn=0", "ecn=PACKETS"),
        ("ecmp+ecn=20", "with MCS"),
        ("cfr+slot=65", "slot=PACKETS \\(1 to 64\\)"),
        ("cfr+slot=0", "1 to 64"),
        ("cfr+delay=1.001ms", "0us to 1ms"),
        ("cfr+delay=5", "delay=TIME"),
        ("cfr+guard=51", "0 to 50"),
        ("cfr+order=largest", "order=min-max-min"),
        ("cfr+paths=best", "paths=colouring"),
        ("cfr+demand=late", "demand=flow"),
        ("sopa+slot=4", "is not a setting"),
        ("cfr+ecn-bytes=3", "with dctcp"),
        ("dctcp+ecn-bytes=0", "ecn-bytes=BYTES"),
        ("mcs+ecn-bytes=30000", "with dctcp"),
        ("sopp", "did you mean sopa"),
        ("nonsense-of-all-kinds", "expected one of bgp, bgp-polarised"),
        ("sopa+fr=0", "write \\+fr=N"),
        ("sopa+fr=301", "1 to 300"),
        ("sopa+fr=x", "is not a setting"),
        ("sopa+rack=maybe", "rack=on"),
        ("sopa+adapt=perhaps", "adapt=on"),
        ("sopa+colour=red", "is not a setting"),
        ("sopa+fr", "is not a setting"),
    ],
)
def test_what_is_none_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(SchemeError, match=said):
        named(text)
