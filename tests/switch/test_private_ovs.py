"""`PrivateOvs` and `DummyFabric`: real OpenFlow agents in a directory, and nothing of them elsewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from topologies.lab.private_ovs import DummyFabric, OvsError, PrivateOvs
from topologies.structure import FatTree, Level, TopologyError

pytestmark = pytest.mark.switch

TREE = FatTree(4)
EDGE = next(TREE.switches(Level.EDGE))


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummyFabric]:
    # longer than a socket's path may be
    directory = tmp_path_factory.mktemp("ovs") / ("long" * 25)
    with PrivateOvs(directory, dummy=True) as ovs:
        yield DummyFabric(TREE, ovs)


def test_every_switch_is_as_planned(fabric: DummyFabric) -> None:
    assert fabric.ovs.vsctl("list-br").split() == sorted(TREE.name(switch) for switch in TREE.switches())
    for switch in TREE.switches():
        shown = fabric.ovs.ofctl("show", TREE.name(switch))
        assert f"OF1.3) (xid=0x2): dpid:{TREE.dpid(switch):016x}" in shown
        ports = {int(number): name for number, name in re.findall(r"^ (\d+)\((\S+)\)", shown, re.MULTILINE)}
        assert ports == {port: f"{TREE.name(switch)}-eth{port}" for port in TREE.ports(switch)}
    assert fabric.connected() == 0


def test_a_port_goes_down_and_up(fabric: DummyFabric) -> None:
    def state() -> str:
        match = re.search(r" 3\(.*?state: +(\w+)", fabric.ovs.ofctl("show", "e0_0"), re.DOTALL)
        assert match
        return match[1]

    eventually(state, "LIVE")
    fabric.set_port(EDGE, 3, up=False)
    eventually(state, "LINK_DOWN")
    fabric.set_port(EDGE, 3, up=True)
    eventually(state, "LIVE")
    with pytest.raises(TopologyError):
        fabric.set_port(EDGE, 5, up=False)


def test_refusals_say_why(fabric: DummyFabric) -> None:
    with pytest.raises(OvsError, match="no bridge named nosuch"):
        fabric.ovs.vsctl("list-ports", "nosuch")
    with pytest.raises(OvsError, match="nosuchtable"):
        fabric.ovs.transact([{"op": "insert", "table": "nosuchtable", "row": {}}])
    with pytest.raises(OvsError, match="unknown keyword"):
        fabric.ovs.ofctl("add-flow", "e0_0", "nonsense=1,actions=drop")


def test_the_environment_comes_back_and_nothing_runs_on(tmp_path: Path) -> None:
    before = dict(os.environ)
    with PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        assert os.environ["OVS_RUNDIR"] == str(tmp_path / "ovs")
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
