"""Only the leader of a cluster writes to the switches' databases; standbys read them. With real Open vSwitch."""

import re
import signal
from pathlib import Path

import pytest

from tests.helpers.cluster import running_cluster
from tests.helpers.waiting import Containing, eventually
from topologies import Clos

pytestmark = pytest.mark.switch

TREE = Clos(pods=1, edges=2, aggregations=2, cores=0, hosts=1)
ENABLED = re.compile(r"BFD enabled at (\d+) ends")
MENDED = re.compile(r"switch a0_0: .*\. Put right: ")
FIRST_UPLINKS = 4
"""Ends of links with uplink index 0. Bridges without cables stay silent then, so that no switch's other uplink is touched."""


def test_the_leader_sets_switches_up_and_its_successor_after_it(tmp_path: Path) -> None:
    # with BFD, links without cables fail before somebody has looked
    database = f"--sopa-ovsdb=unix:{tmp_path}/ovs/db.sock"
    with running_cluster(tmp_path, database, size=2, tree=TREE, healthy=False) as cluster:
        first = str(eventually(cluster.leader))
        [second] = (name for name in cluster.members if name != first)
        logs = {name: member.log for name, member in cluster.members.items()}
        eventually(lambda: ENABLED.findall(logs[first].read_text()), [str(FIRST_UPLINKS)])
        for part, said in (
            ("setup", "4 of 4 switches verified"),
            ("bfd", f"on at {FIRST_UPLINKS} of {4 * len(list(TREE.switch_links())) // 2} ends"),
        ):
            eventually(lambda part=part: cluster.fabric(second)[part]["detail"], Containing(said))
        assert not MENDED.search(logs[second].read_text())
        cluster.signal(first, signal.SIGKILL)
        cluster.next_leader(first)
        cluster.ovs.vsctl("set-fail-mode", "a0_0", "standalone")
        eventually(lambda: cluster.ovs.vsctl("get-fail-mode", "a0_0").strip(), "secure")
        eventually(lambda: len(MENDED.findall(logs[second].read_text())), 1)
        assert not ENABLED.search(logs[second].read_text())
