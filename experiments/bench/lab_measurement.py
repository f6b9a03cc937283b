"""What measurements in a lab share."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from topologies.lab.isolation import isolated


def measured_inside(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function measures in a lab's namespaces, which is a process of its own.

    Raises
    ------
    RuntimeError
        If it fails there; its traceback is on standard error.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"

        def main() -> int:
            answer.write_text(json.dumps(measure()))
            return 0

        status = isolated(main)
        if status:
            raise RuntimeError(f"the lab ended with status {status}")
        found: dict[str, Any] = json.loads(answer.read_text())
    return found
