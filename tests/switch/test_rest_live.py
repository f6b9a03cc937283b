"""The REST interface of a running controller with real switches behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually


def test_the_rules_of_every_switch_are_right_and_foreign_changes_are_seen(fabric: Fabric) -> None:
    for switch in fabric.tree.switches():
        body = fabric.controller.get(f"/switches/{fabric.tree.name(switch)}/rules").json()
        assert body["right"] is True
        assert {entry["state"] for entry in body["entries"]} == {"installed"}
        assert all(entry["packets"] is not None and entry["purpose"] for entry in body["entries"])
    fabric.ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,ip,actions=drop")
    labelled = "dl_src=02:53:9e:04:00:00/ff:ff:ff:ff:00:00"
    fabric.ovs.ofctl("--strict", "del-flows", "e0_0", f"table=2,priority=10,{labelled}")
    fabric.ovs.ofctl("del-groups", "a0_0", "group_id=2")
    body = fabric.controller.get("/switches/e0_0/rules").json()
    assert body["right"] is False
    assert [entry["purpose"] for entry in body["entries"] if entry["state"] == "missing"] == [
        "up index out of range: as unlabelled"
    ]
    [stale] = [entry for entry in body["entries"] if entry["state"] == "stale"]
    assert (stale["table"], stale["priority"], stale["match"]) == (0, 99, {"eth_type": 2048})
    groups = fabric.controller.get("/switches/a0_0/rules").json()["groups"]
    assert [(group["id"], group["state"]) for group in groups] == [(1, "installed"), (2, "missing")]


def test_a_switch_that_is_not_connected_cannot_be_asked_and_is_listed_so(fabric: Fabric) -> None:
    fabric.ovs.vsctl("del-controller", "c0_0")
    eventually(lambda: fabric.controller.fabric()["connected"], 19)
    answer = fabric.controller.get("/switches/c0_0/rules")
    assert answer.status_code == 503
    assert "it is not connected" in answer.json()["detail"]
    switches = {switch["name"]: switch for switch in fabric.controller.get("/switches").json()["switches"]}
    assert switches["c0_0"]["connected"] is False
    assert switches["e0_0"]["connected"] is True
    assert switches["e0_0"]["address"] == "127.0.0.1"
    assert switches["e0_0"]["rules_version"] >= 1


def test_a_change_needs_the_token_over_the_wire_too(fabric: Fabric) -> None:
    url = f"{fabric.controller.url}/sopa/v1/drains/c0_0"
    assert httpx.put(url).status_code == 401
    assert httpx.put(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert fabric.controller.get("/drains").json()["drains"] == []
    assert fabric.controller.change("PUT", "/drains/c0_0").status_code == 200
    assert fabric.controller.get("/drains").json()["drains"] == ["c0_0"]


@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing_between_the_document_and_the_answers(fabric: Fabric, tmp_path: Path) -> None:
    token = fabric.controller.token_file.read_text().strip()
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{fabric.controller.url}/openapi.json"]
    command += ["--checks=all", "--header", f"Authorization: Bearer {token}", "--max-examples=25", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
