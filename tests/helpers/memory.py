"""The memory of other processes."""

import re
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the processes that a process has started (proc(5)): of a controller its front, and the estimator."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def front_of(pid: int) -> int:
    [front] = [child for child in children(pid) if b"sopa_ryu.front.child" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return front


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, and of those that it has started, in MiB."""
    [kib] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024 + sum(map(resident_mib, children(pid)))
