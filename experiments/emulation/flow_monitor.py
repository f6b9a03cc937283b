"""Every change of a switch's flow entries, as Open vSwitch reports it to a monitor (``ovs-ofctl monitor SWITCH watch:``)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from sopa_ryu.fabric.rule_changes import COOKIE_MARK, LEARNED_COOKIE
from topologies.lab.private_ovs import OPENFLOW, OvsError
from topologies.lab.startable import Startable

START_SECONDS = 60.0
POLL_SECONDS = 0.05
_WRITTEN = re.compile(r"^ event=(?:ADDED|MODIFIED) .*?cookie=0x([0-9a-f]+)", re.MULTILINE)
_BEGUN = "FLOW_MONITOR reply"


class FlowMonitors(Startable):
    """A monitor of each switch, as a context manager. What earlier monitors of the same switches have said stays."""

    def __init__(self, names: Iterable[str], directory: Path) -> None:
        self._files = {name: directory / f"{name}.flows" for name in names}
        self._begun = dict.fromkeys(self._files, 0)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._read = dict.fromkeys(self._files, 0)
        self.written: dict[str, list[int]] = {name: [] for name in self._files}

    def start(self) -> None:
        """Start to listen, and wait until each switch reports."""
        for name, file in self._files.items():
            self._begun[name] = file.stat().st_size if file.exists() else 0
            self._listen(name)
        deadline = time.monotonic() + START_SECONDS
        while silent := self._silent():
            if time.monotonic() > deadline:
                self.stop()
                raise OvsError(f"{', '.join(silent)} did not report changes of flow entries within {START_SECONDS:g} s")
            time.sleep(POLL_SECONDS)

    def _silent(self) -> list[str]:
        """Return the switches that do not report yet, after another attempt where Open vSwitch had no such bridge yet."""
        silent = [name for name in self._files if not self._reports(name)]
        for name in silent:
            if self._processes[name].poll() is not None:
                self._listen(name)
        return silent

    def _listen(self, name: str) -> None:
        with self._files[name].open("ab") as output:
            self._processes[name] = subprocess.Popen(
                ["ovs-ofctl", "-O", OPENFLOW, "monitor", name, "watch:!initial"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Listen no longer. It can be called again."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    def follow(self) -> dict[str, list[int]]:
        """Return the versions of the entries that were added or modified on each switch so far, in that order."""
        for name, file in self._files.items():
            with file.open("rb") as said:
                said.seek(self._read[name])
                whole, _, _ = said.read().rpartition(b"\n")
            self._read[name] += len(whole) + 1 if whole else 0
            for cookie in (int(found, 16) for found in _WRITTEN.findall(whole.decode(errors="replace"))):
                if cookie >> 56 == COOKIE_MARK and cookie != LEARNED_COOKIE:
                    self.written[name].append(cookie & 0xFFFFFFFF)
        return self.written

    def _reports(self, name: str) -> bool:
        with self._files[name].open("rb") as said:
            said.seek(self._begun[name])
            return _BEGUN.encode() in said.read()
