"""Programs and throwaway network namespaces for the tests of the eBPF agent."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from ipaddress import IPv4Address
from itertools import count
from typing import Any

import pytest

from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.labeller import Labeller
from tests.bpf.mcs_both import CAPACITY, Both
from tests.bpf.mcs_frames import Wire
from tests.bpf.mcs_programs import NEVER_US, Programs
from tests.bpf.mcs_reference import Host
from tests.helpers.frames import FAR, table
from tests.helpers.path_tables import forget_packets
from tests.helpers.veth import Pair, veth_pair


@pytest.fixture(autouse=True, scope="session")
def objects() -> None:
    build()


@pytest.fixture(autouse=True)
def one_processor() -> Iterator[None]:
    """Test runs of a program stay on one processor: what a program remembers of paths is of the processor that sent."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def loaded(objects: None) -> Iterator[Callable[..., Labeller]]:
    """Labellers that are never attached, one for each choice of options."""
    with ExitStack() as stack:

        @cache
        def load(**options: Any) -> Labeller:
            return stack.enter_context(Labeller("lo", **options))

        yield load


@pytest.fixture
def make_labeller(loaded: Callable[..., Labeller]) -> Callable[..., Labeller]:
    """Returns a labeller that has not seen a packet, but may have a path table."""

    def make(**options: Any) -> Labeller:
        labeller = loaded(**options)
        forget_packets(labeller)
        return labeller

    return make


@pytest.fixture
def labeller(make_labeller: Callable[..., Labeller]) -> Labeller:
    return make_labeller()


@pytest.fixture
def fresh(objects: None) -> Iterator[Labeller]:
    with Labeller("lo") as its:
        yield its


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


@pytest.fixture(scope="module")
def loaded_mcs(objects: None) -> Iterator[Programs]:
    with Programs(CAPACITY) as made:
        yield made


@pytest.fixture
def programs(loaded_mcs: Programs) -> Programs:
    """The programs of MCS as if just loaded, with a path table and a host that runs MCS."""
    loaded_mcs.reset()
    loaded_mcs.add_peer(FAR)
    loaded_mcs.swap(table()._replace(srv6=None))
    return loaded_mcs


@pytest.fixture
def both(programs: Programs, request: pytest.FixtureRequest) -> Iterator[Both]:
    """The programs of MCS and the reference, with a family as parameter; in the end both know and have counted the same."""
    host = Host(capacity=CAPACITY, patience_us=NEVER_US, clock_us=count(1).__next__)
    made = Both(programs, Wire(host, {int(IPv4Address(FAR))}, table=table()._replace(srv6=None)), getattr(request, "param", 4))
    yield made
    made.compare_all()
