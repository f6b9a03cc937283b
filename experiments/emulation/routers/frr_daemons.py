"""The daemons of FRR for many routers, each in a network namespace of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from topologies.lab.batch_net import LabError

FRR = Path("/usr/lib/frr")
DAEMONS = ("zebra", "bfdd", "bgpd")
START_SECONDS = 20.0
_POLL_SECONDS = 0.05
_SOCKETS = Path("/run/frr")
_VAR_TMP = "/var/tmp"
_USER = "frr", "frr"


class Daemons:
    """The daemons of all routers, by name of the router. Raises `LabError` if FRR is not installed."""

    def __init__(self, directory: Path, netns: Callable[[str], str]) -> None:
        if missing := [name for name in DAEMONS if not (FRR / name).exists()]:
            raise LabError(f"FRR's {', '.join(missing)} is not installed: run make install-peers, or: apt install frr")
        self.directory = directory
        self._netns = netns
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        shutil.chown(directory, *_USER)
        # for log buffers of FRR; the mount belongs to the namespace of the lab
        run_command("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", _VAR_TMP)

    def close(self) -> None:
        """Kill all daemons."""
        self.end()
        run_command("umount", "-l", _VAR_TMP)

    def start(self, configurations: Mapping[str, Mapping[str, str]]) -> None:
        """Start the daemons of some routers, each when the one before it is ready; a missing configuration is an empty one.

        A daemon that does not find zebra waits 10 s before it tries again. What bgpd registers before bfdd is there can be lost.
        Raises `LabError` if a daemon ends, or is not ready after `START_SECONDS`.
        """
        for router in configurations:
            sockets = _SOCKETS / router
            shutil.rmtree(sockets, ignore_errors=True)
            sockets.mkdir(parents=True)
            shutil.chown(sockets, *_USER)
            self._processes[router] = []
        for daemon in DAEMONS:
            for router, texts in configurations.items():
                self._start(router, daemon, texts.get(daemon, ""))
            self._await_ready(daemon, list(configurations))

    def _start(self, router: str, daemon: str, configuration: str) -> None:
        file = self.directory / f"{router}.{daemon}.conf"
        file.write_text(configuration)
        command = ["nsenter", f"--net={self._netns(router)}", str(FRR / daemon), "-N", router, "-f", str(file)]
        command += ["--log", f"file:{self.directory / f'{router}.{daemon}.log'}"]
        if daemon == "bgpd":
            command += ["-p", "179"]
        with self._output(router, daemon).open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self._processes[router].append(process)

    def _await_ready(self, daemon: str, routers: list[str]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while routers := [router for router in routers if not self._is_ready(daemon, router)]:
            self.check()
            if time.monotonic() > deadline:
                raise LabError(
                    f"FRR's {daemon} is not ready after {START_SECONDS:g} s: {', '.join(routers[:8])}; logs are in {self.directory}"
                )
            time.sleep(_POLL_SECONDS)

    def _is_ready(self, daemon: str, router: str) -> bool:
        """Return True if zebra accepts clients, or if zebra knows the daemon as one of them."""
        sockets = _SOCKETS / router
        if daemon == "zebra":
            return (sockets / "zserv.api").exists() and (sockets / "zebra.vty").exists()
        return daemon.removesuffix("d") in run_command("vtysh", "-N", router, "-c", "show zebra client summary").split()

    def freeze(self, router: str) -> None:
        """Stop the daemons of a router without closing connections, as if its processor had died."""
        for process in self._processes[router]:
            process.send_signal(signal.SIGSTOP)

    def end(self, *routers: str) -> None:
        """Kill the daemons of some routers; default: of all."""
        ending = [self._processes.pop(router) for router in routers or list(self._processes)]
        for process in (process for processes in ending for process in processes):
            process.kill()
        for process in (process for processes in ending for process in processes):
            process.wait()

    def bfd_up(self, router: str) -> set[str]:
        """Return the addresses of the neighbours of a router whose BFD sessions are up."""
        shown = run_command("vtysh", "-N", router, "-c", "show bfd peers brief json")
        return {peer["peer"] for peer in json.loads(shown or "[]") if peer["status"] == "up"}

    def check(self) -> None:
        """Raise `LabError` with its output if a daemon has ended by itself."""
        for router, processes in self._processes.items():
            for daemon, process in zip(DAEMONS, processes, strict=False):
                if process.poll() is not None:
                    said = self._output(router, daemon).read_text(errors="replace").strip()
                    raise LabError(f"FRR's {daemon} of {router} ended with status {process.returncode}: {said[-500:]}")

    def _output(self, router: str, daemon: str) -> Path:
        return self.directory / f"{router}.{daemon}.out"


def run_command(*words: str) -> str:
    """Run a command and return its output. Raises `LabError` if it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
