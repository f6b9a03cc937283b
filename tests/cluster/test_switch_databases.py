"""Only the leader of a cluster writes to the switches' databases; standbys read them. With real Open vSwitch."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.cluster.test_controllers import next_leader
from tests.helpers.cluster import running_cluster
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch

ENABLED = re.compile(r"BFD enabled at (\d+) ends")
MENDED = re.compile(r"switch c0_0: .*; put right: ")
FIRST_UPLINKS = 32
"""Ends of links with uplink index 0. Bridges without cables stay silent then, so that no switch's other uplink is touched."""


def test_the_leader_sets_switches_up_and_its_successor_after_it(tmp_path: Path) -> None:
    # a lease for which a busy machine leaves a leader its place; with BFD, links without cables fail before somebody has looked
    database = f"--sopa-ovsdb=unix:{tmp_path}/ovs/db.sock"
    with running_cluster(tmp_path, 3, 4, database, lease=3, healthy=False) as cluster:
        logs = {name: member.log for name, member in cluster.members.items()}
        first = cluster.leader()
        assert first is not None
        eventually(lambda: ENABLED.findall(logs[first].read_text()), [str(FIRST_UPLINKS)])
        standbys = [name for name in cluster.members if name != first]
        for name in standbys:
            verified = "20 of 20 switches verified"
            eventually(lambda name=name: cluster.fabric(name)["setup"]["detail"], Containing(verified), seconds=60)
            found = f"on at {FIRST_UPLINKS} of 64 ends"
            eventually(lambda name=name: cluster.fabric(name)["bfd"]["detail"], Containing(found), seconds=90)

        cluster.signal(first, signal.SIGKILL)
        second = next_leader(cluster, first)
        cluster.ovs.vsctl("set-fail-mode", "c0_0", "standalone")
        eventually(lambda: cluster.ovs.vsctl("get-fail-mode", "c0_0").strip(), "secure", seconds=60)
        eventually(
            lambda: {name: len(MENDED.findall(logs[name].read_text())) for name in standbys},
            {name: int(name == second) for name in standbys},
        )
        assert not any(ENABLED.search(logs[name].read_text()) for name in standbys)
