"""How soon agents have a failure that came with the loss of the leader: ``python -m tests.cluster.takeover [ROUNDS]`` (root).

Three real controllers on a real etcd and Open vSwitch with the dummy datapath (k=4), and 16 agents, over real WebSockets, that know
all three; their kernel side is in memory. The leader is killed or stopped, and a link fails one second later. Use an idle machine.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.helpers.cluster import Cluster, running_cluster
from tests.helpers.running_agent import RunningAgent
from tests.helpers.waiting import eventually

LEASE_SECONDS = 2
LINK = "a0_0-c0_0"
FAILS_AFTER_SECONDS = 1.0
PAUSE_SECONDS = 0.005  # between two looks: as exact as the figures are
LIMIT_SECONDS = 60.0


def main(rounds: int) -> None:
    """Print the median and the longest time, in seconds from the signal, for both ways in which the leader is lost."""
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory), lease=LEASE_SECONDS) as cluster:
        urls = tuple(member.url for member in cluster.members.values())
        token = cluster.members["m0"].agent_token_file
        agents = [RunningAgent(urls, cluster.tree.ip(host), token) for host in cluster.tree.hosts()]
        try:
            for way in (signal.SIGKILL, signal.SIGSTOP):
                found = [_lose_leader(cluster, agents, way) for _ in range(rounds)]
                for what, seconds in zip(
                    ("next leader", "failure at all agents"), zip(*found, strict=True), strict=True
                ):
                    print(
                        f"{way.name}  {what:22}  median {statistics.median(seconds):.2f} s  longest {max(seconds):.2f} s"
                    )
        finally:
            for agent in agents:
                agent.end()


def _lose_leader(cluster: Cluster, agents: list[RunningAgent], way: signal.Signals) -> tuple[float, float]:
    """Return after how many seconds another member leads, and every agent knows of the failure; then mend all."""
    former = eventually(cluster.leader)
    assert former is not None
    eventually(lambda: {agent.at for agent in agents}, {cluster.members[former].url}, seconds=LIMIT_SECONDS)
    cluster.wait_in_force({})
    began, leads = time.monotonic(), 0.0
    cluster.signal(former, way)
    timer = threading.Timer(FAILS_AFTER_SECONDS, cluster.set_link, (LINK, False))
    timer.start()
    while not all(agent.follower.view and LINK in agent.follower.view.failures for agent in agents):
        if not leads and cluster.leader() not in (None, former):
            leads = time.monotonic() - began
        assert time.monotonic() - began < LIMIT_SECONDS, [agent.version for agent in agents]
        time.sleep(PAUSE_SECONDS)
    known = time.monotonic() - began
    timer.join()
    if way is signal.SIGKILL:
        cluster.members[former].stop()
        cluster.members[former].start()
    else:
        cluster.signal(former, signal.SIGCONT)
    cluster.set_link(LINK, up=True)
    cluster.wait_in_force({})
    cluster.wait_whole()
    return leads or known, known


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
