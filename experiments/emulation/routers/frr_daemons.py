"""The daemons of FRR for many routers, each in a network namespace of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from topologies.lab.batch_net import LabError

FRR = Path("/usr/lib/frr")
DAEMONS = ("zebra", "bfdd", "bgpd")
_SOCKETS = Path("/run/frr")
_VAR_TMP = "/var/tmp"
_USER = "frr", "frr"


class Daemons:
    """The daemons of all routers, by name of the router.

    Parameters
    ----------
    directory : Path
        Directory of configurations and logs.
    netns : callable
        Returns the path of the network namespace of a router.

    Raises
    ------
    LabError
        If FRR is not installed.
    """

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

    def start(self, router: str, configurations: Mapping[str, str]) -> None:
        """Start the daemons of a router without waiting.

        Parameters
        ----------
        router : str
        configurations : mapping
            From the name of a daemon to its configuration; default: empty.
        """
        sockets = _SOCKETS / router
        sockets.mkdir(parents=True, exist_ok=True)
        shutil.chown(sockets, *_USER)
        self._processes[router] = []
        for daemon in DAEMONS:
            file = self.directory / f"{router}.{daemon}.conf"
            file.write_text(configurations.get(daemon, ""))
            command = ["nsenter", f"--net={self._netns(router)}", str(FRR / daemon), "-N", router, "-f", str(file)]
            command += ["--log", f"file:{self.directory / f'{router}.{daemon}.log'}"]
            if daemon == "bgpd":
                command += ["-p", "179"]
            with self._output(router, daemon).open("wb") as out:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
            self._processes[router].append(process)

    def freeze(self, router: str) -> None:
        """Stop the daemons of a router without closing connections, as if its processor had died."""
        for process in self._processes[router]:
            process.send_signal(signal.SIGSTOP)

    def end(self, *routers: str) -> None:
        """Kill the daemons of some routers; default: of all."""
        ending = [self._processes.pop(router) for router in routers or list(self._processes)]
        for process in (process for its in ending for process in its):
            process.kill()
        for process in (process for its in ending for process in its):
            process.wait()

    def bfd_up(self, router: str) -> set[str]:
        """Return the addresses of the neighbours of a router whose BFD sessions are up."""
        shown = run_command("vtysh", "-N", router, "-c", "show bfd peers brief json")
        return {peer["peer"] for peer in json.loads(shown or "[]") if peer["status"] == "up"}

    def check(self) -> None:
        """Raise `LabError` with its output if a daemon has ended by itself."""
        for router, processes in self._processes.items():
            for daemon, process in zip(DAEMONS, processes, strict=True):
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
