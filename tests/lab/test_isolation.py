"""`isolated`: whatever way it ends, nothing is left; and what a terminal user sees."""

from __future__ import annotations

import contextlib
import os
import pty
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.scripts import ROOT, Script, running
from tests.helpers.waiting import Containing, eventually
from topologies.lab import isolation

Start = Callable[[str], Script]

PRELUDE = """
import os, signal, subprocess, sys, time
from topologies.lab import isolation
from topologies.lab.isolation import isolated
"""

# It would leave everything behind: an interface, a file in /run, and a process that has left its parent and session.
BUSY = (
    PRELUDE
    + """
def main():
    subprocess.run("ip link add sopatest0 type veth peer name sopatest1 && touch /run/sopatest", shell=True, check=True)
    subprocess.run("(setsid sleep MARKER &)", shell=True, check=True)
    try:
        print("ready", flush=True)
        sys.stdin.readline()
        ENDING
    finally:
        print("cleaned up", flush=True)

sys.exit(isolated(main))
"""
)


def busy(start: Start, ending: str) -> tuple[Script, str]:
    """A busy lab, and the word by which its orphaned process can be found."""
    marker = f"1000.{secrets.randbelow(10**9):09d}"
    lab = start(BUSY.replace("MARKER", marker).replace("ENDING", ending))
    assert lab.line() == "ready"
    eventually(lambda: len(running(marker)), 1)
    return lab, marker


def nothing_left(marker: str) -> None:
    eventually(lambda: running(marker), [])
    assert not Path("/sys/class/net/sopatest0").exists()
    assert not Path("/run/sopatest").exists()


@pytest.mark.parametrize(
    ("body", "status", "on_stderr"),
    [
        ("return 0", 0, ""),
        ("return 7", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(9)", 9, ""),
        ("sys.exit('in words')", 1, "in words"),
        ("raise ValueError('told')", 1, "ValueError: told"),
        ("raise KeyboardInterrupt", 130, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, ""),
        ("return isolated(lambda: isolated(lambda: 5) + 1)", 6, ""),
    ],
)
def test_status(capfd: pytest.CaptureFixture[str], body: str, status: int, on_stderr: str) -> None:
    names = {"isolated": isolation.isolated, "os": os, "signal": signal, "sys": sys}
    exec(f"def main():\n    {body}", names)
    main: Any = names["main"]
    assert isolation.isolated(main) == status
    errors = capfd.readouterr().err
    assert on_stderr in errors
    assert (errors == "") == (on_stderr == "")


@pytest.mark.parametrize(
    ("ending", "status"), [("return 3", 3), ("raise RuntimeError", 1), ("os.kill(os.getpid(), 9)", 137)]
)
def test_nothing_is_left_when_it_ends(script: Start, ending: str, status: int) -> None:
    lab, marker = busy(script, ending)
    assert lab.end()[0] == status
    assert running(marker) == []  # immediately, not only at the end
    nothing_left(marker)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_main_cleanly(script: Start, signum: signal.Signals, status: int) -> None:
    lab, marker = busy(script, "time.sleep(1000)")
    lab.signal(signum)
    returncode, output, _ = lab.end()
    assert (returncode, output) == (status, "cleaned up\n")
    nothing_left(marker)


def test_a_main_that_does_not_end_is_killed(script: Start) -> None:
    lab = script(
        PRELUDE
        + """
isolation.GRACE_SECONDS = 0.5
def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(1000)
sys.exit(isolated(main))
"""
    )
    assert lab.line() == "ready"
    lab.signal(signal.SIGTERM)
    assert lab.end()[0] == 137


def test_nothing_is_left_when_it_is_killed(script: Start) -> None:
    lab, marker = busy(script, "time.sleep(1000)")
    lab.signal(signal.SIGKILL)
    lab.process.wait(60)
    nothing_left(marker)


@pytest.mark.parametrize("which", ["keeper", "init"])
def test_nothing_is_left_when_a_process_between_is_killed(script: Start, which: str) -> None:
    lab, marker = busy(script, "time.sleep(1000)")
    victim = int(Path(f"/proc/{lab.process.pid}/task/{lab.process.pid}/children").read_text())
    if which == "init":
        victim = int(Path(f"/proc/{victim}/task/{victim}/children").read_text())
    os.kill(victim, signal.SIGKILL)
    assert lab.end()[0] == 137
    nothing_left(marker)


def test_orphans_are_reaped(script: Start) -> None:
    lab = script(
        PRELUDE
        + """
from tests.helpers.waiting import eventually

def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"

def zombies():
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and state(pid) == "Z"]

def main():
    for _ in range(50):
        subprocess.run("(sleep 0.05 &)", shell=True, check=True)
    eventually(lambda: (zombies(), len([pid for pid in os.listdir("/proc") if pid.isdigit()])), ([], 2))
    return 0
sys.exit(isolated(main))
"""
    )
    assert lab.end()[0] == 0


def test_two_do_not_see_each_other(script: Start) -> None:
    body = (
        PRELUDE
        + """
def main():
    subprocess.run("ip link add same type veth peer name too && mkdir /run/same", shell=True, check=True)
    print(sorted(os.listdir("/sys/class/net")), os.listdir("/run"), os.getpid(), flush=True)
    sys.stdin.read()
    return 0
sys.exit(isolated(main))
"""
    )
    labs = [script(body), script(body)]
    assert [lab.line() for lab in labs] == ["['lo', 'same', 'too'] ['same'] 2"] * 2
    assert [lab.end()[0] for lab in labs] == [0, 0]


def test_the_loopback_is_up_and_the_network_is_empty(script: Start) -> None:
    command = "ping -c1 -W60 127.0.0.1 > /dev/null && ! ip route | grep ."
    body = f"def main():\n    return subprocess.run({command!r}, shell=True).returncode"
    assert script(f"{PRELUDE}\n{body}\nsys.exit(isolated(main))").end()[0] == 0


def test_without_root_it_says_so(script: Start) -> None:
    status, _, errors = script(f"{PRELUDE}\nos.setuid(65534)\nisolated(lambda: 0)").end()
    assert status == 1
    assert "NotRootError" in errors
    assert "sudo" in errors


def test_a_kernel_that_refuses_is_reported(script: Start) -> None:
    # a privileged user without CAP_SYS_ADMIN, as in most containers: 24 is PR_CAPBSET_DROP, 21 CAP_SYS_ADMIN
    body = """
import ctypes
libc = ctypes.CDLL(None)
if len(sys.argv) == 1:
    libc.prctl(24, 21, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-c", CODE, "dropped"])
"""
    code = f"{PRELUDE}\nisolated(lambda: 0)"
    status, _, errors = script(f"{PRELUDE}\nCODE = {code!r}\n{body}").end()
    assert status == 1
    assert "IsolationError" in errors
    assert "privileged" in errors


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(isolation, "_SBIN", ())
    with pytest.raises(isolation.MissingCommandError) as caught:
        isolation.require("ovs-vswitchd", "tc")
    message = str(caught.value)
    assert all(word in message for word in ("ovs-vswitchd", "tc", "openvswitch-switch", "iproute2", "make install"))


class Terminal:
    """A Python script at a terminal of its own."""

    def __init__(self, body: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execv(sys.executable, [sys.executable, "-c", body])
        self.seen = ""

    def expect(self, text: str) -> None:
        """Read until the text has come, and forget everything up to its end."""
        os.set_blocking(self.fd, False)

        def read() -> str:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            return self.seen

        eventually(read, Containing(text))
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        try:
            _, status = eventually(lambda: os.waitpid(self.pid, os.WNOHANG), lambda ended: ended[0] == self.pid)
        except AssertionError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError(f"it did not end: {self.seen!r}") from None
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_is_mains_to_decide() -> None:
    terminal = Terminal(
        PRELUDE
        + """
def main():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(1000)
        except KeyboardInterrupt:
            if input("really? ") == "yes":
                return 4
sys.exit(isolated(main))
"""
    )
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("really? ")
    terminal.type("no\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("really? ")
    terminal.type("yes\n")
    assert terminal.end() == 4


def test_a_mininet_prompt_works() -> None:
    terminal = Terminal(
        PRELUDE
        + """
def main():
    from mininet.cli import CLI
    from topologies.structure import FatTree
    from topologies.lab.network import Lab
    with Lab(FatTree(2), controller_port=None) as lab:
        CLI(lab.net)
    return 0
os.environ["HOME"] = "/run"
sys.exit(isolated(main))
"""
    )
    terminal.expect("mininet> ")
    terminal.type("h0_0_2 ping 192.168.0.1\n")
    terminal.expect("icmp_seq=2")
    terminal.type("\x03")
    terminal.expect("packets transmitted")
    terminal.expect("mininet> ")
    terminal.type("e0_0 echo one$((1+1))\n")
    terminal.expect("one2")
    terminal.expect("mininet> ")
    terminal.type("\x04")
    assert terminal.end() == 0
