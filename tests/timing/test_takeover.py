"""How soon another controller of a cluster leads, with a real etcd and Open vSwitch with the dummy datapath."""

import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.helpers.cluster import running_cluster
from tests.helpers.running_agent import RunningAgent
from tests.helpers.waiting import eventually
from tests.timing.controls import Timer
from tests.timing.judge import Timing

LEASE_SECONDS = 2
LINK = "a0_0-c0_0"


def test_a_failure_that_comes_with_the_loss_of_the_leader(timing: Timing, tmp_path: Path) -> None:
    """The leader stops, and a link fails at once: the next leader commits that, and agents find it (docs/cluster.md, Agents)."""
    with running_cluster(tmp_path, lease=LEASE_SECONDS) as cluster, ExitStack() as stack:
        urls = tuple(member.url for member in cluster.members.values())
        agents = []
        for host in cluster.tree.hosts():
            agents.append(RunningAgent(urls, cluster.tree.ip(host), cluster.members["m0"].agent_token_file))
            stack.callback(agents[-1].end)

        def has_failed(its: RunningAgent) -> bool:
            return its.follower.view is not None and LINK in its.follower.view.failures

        def seconds() -> float:
            """Return the seconds until every agent knows of the failure, and mend all."""
            leader = str(eventually(cluster.leader))
            eventually(lambda: {its.at for its in agents}, {cluster.members[leader].url})
            began = time.monotonic()
            cluster.signal(leader, signal.SIGSTOP)
            cluster.set_link(LINK, up=False)
            eventually(lambda: all(map(has_failed, agents)))
            known = time.monotonic() - began
            cluster.signal(leader, signal.SIGCONT)
            cluster.set_link(LINK, up=True)
            cluster.wait_in_force({})
            cluster.wait_whole()
            eventually(lambda: any(map(has_failed, agents)), False)
            return known

        what = "seconds from the stop of the leader until all agents know what failed then"
        timing.at_most(LEASE_SECONDS + 2, seconds, what=what, control=Timer(), tolerated=0.3)
