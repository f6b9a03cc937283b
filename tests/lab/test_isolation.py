"""`isolated`: whatever way it ends, nothing is left; what a terminal user sees; and a lab that stops or does not start."""

import os
import pty
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.sopa_lab import in_isolation
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies import FatTree
from topologies.lab import isolation
from topologies.lab.batch_net import LabError
from topologies.lab.isolation import isolated
from topologies.lab.network import Lab

ROOT = Path(__file__).resolve().parents[2]


def running(seconds: str) -> list[int]:
    """The processes of this machine, in whichever namespace, that are ``sleep`` with that argument."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(file.parent.name))
    return found


Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def script() -> Iterator[Start]:
    """Start Python scripts from the repository's root; whichever still run at the end are killed."""
    with ExitStack() as started:

        def start(body: str) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            its = subprocess.Popen([sys.executable, "-c", body], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            started.enter_context(its)
            started.callback(its.kill)
            return its

        yield start


def ready(its: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert its.stdout is not None
    assert its.stdout.readline() == "ready\n", its.communicate()[1]
    return its


def script_of(main: str) -> str:
    imports = "import os, signal, subprocess, sys, time\nfrom topologies.lab import isolation\n"
    return f"{imports}from topologies.lab.isolation import isolated\n{main}\nsys.exit(isolated(main))"


# It would leave everything behind: an interface, a file in /run, and a process that has left its parent and session.
BUSY = """
def main():
    subprocess.run("ip link add sopatest0 type veth peer name sopatest1 && touch /run/sopatest", shell=True, check=True)
    subprocess.run("(setsid sleep MARKER &)", shell=True, check=True)
    try:
        print("ready", flush=True)
        sys.stdin.readline()
        ENDING
    finally:
        print("cleaned up", flush=True)
"""
TERM, HUP, KILL = signal.SIGTERM, signal.SIGHUP, signal.SIGKILL
SLEEP = "time.sleep(1000)"


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
        ("return isolated(lambda: isolated(lambda: 5) + 1)", 6, ""),
    ],
)
def test_status(capfd: pytest.CaptureFixture[str], body: str, status: int, on_stderr: str) -> None:
    names = {"isolated": isolated, "sys": sys}
    exec(f"def main():\n    {body}", names)
    main: Any = names["main"]
    assert isolated(main) == status
    errors = capfd.readouterr().err
    assert on_stderr in errors
    assert (errors == "") == (on_stderr == "")


@pytest.mark.parametrize(
    ("ending", "signum", "generation", "status", "output"),
    [
        ("return 3", None, 0, 3, "cleaned up\n"),
        ("raise RuntimeError", None, 0, 1, "cleaned up\n"),
        ("os.kill(os.getpid(), 9)", None, 0, 137, ""),
        (SLEEP, TERM, 0, 143, "cleaned up\n"),
        (SLEEP, HUP, 0, 129, "cleaned up\n"),
        (SLEEP, KILL, 0, -9, ""),
        (SLEEP, KILL, 1, 137, ""),  # the keeper
        (SLEEP, KILL, 2, 137, ""),  # process 1 inside
    ],
)
def test_nothing_is_left_however_it_ends(
    script: Start, ending: str, signum: signal.Signals | None, generation: int, status: int, output: str
) -> None:
    marker = f"1000.{secrets.randbelow(10**9):09d}"
    lab = ready(script(script_of(BUSY.replace("MARKER", marker).replace("ENDING", ending))))
    eventually(lambda: len(running(marker)), 1)
    if signum is not None:
        victim = lab.pid
        for _ in range(generation):
            victim = int(Path(f"/proc/{victim}/task/{victim}/children").read_text())
        os.kill(victim, signum)
    assert lab.communicate(timeout=PATIENCE_SECONDS)[0] == output
    assert lab.returncode == status
    if signum is None:
        assert running(marker) == []  # immediately, not only at the end
    eventually(lambda: running(marker), [])
    assert not Path("/sys/class/net/sopatest0").exists()
    assert not Path("/run/sopatest").exists()


def test_a_main_that_does_not_end_is_killed(script: Start) -> None:
    main = """
isolation.GRACE_SECONDS = 0.5
def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(1000)
"""
    lab = ready(script(script_of(main)))
    lab.terminate()
    assert lab.wait(PATIENCE_SECONDS) == 137


@in_isolation
def test_orphans_are_reaped() -> None:
    def state(process: Path) -> str:
        try:
            return (process / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "gone"

    for _ in range(50):
        subprocess.run("(sleep 0.05 &)", shell=True, check=True)
    eventually(lambda: [state(each) for each in Path("/proc").glob("[0-9]*")].count("Z"), 0)
    eventually(lambda: len(list(Path("/proc").glob("[0-9]*"))), 2)


CALL = "from topologies.lab.isolation import isolated; isolated(lambda: 0)"
# a privileged user without CAP_SYS_ADMIN, as in most containers: 24 is PR_CAPBSET_DROP, 21 CAP_SYS_ADMIN
DROP = f"ctypes.CDLL(None).prctl(24, 21, 0, 0, 0); os.execv(sys.executable, ['python', '-c', '{CALL}'])"


@pytest.mark.parametrize(
    ("lost", "error", "advice"), [("os.setuid(65534)", "NotRootError", "sudo"), (DROP, "IsolationError", "privileged")]
)
def test_who_may_not_is_told_what_to_do(script: Start, lost: str, error: str, advice: str) -> None:
    its = script(f"import ctypes, os, sys\nfrom topologies.lab import isolation\n{lost}\n{CALL}")
    errors = its.communicate(timeout=PATIENCE_SECONDS)[1]
    assert its.returncode == 1
    assert error in errors
    assert advice in errors


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(isolation, "_SBIN", ())
    with pytest.raises(isolation.MissingCommandError) as caught:
        isolation.require("ovs-vswitchd", "tc")
    message = str(caught.value)
    assert all(word in message for word in ("ovs-vswitchd", "tc", "openvswitch-switch", "iproute2", "make install"))


def test_a_mininet_prompt_works_and_ctrl_c_is_its_to_decide() -> None:
    main = """
def main():
    from mininet.cli import CLI
    from topologies.structure import FatTree
    from topologies.lab.network import Lab
    with Lab(FatTree(2), controller_port=None) as lab:
        CLI(lab.net)
    return 0
os.environ["HOME"] = "/run"
"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", script_of(main)])
    os.set_blocking(terminal, False)
    seen = ""

    def read() -> str:
        nonlocal seen
        with suppress(OSError):
            seen += os.read(terminal, 4096).decode(errors="replace")
        return seen

    turns = [("mininet> ", "h0_0_2 ping 192.168.0.1\n"), ("icmp_seq=2", "\x03"), ("packets transmitted", "")]
    turns += [("mininet> ", "e0_0 echo one$((1+1))\n"), ("one2", ""), ("mininet> ", "\x04")]
    try:
        for text, answer in turns:
            eventually(read, Containing(text))
            seen = seen.partition(text)[2]
            os.write(terminal, answer.encode())
        eventually(lambda: (read(), os.waitpid(pid, os.WNOHANG))[1], (pid, 0))
    finally:
        os.close(terminal)


@in_isolation
def test_a_lab_that_stops_leaves_nothing_and_can_be_started_again() -> None:
    for _ in range(2):
        with Lab(FatTree(2), rate_mbit=4, controller_port=None) as lab:
            lab.node("h0_0_2").cmd("sleep 1000 &")
            lab.node("h1_0_2").popen("sleep 1000")
        lab.stop()
        assert os.listdir("/sys/class/net") == ["lo"]
        assert sum(file.exists() for file in Path("/proc").glob("[0-9]*/ns/net")) == 2  # of those that live
        assert not [name for name in os.environ if name.startswith("OVS_")]


def test_a_lab_that_does_not_start_leaves_nothing() -> None:
    def main() -> int:
        subprocess.run(["ip", "link", "add", "a0_0-eth1", "type", "veth", "peer", "name", "intheway"], check=True)
        with pytest.raises(RuntimeError, match="File exists"):
            Lab(FatTree(2), controller_port=None).__enter__()
        assert sorted(os.listdir("/sys/class/net")) == ["a0_0-eth1", "intheway", "lo"]
        return 0

    assert isolated(main) == 0
    with pytest.raises(LabError, match=r"isolated\(\)"):
        Lab(FatTree(2)).__enter__()
