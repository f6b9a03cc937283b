"""``sopa lab`` and ``sopa demo`` as a user types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main

SOPA = [sys.executable, "-m", "sopa_ryu.cli"]
LEAF_SPINE = "{pods: 1, edges: 3, aggregations: 2, cores: 0, hosts: 2}\n"


def sopa(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SOPA, *words], capture_output=True, text=True, check=False)


def test_two_labs_run_scripts_on_one_machine_independently(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        "h0_0_2 ping -c 1 -W 60 h1_0_2\nsh sopa status\nsh sopa drain c0_0\nh0_0_2 sopa status\nsh sopa restore c0_0\n"
        "loss a0_0 c0_0 100\nh0_0_2 ping -c 1 -W 1 h1_0_2\nbad\nloss a0_0 c0_0 0\n"
        "loss a0_0 c0_1 1\nloss a0_0 c0_0\ncorrupt a0_0 c0_0 101\n"
        "link a0_0 c0_0 down\n"
        "sh timeout 60 sh -c 'until sopa status --json | grep a0_0-c0_0; do sleep 0.1; done'\n"
    )
    command = [*SOPA, "lab", "--k", "2", "--script", str(script)]
    pipe, unlinked = subprocess.PIPE, {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=unlinked) for _ in range(2)]
    for one in both:
        out, errors = one.communicate()
        assert one.returncode == 0, errors
        assert "1 packets transmitted, 1 received" in out + errors
        assert "5 of 5 switches" in out
        assert "c0_0: drained\nversion " in out
        assert "c0_0: back in use" in out
        assert "failures      switch c0_0 drained" in out + errors  # asked from a host
        assert "1 packets transmitted, 0 received, 100% packet loss" in out + errors
        [(lost, packets)] = re.findall(
            r"a0_0-c0_0 towards c0_0: lost (\d+) of (\d+) packets, corrupted 0 of 0", out + errors
        )
        assert 0 < int(lost) == int(packets)
        for mistake in (
            "'c0_1' is no switch or host",
            "usage: loss a0_0 c0_1 PERCENT",
            "a probability is from 0 to 1, not 1.01",
        ):
            assert mistake in out + errors
        assert '"a0_0-c0_0"' in out


def test_a_lab_of_a_fabric_file_with_slots_delivers_between_all_hosts(tmp_path: Path) -> None:
    file, script = tmp_path / "fabric.yaml", tmp_path / "script"
    file.write_text(LEAF_SPINE)
    script.write_text("pingall\nsh sopa status\nsh sopa paths h0_0_2 h0_2_3\nsh sopa agents\n")
    done = sopa("lab", "--fabric", str(file), "--script", str(script), "--policy=cfr", "--rate=2")
    assert done.returncode == 0, done.stderr
    out = done.stdout + done.stderr
    assert "0% dropped (30/30 received)" in out
    assert "3x2 leaf-spine fabric, 5 switches, 6 hosts" in out
    assert "inter-rack, 2 of 2 paths" in out
    assert "waiting until the arbiter grants slots to every host" in done.stderr
    assert done.stdout.count(" cfr ") == 6


K = "even number from 2 to 128"
NOWHERE = "--controller http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        *((f"{command} --k {k}", 2, K) for command in ("lab", "demo") for k in ("3", "130", "0", "four")),
        (f"status {NOWHERE}", 1, "Is the controller running there?"),
        (f"paths 10.0.0.2 10.1.0.2 {NOWHERE}", 1, "Is the controller running there?"),
        ("lab --policy=cfr --no-limit", 2, "needs links with a rate"),
        ("lab --policy=cfr --carrier=option", 2, "leave out --carrier"),
        (f"agent {NOWHERE} --iface nowhere0", 1, "there is no interface nowhere0; there are "),
        (f"agent {NOWHERE} --iface lo", 1, "a host of the fabric has one of 10.0.0.0/8"),
        (f"agent {NOWHERE} --iface a@", 1, "is no interface: write eth0"),
        (f"agent {NOWHERE} --iface lo@/proc/0/ns/net", 1, "no network namespace at"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_started(words: str, status: int, said: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == status
    assert said in " ".join(done.output.split())
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("words", ["agent --iface lo --controller http://127.0.0.1:9", "lab", "demo"])
def test_what_needs_root_says_so(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 1
    assert "needs root" in done.output


def test_the_demo_shows_what_each_core_carried_and_writes_the_contracts_figures(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    done = sopa("demo", "--k", "4", "--seed", "3", "--duration", "6", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "packets by core switch" in done.stdout
    report = json.loads(file.read_text())
    traffic, flows, failure = report["traffic"], report["flows"], report["failure"]
    assert len(flows) == len({flow["src"] for flow in flows}) == len({flow["dst"] for flow in flows}) == 16
    assert min(flow["mbit"] for flow in flows) == traffic["min_mbit"] > 0
    assert sorted(traffic["core_packets"]) == ["c0_0", "c0_1", "c1_0", "c1_1"]
    # each packet of data crosses one core switch; how evenly they are used is test_sopa.py's
    assert sum(traffic["core_packets"].values()) >= sum(flow["bytes"] for flow in flows) / 1448
    counts = sorted(traffic["core_packets"].values())
    assert traffic["core_max_min"] == round(counts[-1] / max(1, counts[0]), 4)
    assert traffic["retransmits"] == sum(flow["retransmits"] for flow in flows)
    assert (failure["candidates_before"], failure["candidates_down"], failure["candidates_after"]) == (4, 3, 4)
    assert failure["mbit_during"] > 0  # by the other paths
