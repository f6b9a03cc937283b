"""``sopa agent``: options that contradict each other are a usage error, before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main

AGENT = ["agent", "--iface", "nowhere0", "--controller", "http://127.0.0.1:1"]


@pytest.mark.parametrize("option", ["--segments=4", "--segments=auto", "--fr-threshold=20", "--min-rtt-window=300"])
def test_mcs_has_no_settings_of_tcp(option: str) -> None:
    done = CliRunner().invoke(main, [*AGENT, "--policy=mcs", option])
    assert done.exit_code == 2
    assert f"{option.partition('=')[0]} has no meaning with --policy mcs" in done.output


@pytest.mark.parametrize("option", ["--channels=4", "--channel-kind=ports", "--mcs-without=window"])
def test_channels_are_those_of_mcs(option: str) -> None:
    done = CliRunner().invoke(main, [*AGENT, option])
    assert done.exit_code == 2
    assert f"{option.partition('=')[0]} needs --policy mcs" in done.output


def test_mcs_needs_the_carrier_mac() -> None:
    done = CliRunner().invoke(main, [*AGENT, "--policy=mcs", "--carrier=option"])
    assert done.exit_code == 1
    assert "MCS needs carrier mac" in done.output


@pytest.mark.parametrize("count", [1, 17])
def test_a_connection_has_2_to_16_channels(count: int) -> None:
    assert CliRunner().invoke(main, [*AGENT, "--policy=mcs", f"--channels={count}"]).exit_code == 2


@pytest.mark.parametrize("option", ["--segments=4", "--flowcell=1000", "--flowlet-gap=7"])
def test_cfr_limits_bursts_itself(option: str) -> None:
    done = CliRunner().invoke(main, [*AGENT, "--policy=cfr", "--arbiter=127.0.0.1:9160", option])
    assert done.exit_code == 2
    assert f"{option.partition('=')[0]} has no meaning with --policy cfr" in done.output


@pytest.mark.parametrize("policy", ["mcs", "round-robin"])
@pytest.mark.parametrize(
    "option", ["--arbiter=127.0.0.1:9160", "--slot-overrun=100", "--hints=off", "--departure-times=off"]
)
def test_slots_are_those_of_cfr(policy: str, option: str) -> None:
    done = CliRunner().invoke(main, [*AGENT, f"--policy={policy}", option])
    assert done.exit_code == 2
    assert f"{option.partition('=')[0]} needs --policy cfr" in done.output


def test_cfr_needs_an_arbiter_and_the_carrier_mac() -> None:
    done = CliRunner().invoke(main, [*AGENT, "--policy=cfr"])
    assert done.exit_code == 2
    assert "--policy cfr needs --arbiter ADDRESS:PORT" in done.output
    for option, said in (("--arbiter=nowhere:0", "write ADDRESS:PORT"), ("--carrier=option", "CFR needs carrier mac")):
        done = CliRunner().invoke(main, [*AGENT, "--policy=cfr", "--arbiter=127.0.0.1", option])
        assert done.exit_code == 1
        assert said in done.output


def test_channels_are_not_those_of_cfr() -> None:
    done = CliRunner().invoke(main, [*AGENT, "--policy=cfr", "--arbiter=127.0.0.1", "--channels=4"])
    assert done.exit_code == 2
    assert "--channels needs --policy mcs" in done.output


def test_each_interface_has_a_socket_of_hints_of_its_own() -> None:
    cfr = ["--policy=cfr", "--arbiter=127.0.0.1:9160", "--iface=nowhere1"]
    done = CliRunner().invoke(main, [*AGENT, *cfr, "--hints=/run/sopa/hints"])
    assert done.exit_code == 2
    assert "--hints names one socket, but each of the 2 interfaces has its own" in done.output
    assert "--hints" not in CliRunner().invoke(main, [*AGENT, *cfr, "--hints=off"]).output


def test_a_hint_names_a_connection_and_says_when_no_agent_takes_it(tmp_path: Path) -> None:
    for wrong in ("10.1.0.2", "host:5001", "10.1.0.2:0", "10.1.0.2:65536", "10.1.0.2:x"):
        assert CliRunner().invoke(main, ["hint", wrong, "--bytes=1"]).exit_code == 2
    assert CliRunner().invoke(main, ["hint", "10.1.0.2:5001", "--bytes=0"]).exit_code == 2
    path = tmp_path / "hints"
    done = CliRunner().invoke(main, ["hint", "10.1.0.2:5001", "--bytes=1", f"--socket={path}"])
    assert done.exit_code == 1
    assert f"no agent with --policy cfr answers at {path}: No such file or directory" in done.output
