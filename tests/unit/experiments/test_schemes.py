"""Schemes are declared in files and found by name; their settings are in scripts/names/schemes.txt."""

from pathlib import Path

from experiments.emulation.host_agents import agent_options, logged_at, paths_left
from experiments.schemes import named, schemes


def test_every_scheme_has_a_summary_and_those_with_channels_by_ports_run_over_routers() -> None:
    assert all(scheme.summary and scheme.name == name for name, scheme in schemes().items())
    by_ports, bgp = schemes()["mcs-ports"], schemes()["bgp"]
    assert (by_ports.fabric, by_ports.router_sysctls) == (bgp.fabric, bgp.router_sysctls)


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
