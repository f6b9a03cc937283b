"""``sopa parser``, typed as an operator types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main
from tests.helpers.veth import Pair


def sopa_parser(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sopa_ryu.cli", "parser", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_attach_status_detach(pair: Pair) -> None:
    ports = [f"host0@{pair.host}", f"peer0@{pair.peer}"]
    both = [word for port in ports for word in ("--iface", port)]
    missing = sopa_parser("status", *both)
    assert missing.returncode == 1
    assert missing.stdout.count(" none ") == 2

    attached = sopa_parser("attach", *both)
    assert attached.returncode == 0, attached.stderr
    assert attached.stdout.splitlines() == ["host0: attached, native mode", "peer0: attached, native mode"]
    pair.on_host("ping -c 3 -i 0.1 10.2.1.3")
    shown = sopa_parser("status", *both)
    assert shown.returncode == 0
    assert "native" in shown.stdout
    told = json.loads(sopa_parser("status", "--json", *both).stdout)
    assert set(told) == {*ports}
    assert told[ports[1]]["mode"] == "native"
    assert told[ports[1]]["unlabelled"] >= 3
    assert told[ports[1]]["believed"] == told[ports[1]]["forged"] == 0

    detached = sopa_parser("detach", *both)
    assert detached.stdout.splitlines() == ["host0: detached", "peer0: detached"]
    assert sopa_parser("detach", *both).stdout.splitlines() == ["host0: there was none", "peer0: there was none"]
    assert sopa_parser("status", *both).returncode == 1


def test_the_mode_can_be_chosen(pair: Pair) -> None:
    port = ["--iface", f"peer0@{pair.peer}"]
    assert sopa_parser("attach", "--mode", "generic", *port).stdout == "peer0: attached, generic mode\n"
    assert "xdpgeneric" in pair.on_peer("ip link show peer0")


def test_an_interface_that_fails_keeps_no_other_from_its_parser(pair: Pair) -> None:
    done = sopa_parser(
        "attach", "--iface", f"nowhere0@{pair.peer}", "--iface", f"peer0@{pair.peer}", "--iface", "eth0@"
    )
    assert done.returncode == 1
    assert done.stdout == "peer0: attached, native mode\n"
    assert "no interface nowhere0" in done.stderr
    assert "'eth0@' is no interface" in done.stderr


@pytest.mark.parametrize("verb", ["attach", "detach", "status"])
def test_without_root_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    done = CliRunner().invoke(main, ["parser", verb, "--iface", "lo"])
    assert done.exit_code == 1
    assert "sopa parser needs root" in done.output
