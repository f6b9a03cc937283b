"""The memory of other processes."""

import re
from pathlib import Path


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    [kib] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024
