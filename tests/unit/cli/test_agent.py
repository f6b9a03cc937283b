"""``sopa agent`` and ``sopa hint``: options that contradict each other are a usage error, before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main

AGENT = ["agent", "--iface", "nowhere0", "--controller", "http://127.0.0.1:1"]
MCS, CFR = "--policy=mcs", "--policy=cfr --arbiter=127.0.0.1:9160"
SLOTS = ("--arbiter=127.0.0.1:9160", "--slot-overrun=100", "--hints=off", "--departure-times=off")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        *(
            (f"{MCS} {option}=4", 2, f"{option} has no meaning with --policy mcs")
            for option in ("--segments", "--fr-threshold", "--min-rtt-window")
        ),
        (f"{MCS} --segments=auto", 2, "--segments has no meaning with --policy mcs"),
        *(
            (option, 2, f"{option.partition('=')[0]} needs --policy mcs")
            for option in ("--channels=4", "--channel-kind=ports", "--mcs-without=window")
        ),
        (f"{MCS} --carrier=option", 1, "MCS needs carrier mac"),
        *((f"{MCS} --channels={count}", 2, "--channels") for count in (1, 17)),
        *(
            (f"{CFR} {option}=1000", 2, f"{option} has no meaning with --policy cfr")
            for option in ("--flowcell", "--flowlet-gap")
        ),
        (f"{CFR} --segments=4", 2, "--segments has no meaning with --policy cfr"),
        *(
            (f"--policy={policy} {option}", 2, f"{option.partition('=')[0]} needs --policy cfr")
            for policy in ("mcs", "round-robin")
            for option in SLOTS
        ),
        ("--policy=cfr", 2, "--policy cfr needs --arbiter ADDRESS:PORT"),
        ("--policy=cfr --arbiter=nowhere:0", 1, "write ADDRESS:PORT"),
        (f"{CFR} --carrier=option", 1, "CFR needs carrier mac"),
        (f"{CFR} --channels=4", 2, "--channels needs --policy mcs"),
        (
            f"{CFR} --iface=nowhere1 --hints=/run/sopa/hints",
            2,
            "--hints names one socket, but each of the 2 interfaces has its own",
        ),
    ],
)
def test_options_that_contradict_each_other(words: str, status: int, said: str) -> None:
    done = CliRunner().invoke(main, [*AGENT, *words.split()])
    assert (done.exit_code, said in done.output) == (status, True), done.output


def test_several_interfaces_may_do_without_hints() -> None:
    assert "--hints" not in CliRunner().invoke(main, [*AGENT, *CFR.split(), "--iface=nowhere1", "--hints=off"]).output


def test_a_hint_names_a_connection_and_says_when_no_agent_takes_it(tmp_path: Path) -> None:
    for wrong in ("10.1.0.2", "host:5001", "10.1.0.2:0", "10.1.0.2:65536", "10.1.0.2:x"):
        assert CliRunner().invoke(main, ["hint", wrong, "--bytes=1"]).exit_code == 2
    assert CliRunner().invoke(main, ["hint", "10.1.0.2:5001", "--bytes=0"]).exit_code == 2
    path = tmp_path / "hints"
    done = CliRunner().invoke(main, ["hint", "10.1.0.2:5001", "--bytes=1", f"--socket={path}"])
    assert done.exit_code == 1
    assert f"no agent with --policy cfr answers at {path}: No such file or directory" in done.output
