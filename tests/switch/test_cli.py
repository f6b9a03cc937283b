"""The operators' commands as they are typed, against a real controller with real switches behind it.

What they print is in `scripts/commands`; their exit statuses and ``--json`` are recorded by `tests/contract`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.commands import ask, sopa
from tests.helpers.fabrics import Fabric
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.waiting import Containing, eventually

MASKED = (
    (r"http://127.0.0.1:\d+", "URL"),
    (r"version( *) \d+", r"version\1 N"),
    (r"fabric's is \d+", "fabric's is N"),
    (r"[\d.]+ ms", "N ms"),
    (r"\d\d:\d\d:\d\d", "HH:MM:SS"),
    (r"the last from \w+", "the last from SWITCH"),
    (r"/\S+/controller.state", "STATE"),
)


class Operator:
    """Who types commands, and changes switches behind the controller's back."""

    def __init__(self, shared: Fabric, directory: Path) -> None:
        self.shared, self.its, self.directory = shared, shared.controller, directory

    def handle(self, step: Step) -> str:
        match step.command, step.words:
            case "sopa", words:
                return self.typed(*words, **step.options)
            case "status", words:  # the lines that begin so: a test before may have had agents, which are missed since
                return "\n".join(line for line in self.typed("status").splitlines() if line.startswith(" ".join(words)))
            case "channels", [state, *names]:
                self.shared.lead(names, self.its.openflow if state == "back" else "tcp:127.0.0.1:9")
                eventually(lambda: set(self.its.fabric()["missing"]), set() if state == "back" else set(names))
                eventually(lambda: self.its.fabric()["management"]["fault"], state != "back")
            case "tamper", []:
                self.shared.ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,ip,actions=drop")
                self.shared.ovs.ofctl("--strict", "del-flows", "e0_0", "table=1,priority=0,ip")
            case "reconnect", [name]:
                self.shared.ovs.appctl("bridge/reconnect", name)
            case "file", [name, *text]:
                (self.directory / name).write_text(" ".join(text) + "\n")
        return ""

    def typed(self, *words: str, **variables: str) -> str:
        """Return what a command prints, without what another run may say otherwise, and its exit status if that is not 0."""
        places = {"DIR": str(self.directory), "OVS": str(self.shared.ovs.directory)}
        own = {name: re.sub("^(DIR|OVS)", lambda its: places[its[0]], value) for name, value in variables.items()}
        done = ask(self.its, *words, **own)
        said = (done.stdout + done.stderr).replace(str(self.directory), "DIR")
        for what, name in MASKED:
            said = re.sub(what, name, said)
        return said + (f"\nexit status {done.exit_code}" if done.exit_code else "")


@each_script(__file__, "commands")
def test_commands(script: Script, shared: Fabric, tmp_path: Path) -> None:
    script.play(Operator(shared, tmp_path).handle)


@contextmanager
def watching(fabric: Fabric, file: Path, *options: str) -> Iterator[None]:
    """Run ``sopa watch`` until Ctrl-C ends it."""
    command = [sys.executable, "-m", "sopa_ryu.cli", "watch", *options, "--controller", fabric.controller.url]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SOPA_")}
    with file.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=own) as watch:
        try:
            yield
        finally:
            watch.send_signal(signal.SIGINT)
    assert watch.returncode == 0, file.read_text()
    assert "Traceback" not in file.read_text()


def test_watch_begins_with_the_last_versions_follows_a_restart_and_ends_by_ctrl_c(shared: Fabric, tmp_path: Path) -> None:
    """With ``--json`` it is in `tests/contract`."""
    its, file = shared.controller, tmp_path / "watched"
    for command in ("drain", "restore"):
        ask(its, command, "c1_0")
    with watching(shared, file, "--last", "2"):
        eventually(lambda: file.read_text().count("\n"), 3)
        drained, healed, now = file.read_text().splitlines()
        assert re.search(r"version \d+: c1_0 drained; no agents, installed after [\d.]+ ms$", drained)
        assert re.search(r"version \d+: c1_0 healed; no agents, installed after [\d.]+ ms$", healed)
        assert "20 of 20 switches connected, nothing has failed" in now
        its.stop()
        eventually(file.read_text, Containing("no answer"))
        its.start()
        eventually(lambda: file.read_text().count("20 of 20 switches connected"), 2)
        ask(its, "drain", "e0_0-a0_1")
        eventually(file.read_text, Containing("e0_0-a0_1 drained"))
    said = file.read_text()
    assert [said.count(each) for each in ("c1_0 drained", "c1_0 healed", "no answer", "e0_0-a0_1 drained")] == [1] * 4
    ask(its, "restore", "e0_0-a0_1")


def test_events_say_who_drained_what_why_and_until_when_over_a_kill_of_the_controller(shared: Fabric) -> None:
    its, begin = shared.controller, time.time()

    def events(element: str) -> list[dict[str, Any]]:
        said = ask(its, "events", "--since", f"{int(begin)}", "--element", element, "--json").stdout
        return [json.loads(line) for line in said.splitlines()]

    ask(its, "drain", "c1_1", "--reason", "fan", "--until", f"{begin + 4:.0f}")
    shared.lead(["c0_0"], "tcp:127.0.0.1:9")
    eventually(lambda: [event["kind"] for event in events("c0_0")][-1:], ["switch lost"])
    its.stop(signal.SIGKILL)
    its.start()
    shared.lead(["c0_0"], its.openflow)
    eventually(lambda: its.get("/drains").json()["drains"], [])
    eventually(
        lambda: [event["kind"] for event in events("c1_1") if event["kind"] in ("drained", "restored")], ["drained", "restored"]
    )
    drained, *_, restored = (event for event in events("c1_1") if event["kind"] in ("drained", "restored"))
    assert drained["actor"] == "operator from 127.0.0.1"
    assert drained["cause"].startswith("fan (until ")
    assert (restored["actor"], restored["cause"]) == ("sopa", "its time is over")


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

    assert completed("sopa drain c0", **nobody) == ["c0_0", "c0_1", "c0_2"]
    for words, names in (
        ("drain c0", ["c0_0", "c0_1"]),
        ("drain c0_0 c0", ["c0_1"]),
        ("drain a0_0-", ["a0_0-c0_0", "a0_0-c0_1"]),
        ("rules e3", ["e3_0", "e3_1"]),
        ("paths h0_0_2 10.3.1", ["10.3.1.2", "10.3.1.3"]),
        ("paths h3_1", ["h3_1_2", "h3_1_3"]),
        ("restore ", []),
    ):
        assert offered(f"sopa {words}") == names
    ask(shared.controller, "drain", "c1_1")
    eventually(lambda: completed("sopa restore ", **there), ["c1_1"])
    ask(shared.controller, "restore", "c1_1")


def test_the_completion_script_is_printed_and_bash_takes_it() -> None:
    for shell in ("zsh", "fish", "bash"):
        done = sopa("completion", shell)
        assert f"{shell}_complete" in done.stdout
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
