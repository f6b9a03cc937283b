"""The operators' commands as they are typed, against a real controller with real switches behind it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers.certificates import Authority
from tests.helpers.commands import ask, sopa
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually

SOPA = [sys.executable, "-m", "sopa_ryu.cli"]


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SOPA_")}
    return {**own, **more}


def test_what_is_well_ends_with_0_and_what_is_drained_with_3(shared: Fabric) -> None:
    its = shared.controller
    assert ask(its, "status").exit_code == ask(its, "failures").exit_code == 0
    done = ask(its, "drain", "c0_0", "a0_0-c0_1")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("c0_0: drained\na0_0-c0_1: drained\nversion ")
    assert "in force at all agents and switches" in done.stdout
    try:
        status, failures = ask(its, "status"), ask(its, "failures")
        assert (status.exit_code, failures.exit_code) == (3, 3)
        assert "link a0_0-c0_1 drained, switch c0_0 drained" in status.stdout
        assert re.search(r"^ c0_0 +switch +drained", failures.stdout, re.MULTILINE)
        paths = ask(its, "paths", "h0_0_2", "10.2.0.2")
        assert paths.exit_code == 3
        assert "2 of 4 paths" in paths.stdout
        assert "excluded: link a0_0-c0_1 drained" in paths.stdout
    finally:
        restored = ask(its, "restore", "c0_0", "a0_0-c0_1", "--json")
    assert restored.exit_code == 0
    assert json.loads(restored.stdout)["drains"] == []
    assert ask(its, "paths", "h0_0_2", "h2_0_2").exit_code == 0


def test_status_says_which_switches_forward_without_a_channel(shared: Fabric) -> None:
    its = shared.controller
    lost = ("c0_0", "c0_1", "c1_0", "c1_1", "a2_0")
    try:
        shared.lead(lost, "tcp:127.0.0.1:9")
        eventually(lambda: set(its.fabric()["missing"]), set(lost))
        status = ask(its, "status")
        assert status.exit_code == 3
        assert "no channel    a2_0, c0_0, c0_1, c1_0, c1_1: forwarding by the rules they have" in status.stdout
        assert "management    many OpenFlow channels lost together" in status.stdout
    finally:
        shared.lead(lost, its.openflow)
        its.wait_connected(20)
    eventually(lambda: ask(its, "status").exit_code, 0)


def test_the_way_of_a_hashed_flow_is_computed_and_asked_for_where_the_switches_are(shared: Fabric) -> None:
    its, words = shared.controller, ("trace", "--flow", "h0_0_2:40000", "h2_1_3:5201")
    computed = ask(its, *words, OVS_RUNDIR="/nowhere")
    assert computed.exit_code == 0, computed.stderr
    assert "inter-pod, hashed, version" in computed.stdout
    assert "e0_0-a0_1 a0_1-c1_0 a2_1-c1_0 e2_1-a2_1" in computed.stdout
    assert "3 other ways" in computed.stdout
    assert "Open vSwitch on this machine" not in computed.stdout
    asked = ask(its, *words, OVS_RUNDIR=str(shared.ovs.directory))
    assert asked.exit_code == 0
    assert "Open vSwitch on this machine says the same (ofproto/trace)." in asked.stdout


def test_a_trace_that_cannot_be_made_says_why(shared: Fabric, tmp_path: Path) -> None:
    its = shared.controller
    refused = ask(its, "trace", "h0_0_2", "h2_1_3")
    assert (refused.exit_code, "no agent of the source is connected" in refused.stderr) == (1, True)
    (tmp_path / "token").write_text("wrong")
    refused = ask(its, "trace", "h0_0_2", "h2_1_3", SOPA_TOKEN_FILE=str(tmp_path / "token"))
    assert (refused.exit_code, "is not this controller's" in refused.stderr) == (1, True)


def test_one_name_that_is_none_keeps_no_other_from_being_drained(shared: Fabric) -> None:
    its = shared.controller
    done = ask(its, "drain", "c9_9", "c0_1", "h0_0_2-e0_0")
    assert done.exit_code == 1
    assert "c0_1: drained" in done.stdout
    assert "c9_9 is not a link or switch" in done.stderr
    assert "the only link of its host" in done.stderr
    assert ask(its, "restore", "c0_1").exit_code == 0


def test_json_is_the_controllers_answer(shared: Fabric) -> None:
    its = shared.controller
    for command, path in (
        ("status", "/fabric"),
        ("failures", "/failures"),
        ("wiring", "/wiring"),
        ("agents", "/agents"),
    ):
        assert json.loads(ask(its, command, "--json").stdout) == its.get(path).json()
    shown = json.loads(ask(its, "rules", "e0_0", "--json").stdout)
    assert shown["entries"] == its.get("/switches/e0_0/rules").json()["entries"]


def test_the_path_of_each_packet_is_that_of_the_controller(shared: Fabric) -> None:
    its = shared.controller
    words = ["--packets", "6", "--protocol", "udp", "--sport", "4000", "--dport", "53", "--seed", "7"]
    body = json.loads(ask(its, "paths", "h0_0_2", "h1_1_3", *words, "--json").stdout)
    asked = its.get(
        "/paths", src="10.0.0.2", dst="10.1.1.3", packets="6", protocol="17", sport="4000", dport="53", seed="7"
    )
    assert body == asked.json()
    rows = re.findall(
        r"^ +\d+ +(\d) +\d, \d +(\w+)", ask(its, "paths", "h0_0_2", "h1_1_3", *words).stdout, re.MULTILINE
    )
    assert [int(turn) for turn, _ in rows] == body["packets"]
    assert [word for _, word in rows] == [body["candidates"][turn]["option"] for turn in body["packets"]]
    assert ask(its, "paths", "h0_0_2", "h1_1_3", "--sport", "1").exit_code == 2


def test_rules_that_differ_are_marked(shared: Fabric) -> None:
    its = shared.controller
    right = ask(its, "rules", "e0_0")
    assert right.exit_code == 0
    assert "all as intended" in right.stdout
    assert "ip, ipv4_dst=10.0.0.0/24" in right.stdout
    shared.ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,ip,actions=drop")
    shared.ovs.ofctl("--strict", "del-flows", "e0_0", "table=1,priority=0,ip")
    done = ask(its, "rules", "e0_0", "--differences")
    assert done.exit_code == 3
    assert "2 differ from what is intended" in done.stdout
    assert re.search(r"^ NO +yes +0 +99 +ip ", done.stdout, re.MULTILINE)
    assert re.search(r"^ yes +NO +1 +0 +ip ", done.stdout, re.MULTILINE)
    assert done.stdout.count("\n") == 5
    shared.ovs.appctl("bridge/reconnect", "e0_0")
    shared.lead(["c0_0"], "tcp:127.0.0.1:9")
    eventually(lambda: its.fabric()["missing"], ["c0_0"])
    gone = ask(its, "rules", "c0_0")
    assert gone.exit_code == 1
    assert "it is not connected" in gone.stderr
    assert ask(its, "status").exit_code == 3
    shared.lead(["c0_0"], its.openflow)


def test_a_table_in_a_pipe_is_not_cut(shared: Fabric) -> None:
    done = ask(shared.controller, "rules", "e0_0", COLUMNS="40")
    assert max(map(len, done.stdout.splitlines())) > 120
    assert "learn the sender's Ethernet address for 1 s; learn no more for a second, up to 8 senders" in done.stdout


def test_a_list_of_several_pages_is_read_to_its_end(tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    with ControllerProcess(18, tmp_path / "controller.log", openflow, rest) as its:
        assert its.get("/hosts").json()["total"] == 1458
        done = ask(its, "agents", "--missing", "--json")
        body = json.loads(done.stdout)
        assert done.exit_code == 3
        assert len({host["name"] for host in body["hosts"]}) == body["total"] == 1458


def test_what_is_wrong_is_said_with_what_to_do(shared: Fabric, tmp_path: Path) -> None:
    its = shared.controller
    wrong, empty = tmp_path / "wrong", tmp_path / "empty"
    wrong.write_text("no-such-token\n")
    empty.write_text("\n")
    for more, text in (
        ({"SOPA_TOKEN_FILE": str(wrong)}, f"the token in {wrong} is not this controller's"),
        ({"SOPA_TOKEN_FILE": str(empty)}, f"{empty} is empty"),
        (
            {"SOPA_TOKEN_FILE": str(tmp_path / "none")},
            "No such file or directory (--token-file FILE, or SOPA_TOKEN_FILE)",
        ),
        ({"SOPA_CONTROLLER": "http://127.0.0.1:9"}, "Is the controller running there?"),
        ({"SOPA_CONTROLLER": its.url.replace("http", "https")}, "The controller does not use TLS there"),
    ):
        done = ask(its, "drain", "c0_0", **more)
        assert done.exit_code == 1
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    assert ask(its, "status", "--controller", "127.0.0.1:8080").exit_code == 2
    assert ask(its, "rules", "e0_0/../../fabric").exit_code == 2
    nowhere = ask(its, "paths", "h0_0_2", "h9_0_2")
    assert nowhere.exit_code == 1
    assert "no switch or host of a k=4 fat-tree" in nowhere.stderr


def test_tls_and_the_authority_that_signed_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("controller")
    openflow, rest = free_ports(2)
    options = [f"--sopa-tls-cert={own.certificate}", f"--sopa-tls-key={own.key}"]
    with ControllerProcess(
        4, tmp_path / "controller.log", openflow, rest, options=options, ca_file=authority.certificate
    ) as its:
        trusted = {"SOPA_CA_FILE": str(authority.certificate)}
        assert ask(its, "drain", "c0_0", "--wait", "0", **trusted).stdout == "c0_0: drained\n"
        assert json.loads(ask(its, "status", "--json", **trusted).stdout)["k"] == 4
        unknown = ask(its, "status")
        assert unknown.exit_code == 1
        assert "--ca-file FILE, or SOPA_CA_FILE" in unknown.stderr
        assert (
            "If the controller uses TLS there"
            in ask(its, "status", SOPA_CONTROLLER=its.url.replace("https", "http")).stderr
        )
        assert "cannot be read from /nowhere" in ask(its, "status", SOPA_CA_FILE="/nowhere").stderr


def test_watch_follows_changes_through_a_restart_and_ends_by_ctrl_c(shared: Fabric, tmp_path: Path) -> None:
    its = shared.controller
    ask(its, "drain", "c1_1")
    file = tmp_path / "watched"

    def events(*names: str) -> list[dict[str, object]]:
        told = [json.loads(line) for line in file.read_text().splitlines()]
        return [event for event in told if event["event"] in names]

    with file.open("w") as output:
        command = [*SOPA, "watch", "--json", "--controller", its.url]
        watch = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment())
    try:
        eventually(lambda: len(events("fabric")), 1)
        *earlier, before = events("change")
        assert before["failed"] == {"c1_1": "drained"}
        assert before["installed_ms"] is not None
        ask(its, "restore", "c1_1")
        eventually(lambda: len(events("change")), len(earlier) + 2)
        assert events("change")[-1]["healed"] == ["c1_1"]
        its.stop()
        eventually(lambda: len(events("unreachable")), 1)
        its.start()
        its.wait_connected(20)
        eventually(lambda: events("fabric")[-1], lambda its: its["epoch"] != before["epoch"] and its["connected"] == 20)
        ask(its, "drain", "e0_0-a0_1")
        eventually(lambda: events("change")[-1]["failed"], {"e0_0-a0_1": "drained"})
        assert len(events("unreachable")) == 1
        versions = [(event["epoch"], event["version"]) for event in events("change")]
        assert len(set(versions)) == len(versions)
    finally:
        watch.send_signal(signal.SIGINT)
        status = watch.wait(60)
        ask(its, "restore", "e0_0-a0_1")
    assert status == 0, file.read_text()
    assert "Traceback" not in file.read_text()


def test_watch_in_words_begins_with_the_last_versions(shared: Fabric, tmp_path: Path) -> None:
    its, file = shared.controller, tmp_path / "watched"
    ask(its, "drain", "c1_0")
    ask(its, "restore", "c1_0")
    with file.open("w") as output:
        command = [*SOPA, "watch", "--last", "2", "--controller", its.url]
        watch = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment())
    eventually(lambda: file.read_text().count("\n"), 3)
    watch.send_signal(signal.SIGINT)
    assert watch.wait(60) == 0
    drained, healed, now = file.read_text().splitlines()[:3]
    assert re.search(r"version \d+: c1_0 drained; no agents, installed after [\d.]+ ms$", drained)
    assert re.search(r"version \d+: c1_0 healed; no agents, installed after [\d.]+ ms$", healed)
    assert "20 of 20 switches connected, nothing has failed" in now


def completed(words: str, **more: str) -> list[str]:
    """Return the completions that Tab offers after some words, as the script that bash runs asks for them."""
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_SOPA_COMPLETE": "bash_complete", **more}
    return [line.partition(",")[2] for line in sopa(**variables).stdout.splitlines() if line]


def test_names_are_completed_from_the_controller_or_from_the_size(shared: Fabric) -> None:
    there = {"SOPA_CONTROLLER": shared.controller.url, "SOPA_K": "6"}
    nobody = {"SOPA_CONTROLLER": "http://127.0.0.1:9", "SOPA_K": "6"}

    def offered(words: str) -> list[str]:
        """Return what the controller's answer leads to: Tab waits half a second for it, which is little on a busy machine."""
        return eventually(lambda: completed(words, **there), lambda names: "c0_2" not in names and len(names) < 3)

    assert offered("sopa drain c0") == ["c0_0", "c0_1"]
    assert completed("sopa drain c0", **nobody) == ["c0_0", "c0_1", "c0_2"]
    assert offered("sopa drain c0_0 c0") == ["c0_1"]
    assert offered("sopa drain a0_0-") == ["a0_0-c0_0", "a0_0-c0_1"]
    assert offered("sopa rules e3") == ["e3_0", "e3_1"]
    assert offered("sopa paths h0_0_2 10.3.1") == ["10.3.1.2", "10.3.1.3"]
    assert offered("sopa paths h3_1") == ["h3_1_2", "h3_1_3"]
    assert offered("sopa restore ") == []
    ask(shared.controller, "drain", "c1_1")
    eventually(lambda: completed("sopa restore ", **there), ["c1_1"])
    ask(shared.controller, "restore", "c1_1")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed_and_bash_takes_it(shell: str) -> None:
    done = sopa("completion", shell)
    assert f"{shell}_complete" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
