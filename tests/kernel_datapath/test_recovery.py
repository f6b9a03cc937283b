"""Recovery of TCP in the lab on Debian's kernels: what is sent again needlessly, with five minutes of memory and with one second.

The figures are printed (``-s``); docs/hosts.md has them. What a guest measures of throughput says nothing: it is emulated.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections import Counter
from pathlib import Path

LINUX, OURS = "sopa+probes=off+minrtt=300", "sopa+probes=off"
RATE_MBIT, SECONDS = 2, 20
"""So little that an emulated machine with one processor carries it."""


def test_a_permutation_sends_less_again_than_with_five_minutes_of_memory(tmp_path: Path) -> None:
    command = [".venv/bin/sopa", "experiment", "run", "permutation", f"--schemes={LINUX},{OURS}", "--seeds=1"]
    command += [f"--rate={RATE_MBIT}", f"--seconds={SECONDS}", f"--out={tmp_path}"]
    subprocess.run(command, check=False)  # status 1: the processors were busy
    again = {}
    for scheme in (LINUX, OURS):
        total: Counter[str] = Counter()
        for line in (tmp_path / f"{scheme}-1.jsonl").read_text().splitlines():
            flow = json.loads(line)
            assert flow["packets"] > 0
            total.update({name: flow[name] for name in ("packets", "reordered", "retransmits", "spurious")})
        again[scheme] = total["retransmits"] / total["packets"]
        print(platform.release(), scheme, dict(total), f"{again[scheme]:.2%} sent again")
    assert again[OURS] < again[LINUX]
