"""The interfaces at which `bfd.enable` enables BFD, in the databases of real switches; the lab's tests check the links."""

import subprocess
import sys
from pathlib import Path

import pytest

from sopa_ryu.southbound import bfd
from sopa_ryu.southbound.databases import databases
from topologies import FatTree, Host, Level, Switch
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.ovsdb import entries
from topologies.structure import BFD_MAC

pytestmark = pytest.mark.switch

TREE = FatTree(4)
ENDS = {(switch, port) for switch in TREE.switches() for port, node in TREE.ports(switch).items() if not isinstance(node, Host)}
ADDRESSES = {bfd.SENDS_TO: BFD_MAC, bfd.REQUIRES: BFD_MAC}


def configured(*databases: PrivateOvs) -> dict[tuple[Switch, int], dict[str, str]]:
    """From each port that has settings of BFD to those settings."""
    select = {"op": "select", "table": "Interface", "where": [], "columns": ["name", "bfd"]}
    found = {}
    for row in (row for ovs in databases for row in ovs.transact([select])[0]["rows"]):
        if settings := entries(row["bfd"]):
            switch, _, port = row["name"].partition("-eth")
            found[TREE.switch(switch), int(port)] = settings
    return found


def test_every_link_between_switches_gets_it_once_under_eventlet_too(tmp_path: Path) -> None:
    with PrivateOvs(tmp_path / "edge", dummy=True) as first, PrivateOvs(tmp_path / "above", dummy=True) as second:
        DummyFabric(TREE, first, switches=list(TREE.switches(Level.EDGE)))
        DummyFabric(TREE, second, switches=[each for each in TREE.switches() if each.level is not Level.EDGE])
        # another network's bridge, and one whose database row no switch has applied, are none of ours
        first.vsctl("add-br", "other", "--", "set", "bridge", "other", "datapath_type=dummy")
        first.vsctl("--no-wait", "add-br", "fresh", "--", "set", "bridge", "fresh", "datapath_type=nosuch")
        code = """if True:
            import sys, eventlet; eventlet.monkey_patch()
            from sopa_ryu.southbound import bfd
            from topologies import FatTree
            tree, addresses = FatTree(4), [*sys.argv[1:], "tcp:127.0.0.1:1"]
            report = bfd.enable({address: set(tree.switches()) for address in addresses}, tree, 300)
            print(len(report.switches), report.enabled, report.problems)
        """
        addresses = [ovs.database for ovs in (first, second)]
        command = [sys.executable, "-W", "ignore", "-c", code, *addresses]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.startswith("20 64 {'tcp:127.0.0.1:1': ")
        assert "ECONNREFUSED" in done.stdout
        settings = {"enable": "true", "min_tx": "300", "min_rx": "300", **ADDRESSES}
        assert configured(first, second) == dict.fromkeys(ENDS, settings)
        assert bfd.enable(databases(addresses, TREE, {}), TREE, 100) == bfd.BfdReport(set(TREE.switches()), had=64, enabled=0)
        assert configured(first, second) == dict.fromkeys(ENDS, settings)
