"""`PrivateOvs` and `DummyFabric`: real OpenFlow agents in a directory, and nothing of them elsewhere."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from topologies.lab.private_ovs import OvsError, PrivateOvs

pytestmark = pytest.mark.switch


def test_the_environment_comes_back_and_nothing_runs_on(tmp_path: Path) -> None:
    before, directory = dict(os.environ), tmp_path / ("long" * 25)  # longer than a socket's path may be
    with PrivateOvs(directory, dummy=True) as ovs:
        assert os.environ["OVS_RUNDIR"] == str(directory)
        with pytest.raises(OvsError, match="no bridge named nosuch"):
            ovs.vsctl("list-ports", "nosuch")
        with pytest.raises(OvsError, match="nosuchtable"):
            ovs.transact([{"op": "insert", "table": "nosuchtable", "row": {}}])
        pids = [ovs.pid("ovsdb-server"), ovs.pid()]
    ovs.stop()
    assert dict(os.environ) == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_daemon_that_does_not_start_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "ovs-vswitchd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no such thing as a switch >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    before = dict(os.environ)
    with pytest.raises(OvsError, match=r"(?s)ovs-vswitchd did not start: it exited with status 3.*no such thing"):
        PrivateOvs(tmp_path / "ovs", dummy=True).__enter__()
    assert dict(os.environ) == before


def test_the_daemons_die_with_their_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from topologies.lab.private_ovs import PrivateOvs\n"
        "ovs = PrivateOvs(Path(sys.argv[1]), dummy=True).__enter__()\n"
        "print(ovs.pid(), ovs.pid('ovsdb-server'), flush=True); time.sleep(1000)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "ovs")]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        pids = process.stdout.readline().split()
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    eventually(lambda: [pid for pid in pids if _alive(pid)], [])


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
