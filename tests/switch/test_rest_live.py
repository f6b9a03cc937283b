"""The REST interface of a running controller with real switches behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually


def test_the_rules_of_every_switch_are_right_and_foreign_changes_are_seen(shared: Fabric) -> None:
    get = shared.controller.get
    for switch in get("/switches").json()["switches"]:
        assert (switch["connected"], switch["address"]) == (True, "127.0.0.1")
        assert switch["rules_version"] >= 1
        body = get(f"/switches/{switch['name']}/rules").json()
        assert body["right"] is True
        assert {entry["state"] for entry in body["entries"]} == {"installed"}
        assert all(entry["packets"] is not None and entry["purpose"] for entry in body["entries"])
    shared.ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,ip,actions=drop")
    labelled = "dl_src=02:53:9e:04:00:00/ff:ff:ff:ff:00:00"
    shared.ovs.ofctl("--strict", "del-flows", "e0_0", f"table=2,priority=10,{labelled}")
    shared.ovs.ofctl("del-groups", "a0_0", "group_id=2")
    body = get("/switches/e0_0/rules").json()
    assert body["right"] is False
    assert [entry["purpose"] for entry in body["entries"] if entry["state"] == "missing"] == [
        "up index out of range: as unlabelled"
    ]
    [stale] = [entry for entry in body["entries"] if entry["state"] == "stale"]
    assert (stale["table"], stale["priority"], stale["match"]) == (0, 99, {"eth_type": 2048})
    groups = get("/switches/a0_0/rules").json()["groups"]
    assert [(group["id"], group["state"]) for group in groups] == [(1, "installed"), (2, "missing")]
    for name in ("e0_0", "a0_0"):
        shared.ovs.appctl("bridge/reconnect", name)


@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing_between_the_document_and_the_answers(shared: Fabric, tmp_path: Path) -> None:
    token = shared.controller.token_file.read_text().strip()
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{shared.controller.url}/openapi.json"]
    command += ["--checks=all", "--header", f"Authorization: Bearer {token}", "--max-examples=8", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for name in shared.controller.get("/drains").json()["drains"]:
        shared.controller.change("DELETE", f"/drains/{name}").raise_for_status()
    eventually(lambda: shared.controller.fabric()["failures"], [])
