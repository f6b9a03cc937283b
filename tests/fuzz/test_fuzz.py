"""A bounded number of inputs of each kind; ``make fuzz`` takes longer."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.fuzz.__main__ import PEERS
from tests.fuzz.members import members
from tests.fuzz.peers import campaign
from tests.helpers.cluster import Cluster

pytestmark = pytest.mark.switch

ON_ITS_OWN = {"prober", "ovsdb"}
SEQUENCES = {"prober": 3, "switch": 3, "rest": 4, "agents": 8, "ovsdb": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with members(tmp_path_factory.mktemp("members")) as cluster:
        yield cluster


@pytest.mark.parametrize("name", sorted(PEERS.keys() - ON_ITS_OWN))
def test_a_peer_that_lies_does_no_harm_to_others(cluster: Cluster, name: str) -> None:
    kind = PEERS[name]
    campaign(name, kind._replace(start=partial(kind.start, cluster=cluster)), seed=1, most=SEQUENCES.get(name, 2))


@pytest.mark.parametrize("name", sorted(ON_ITS_OWN))
def test_one_that_lies_to_parts_in_this_process_does_no_harm_to_others(name: str) -> None:
    campaign(name, PEERS[name], seed=1, most=SEQUENCES.get(name, 2))
