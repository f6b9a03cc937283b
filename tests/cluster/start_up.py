"""Start an embedded controller of some checkout, wait until REST answers, and end it; prints how long that took, and its memory.

To compare two checkouts, as before and after a change, run this for one after the other in turn:

    .venv/bin/python -m tests.cluster.start_up TREE
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from experiments.emulation.processes import free_ports


def main(tree: Path) -> None:
    """Start the controller whose modules are in a tree."""
    openflow, rest = free_ports(2)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "sopa_ryu.manager", "--sopa-k=4", f"--sopa-state-dir={directory}"]
        command += [f"--ofp-tcp-listen-port={openflow}", f"--wsapi-port={rest}", "--wsapi-host=127.0.0.1"]
        began = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        with subprocess.Popen(
            [*command, "sopa_ryu.app"], stderr=subprocess.DEVNULL, cwd=tree, env=environment
        ) as process:
            try:
                while not answers(rest):
                    assert process.poll() is None, f"it ended with status {process.returncode}"
                    time.sleep(0.005)
                took = time.monotonic() - began
                status = Path(f"/proc/{process.pid}/status").read_text()
                memory = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
            finally:
                process.terminate()
    print(f"REST answered after {took:.3f} s, {int(memory) / 1024:.1f} MiB")


def answers(port: int) -> bool:
    """Tell whether REST answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/sopa/v1/fabric").status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
