"""A capture of all links of a lab at a time, by tcpdump, which takes less of the processors than Python would."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from topologies.lab.startable import Startable

SNAP_BYTES = 96
BUFFER_KIB = 65536
MIN_DATA_BYTES = 200
"""Packets with less are acknowledgements."""
STOP_SECONDS = 30.0


class CaptureError(RuntimeError):
    """tcpdump has ended, or has lost packets. The message has its output."""


class LinkCapture(Startable):
    """TCP's packets of data at all interfaces of this network namespace, as a context manager.

    Args:
        file: Where they are written.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it captures."""
        command = ["tcpdump", "-i", "any", "-y", "LINUX_SLL2", "-n", "-s", str(SNAP_BYTES), "-B", str(BUFFER_KIB)]
        command += [
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
            str(self.file),
            f"tcp and ip[2:2] >= {MIN_DATA_BYTES}",
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:  # ends with the process
            said += line
            if line.startswith("tcpdump: listening"):
                return
        self._process.wait()
        raise CaptureError(f"tcpdump ended: {said.strip()}")

    def stop(self) -> None:
        """End it. May be repeated.

        Raises:
            CaptureError: If it has lost packets.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        lost = [line for line in said.splitlines() if "dropped by kernel" in line]
        if not lost or not lost[0].startswith("0 "):
            raise CaptureError(f"the capture has lost packets: {said.strip()}")
