"""Schemes are declared in files, found by name, and varied by settings of TCP, of MCS and of slots."""

from pathlib import Path
from typing import Any

import pytest

from experiments.emulation.host_agents import agent_options, logged_at, paths_left
from experiments.schemes import SchemeError, named, schemes
from experiments.schemes.slots import Slots


def test_the_schemes_of_the_comparison_are_there() -> None:
    wanted = {"sopa", "plts-rr", "rps", "plts-rnd", "plts-cnt", "ecmp", "hedera", "mptcp", "flowlet", "flowcell", "bgp"}
    assert wanted <= set(schemes())
    assert all(scheme.summary and scheme.name == name for name, scheme in schemes().items())
    assert {name for name, scheme in schemes().items() if scheme.slots} == {"cfr"}
    assert {scheme.recovery for scheme in schemes().values()} == {1}


def test_who_compares_with_sopa_has_tcp_as_linux_has_it() -> None:
    sopa = schemes()["sopa"]
    assert (sopa.policy, sopa.fr_threshold, sopa.min_rtt_window) == ("round-robin", 10, 1)
    assert schemes()["plts-rr"].policy == "round-robin"
    others = [scheme for name, scheme in schemes().items() if name not in ("sopa", "sopa-feedback", "cfr")]
    assert {(scheme.fr_threshold, scheme.min_rtt_window) for scheme in others} == {(3, 300)}


def test_mcs_has_channels_and_marks() -> None:
    assert [named(name).channels for name in ("mcs", "mcs-ports", "ecmp-vcc", "sopa")] == [8, 8, 1, 0]
    by_paths, by_ports, over_ovs = (schemes()[name] for name in ("mcs", "mcs-ports", "mcs-ports-ovs"))
    assert {(its.policy, its.channels, its.ecn) for its in (by_paths, by_ports, over_ovs)} == {("mcs", 8, True)}
    assert [its.channel_kind for its in (by_paths, by_ports, over_ovs)] == ["paths", "ports", "ports"]
    assert (by_ports.fabric, by_ports.router_sysctls) == (schemes()["bgp"].fabric, schemes()["bgp"].router_sysctls)


@pytest.mark.parametrize(
    ("text", "name", "fields"),
    [
        ("sopa", "sopa", {"probes": None, "policy": "round-robin"}),
        ("sopa+fr=3+segments=16", "sopa+segments=16+fr=3", {"segments": 16}),
        ("mcs-ports+segments=16+channels=4", "mcs-ports+channels=4+segments=16", {"channels": 4, "segments": 16}),
        ("sopa+minrtt=300+fr=3", "sopa+fr=3+minrtt=300", {"fr_threshold": 3, "min_rtt_window": 300}),
        ("sopa+rack=off+fr=6", "sopa+fr=6+rack=off", {"fr_threshold": 6, "recovery": 0, "policy": "round-robin"}),
        # without adapting, the threshold is also the largest
        ("rps+adapt=off+fr=6", "rps+fr=6+adapt=off", {"sysctls": {"ipv4/tcp_max_reordering": "6"}}),
        ("rps+adapt=on", "rps+adapt=on", {"sysctls": {}}),
        (
            "rps+sack=off+fr=6+adapt=off",
            "rps+fr=6+adapt=off+sack=off",
            {"sysctls": {"ipv4/tcp_max_reordering": "6", "ipv4/tcp_sack": "0"}},
        ),
        ("rps+sack=on", "rps+sack=on", {"sysctls": {}}),
        ("sopa+probes=on", "sopa+probes=on", {"probes": True}),
        ("rps+probes=off", "rps+probes=off", {"probes": False}),
        ("sopa+fr=3+probes=off+weights=off", "sopa+weights=off+probes=off+fr=3", {"probes": False}),
        ("mcs+ecn=10+channels=16", "mcs+channels=16+ecn=10", {"channels": 16, "ecn": True, "ecn_threshold": 10}),
        ("mcs-ports+ecn=off", "mcs-ports+ecn=off", {"ecn": False}),
        ("mcs-ports+ecn=on", "mcs-ports+ecn=on", {"ecn": True}),
        (
            "cfr+demand=packet+delay=0.5us+slot=16+guard=0+order=smallest+paths=next-fit-ga",
            "cfr+slot=16+delay=0.5us+guard=0+order=smallest+paths=next-fit-ga+demand=packet",
            {"slots": Slots(16, 500, 0, "smallest", "next-fit-ga", "packet")},
        ),
        ("dctcp", "dctcp", {"ecn_bytes": None}),
        ("dctcp+ecn-bytes=30000", "dctcp+ecn-bytes=30000", {"ecn_bytes": 30_000}),
    ],
)
def test_a_variant_has_its_settings_and_says_so_in_one_order(text: str, name: str, fields: dict[str, Any]) -> None:
    variant = named(text)
    assert variant.name == name
    assert {field: getattr(variant, field) for field in fields} == fields


def test_probes_are_an_option_of_agents() -> None:
    options = [agent_options(named(name), 1, 20.0) for name in ("sopa", "sopa+probes=on", "sopa+probes=off")]
    assert ["--no-probes" in each for each in options] == [False, False, True]


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


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("sopa+segments=45 sopa+segments=0 ecmp+segments=4", "segments=N"),
        ("mcs+channels=1 mcs+channels=17", "channels=N \\(2 to 16\\)"),
        ("sopa+channels=8 ecmp-vcc+channels=2 ecmp+ecn=20", "with MCS"),
        ("mcs+ecn=0", "ecn=PACKETS"),
        ("cfr+slot=65 cfr+slot=0", "slot=PACKETS \\(1 to 64\\)"),
        ("cfr+delay=1.001ms", "0us to 1ms"),
        ("cfr+delay=5", "delay=TIME"),
        ("cfr+guard=51", "0 to 50"),
        ("cfr+order=largest", "order=min-max-min"),
        ("cfr+paths=best", "paths=colouring"),
        ("cfr+demand=late", "demand=flow"),
        ("cfr+ecn-bytes=3 mcs+ecn-bytes=30000", "with dctcp"),
        ("dctcp+ecn-bytes=0", "ecn-bytes=BYTES"),
        ("ecmp+probes=on sopa+probes=maybe", "probes=on or"),
        ("sopp", "did you mean sopa"),
        ("nonsense-of-all-kinds", "expected one of bgp, bgp-polarised"),
        ("sopa+fr=0", "write \\+fr=N"),
        ("sopa+fr=301", "1 to 300"),
        ("sopa+rack=maybe", "rack=on"),
        ("sopa+adapt=perhaps", "adapt=on"),
        ("sopa+fr=x sopa+slot=4 sopa+colour=red sopa+fr", "is not a setting"),
    ],
)
def test_what_is_none_is_refused_with_what_to_write(texts: str, said: str) -> None:
    for text in texts.split():
        with pytest.raises(SchemeError, match=said):
            named(text)
