"""``sopa lab`` and ``sopa demo`` as a user types them."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main
from tests.helpers.documents import ROOT, asks, blocks, transcript, typed

SCRIPTS = Path(__file__).parent / "scripts/typed"
SOPA = [sys.executable, "-m", "sopa_ryu.cli"]
LEAF_SPINE = "{pods: 1, edges: 3, aggregations: 2, cores: 0, hosts: 2}\n"


def sopa(*words: str) -> subprocess.CompletedProcess[str]:
    # hosts' commands have a terminal, where what is unusual after a standstill would be in colour
    return subprocess.run([*SOPA, *words], capture_output=True, text=True, check=False, env={**os.environ, "TERM": "dumb"})


SAID = (
    " packets transmitted, 1 received",
    "5 of 5 switches",
    "c0_0: drained\nversion ",
    "switch c0_0 drained",  # asked from a host
    "c0_0: back in use",
    "1 packets transmitted, 0 received, 100% packet loss",
    "'c0_1' is no switch or host",
    "usage: loss a0_0 c0_1 PERCENT",
    "a probability is from 0 to 1, not 1.01",
    '"a0_0-c0_0"',
)


def test_two_labs_run_scripts_on_one_machine_independently() -> None:
    command = [*SOPA, "lab", "--k", "2", "--script", str(SCRIPTS / "faults.txt")]
    pipe, unlinked = subprocess.PIPE, {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=unlinked) for _ in range(2)]
    for one in both:
        out, errors = one.communicate()
        said = out + errors
        assert one.returncode == 0, errors
        assert [text for text in SAID if text not in said] == []
        [(lost, packets)] = re.findall(r"a0_0-c0_0 towards c0_0: lost (\d+) of (\d+) packets, corrupted 0 of 0", said)
        assert 0 < int(lost) == int(packets)


def test_a_lab_of_a_fabric_file_with_slots_delivers_between_all_hosts_and_is_seen_from_the_machine(tmp_path: Path) -> None:
    file, script, seen = tmp_path / "fabric.yaml", tmp_path / "script", tmp_path / "seen"
    file.write_text(LEAF_SPINE)
    until = f"sh until [ -e {seen} ]; do sleep 0.1; done\n"
    script.write_text(f"{until}pingall 60\nsh sopa status\nsh sopa paths h0_0_2 h0_2_3\nsh sopa agents\n")
    words = ["lab", "--fabric", str(file), "--script", str(script), "--policy=cfr", "--rate=2", "--switches=srv6"]
    with socket.create_server(("127.0.0.1", 0)) as taken, subprocess.Popen([*SOPA, *words], stdout=-1, stderr=-1, text=True) as lab:
        assert lab.stderr is not None
        said = ""
        while "; sopa status" not in said and (line := lab.stderr.readline()):
            said += line
        [(url, token)] = re.findall(r"page at (\S+)/;.*TOKEN_FILE=(\S+);", said, re.DOTALL)
        its = ["--controller", url, "--token-file", token]
        assert sopa("drain", "a0_1", *its).stdout.startswith("a0_1: drained")
        assert sopa("restore", "a0_1", *its).returncode == 0
        port = str(taken.getsockname()[1])
        assert f"cannot publish the lab at 127.0.0.1:{port}: Address already in use" in sopa("lab", "--publish", port).stderr
        seen.touch()
        out, errors = lab.communicate()
    out += said + errors
    assert lab.returncode == 0, out
    assert "0% dropped (30/30 received)" in out
    assert "3x2 leaf-spine fabric, 5 switches, 6 hosts" in out
    assert "inter-rack, 2 of 2 paths" in out
    assert "waiting until the arbiter grants slots to every host" in said
    assert out.count(" srv6      cfr ") == 6


def test_a_lab_of_routers_has_the_same_prompt_and_their_faults(tmp_path: Path) -> None:
    file, script, captured = tmp_path / "fabric.yaml", tmp_path / "script", tmp_path / "captured"
    file.write_text(LEAF_SPINE)
    # the capture asks for TCP of h0_0_2 within: other hosts of its rack still probe what they pinged
    script.write_text((SCRIPTS / "routers.txt").read_text().replace("CAPTURED", str(captured)))
    done = sopa("lab", "--switches", "srv6", "--fabric", str(file), "--script", str(script))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "5 routers and 6 hosts" in " ".join(done.stderr.split())
    assert "0% dropped (30/30 received)" in said
    assert said.count("> fcbb:bb00:4000:1002::: IP 10.0.0.2.") == 3, said
    assert re.findall(r", (\d) received", said) == ["1", "1", "0", "1"], said
    assert "10.0.0.0/8 via inet6 fe80::4000 dev e0_0-eth3" in said, said  # while its other uplink is down
    assert "fcbb:bb00:4000::/48 via fe80::4000 dev e0_0-eth3" in said
    [(lost, packets)] = re.findall(r"e0_2-a0_0 towards a0_0: lost (\d+) of (\d+) packets", said)
    assert 0 < int(lost) == int(packets)
    assert "rate 4444Kbit" in said
    assert "a0_1: drained" in said
    assert said.count(" srv6 ") == 6


FAT_TREE = "{pods: 4, edges: 2, aggregations: 2, cores: 4, hosts: 2, no_label: [h0_0_3]}\n"
SLOW_BFD = "sed '/./s/.*/-- set Interface & bfd:min_tx=4000 bfd:min_rx=4000/'"
SLOW_BFD = f"sh ovs-vsctl $(ovs-vsctl --bare --columns=name find Interface bfd:enable=true | {SLOW_BFD})"
"""Open vSwitch looks at all ports for each packet of BFD, which takes half a processor; nothing here waits for BFD."""
UNTIL = "sh timeout 60 sh -c 'until {} sopa status --json | grep -q a0_0-c0_1; do sleep 0.1; done'"
TRANSCRIPTS = (
    "sopa watch",
    "sopa paths --without c0_0",
    "sopa trace h0_0_2 h2_1_3 --count 50",
    "sopa trace --flow h0_0_3:40000 h2_1_3:5201",
    "sopa events --since 1h",
)


def shape(text: str) -> list[str]:
    """Return the lines of an output without numbers and reasons, which are of the run, and with columns next to each other."""
    text = re.sub(r"\d{4}-\d\d-\d\d (?=\d\d:)", "", text)  # of the other day, at midnight
    without = re.sub(r"[-+]?\d[\d.:]*%?|(?<= )-(?= )|silent|down", "#", text)
    return [" ".join(line.split()) for line in without.splitlines()]


@pytest.mark.timeout(900)  # some forty commands
def test_what_documents_have_typed_runs_and_shows_what_they_say(tmp_path: Path) -> None:
    [block] = [block for block in blocks(ROOT / "README.md") if "mininet>" in block.text]
    readme = [line.removeprefix("mininet> ") for line in block.text.splitlines() if line.startswith("mininet> ")]
    asked = [line for line in typed() if asks(line)]
    well = f"timeout 300 sh -c 'until {asked[0]}; do sleep 0.1; done'"  # a standstill of the lab's start is over
    out, wrong = tmp_path / "out", tmp_path / "wrong"
    wrong.write_text("0" * 43)
    watch, without, trace, flow, events = (f"sh {line} > {out}{number}" for number, line in enumerate(TRANSCRIPTS))
    lines = [
        SLOW_BFD,
        f"sh {well} > /dev/null",
        f"{watch} & echo $! > {tmp_path}/pid",
        *(f"sh {line} > /dev/null; echo status $? of {number}" for number, line in enumerate([well, *asked[1:]])),
        trace,
        without,
        flow,
        f"sh SOPA_TOKEN_FILE={wrong} sopa restore c0_0",
        *("link a0_0 c0_1 down", UNTIL.format(""), "link a0_0 c0_1 up", UNTIL.format("!")),
        *(line for line in readme if "sopa watch" not in line),
        events,
        f"sh kill $(cat {tmp_path}/pid)",
    ]
    script, fabric = tmp_path / "script", tmp_path / "fabric.yaml"
    script.write_text("".join(f"{line}\n" for line in lines))
    fabric.write_text(FAT_TREE)
    done = sopa("lab", "--fabric", str(fabric), "--script", str(script))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # drained for maintenance is what `sopa status` has to say
    statuses = ["3" if line == "sopa status" and "drain" in asked[number - 1] else "0" for number, line in enumerate(asked)]
    assert re.findall(r"^status (\d) of \d+$", said, re.M) == statuses, said
    for number, command in enumerate(TRANSCRIPTS):
        found = shape(Path(f"{out}{number}").read_text())
        for line in shape(transcript("docs/operating.md", command)):
            shown = [each for each in found if each.startswith(line.removesuffix("..."))]
            assert shown or "agent left" in line, f"{command}: {line} in {found}"
    sent = re.findall(r"02:53:9e:04:(\d\d:\d\d) > .* 10\.0\.0\.2\.(\d+) > 10\.2\.1\.3", said)
    assert len(sent) == 8, said
    for flow in {port for _, port in sent}:
        labels = [label for label, port in sent if port == flow]
        for at in range(len(labels)):
            assert len(set(labels[at : at + 4])) == min(4, len(labels) - at)
    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/install.md", "experiments/cli/lab.py")]
    captures = [re.sub(r" -i \S+", "", its) for text in texts for its in re.findall(r"tcpdump -.*? tcp", text)]
    assert len(set(captures)) == 1


AGENT = "agent --controller http://127.0.0.1:9 --iface"


@pytest.mark.parametrize(
    ("user", "words", "said"),
    [
        (0, f"{AGENT} lo", "a host of the fabric has one of 10.0.0.0/8"),
        (0, f"{AGENT} a@", "is no interface: write eth0"),
        (0, f"{AGENT} lo@/proc/0/ns/net", "no network namespace at"),
        *((65534, words, "needs root") for words in (f"{AGENT} lo", "lab", "demo")),
    ],
)
def test_what_cannot_be_done_is_said(monkeypatch: pytest.MonkeyPatch, user: int, words: str, said: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    done = CliRunner().invoke(main, words.split())
    assert (done.exit_code, said in " ".join(done.output.split())) == (1, True), done.output


def test_the_demo_shows_what_each_core_carried_and_writes_the_contracts_figures(tmp_path: Path) -> None:
    file, fabric = tmp_path / "demo.json", tmp_path / "fabric.yaml"
    fabric.write_text("{pods: 2, edges: 2, aggregations: 2, cores: 4, hosts: 2}\n")
    # twice as long as this machine may stand still, so that each flow has time
    done = sopa("demo", "--fabric", str(fabric), "--seed", "3", "--duration", "6", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "packets by core switch" in done.stdout
    report = json.loads(file.read_text())
    traffic, flows, failure = report["traffic"], report["flows"], report["failure"]
    assert len(flows) == len({flow["src"] for flow in flows}) == len({flow["dst"] for flow in flows}) == 8
    assert min(flow["mbit"] for flow in flows) == traffic["min_mbit"] > 0
    assert sorted(traffic["core_packets"]) == ["c0_0", "c0_1", "c1_0", "c1_1"]
    # each packet of data crosses one core switch; how evenly they are used is test_sopa.py's
    assert sum(traffic["core_packets"].values()) >= sum(flow["bytes"] for flow in flows) / 1448
    counts = sorted(traffic["core_packets"].values())
    assert traffic["core_max_min"] == round(counts[-1] / max(1, counts[0]), 4)
    assert traffic["retransmits"] == sum(flow["retransmits"] for flow in flows)
    # where the machine stands still, BFD takes other links out for a moment, too
    assert failure["candidates_down"] + len(failure["excluded"]) == 4
    core = failure["link"].rpartition("-c")[2]  # a link of a core switch; its path may be excluded for another one as well
    assert [*map(int, core.split("_"))] in [path["up"] for path in failure["excluded"]]
    assert failure["mbit_during"] > 0  # by the other paths
