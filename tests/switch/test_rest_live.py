"""The REST interface of a running controller with real switches behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually


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
