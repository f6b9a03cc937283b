"""The labs that tests share (`tests.helpers.shared_lab`), and scripts in Python processes of their own, as a user's would be."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowrules.label import Carrier
from tests.helpers.shared_lab import lab_of, of_fabric, of_machine, shared
from tests.helpers.sopa_lab import QUICK, whole
from tests.helpers.waiting import eventually
from tests.lab.switches import settings, unsettled
from topologies import Clos, FatTree
from topologies.lab.network import Lab

PODS = Clos(2, 2, 2, 4, 2)
"""Half of a fat-tree: two of its pods, with four paths between them."""
SEED = 5
NO_LABEL = "h1_1_3"
"""A host that has an agent, and must not choose paths."""

lab = shared(
    lambda: whole(FatTree(4), agent_options=[f"--seed={SEED}"], controller_options=[*QUICK, f"--sopa-no-label={NO_LABEL}"]),
    of_fabric,
)
"""A fat-tree with an agent for each host."""
bare = shared(lambda: whole(PODS, agents=False, controller_options=QUICK), of_fabric)
"""Two pods, whose hosts have no agents."""
option = shared(lambda: whole(PODS, carrier=Carrier.OPTION, controller_options=[*QUICK, f"--sopa-no-label={NO_LABEL}"]), of_fabric)
"""Two pods with agents that write labels as an IPv4 option."""
probing = shared(lambda: whole(PODS, probes=True, carrier=Carrier.OPTION, controller_options=QUICK), of_fabric)
"""The same, and they probe."""


@contextmanager
def _switches() -> Iterator[Lab]:
    its = Lab(PODS, rate_mbit=4)  # its switches look for a controller, and find none
    its.bfd_ms = 300
    with its as made:
        yield made


def _of_switches(its: Lab) -> dict[str, object]:
    unready = unsettled(its)
    flows = [its.ovs.ofctl("dump-flows", its.tree.name(switch)).count("actions=") for switch in its.tree.switches()]
    return {} if unready else {"settings": settings(its), "entries": sum(flows), **of_machine()}


switches = shared(_switches, _of_switches)
"""Two pods without a controller and agents, with BFD, and with links of 4 Mbit/s."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that names a shared lab in the lab's process."""
    its = lab_of(pyfuncitem)
    if its is None:
        return None
    its.run(pyfuncitem)
    return True


OURS = re.compile(r"-eth\d+$|-mgmt$|^m-|^manage$|^ovs-|^sopatest\d|^[eac]\d+_\d+$")


@pytest.fixture(autouse=True)
def machine_is_left_alone() -> Iterator[None]:
    """No test may leave one of a lab's interfaces or mounts behind; other tests may run meanwhile, and have theirs."""

    def state() -> tuple[set[str], list[str]]:
        interfaces = {name for name in os.listdir("/sys/class/net") if OURS.search(name)}
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return interfaces, [point for point in points if point in ("/proc", "/sys", "/run", "/tmp", "/sys/fs/bpf")]

    interfaces, points = state()
    yield

    def left() -> tuple[set[str], list[str]]:
        now = state()
        return now[0] - interfaces, now[1]

    eventually(left, (set(), points))
