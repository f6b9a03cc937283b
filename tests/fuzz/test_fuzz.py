"""A bounded number of inputs of each kind; ``make fuzz`` takes longer."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.fuzz.__main__ import PEERS
from tests.fuzz.members import members
from tests.fuzz.peers import campaign
from tests.helpers.cluster import Cluster
from topologies.ovsdb import JsonObjects

pytestmark = pytest.mark.switch

SEQUENCES = {"prober": 3, "switch": 3, "rest": 4, "agents": 8}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with members(tmp_path_factory.mktemp("members")) as cluster:
        yield cluster


@pytest.mark.parametrize("name", sorted(PEERS.keys() - {"prober"}))
def test_a_peer_that_lies_does_no_harm_to_others(cluster: Cluster, name: str) -> None:
    kind = PEERS[name]
    campaign(name, kind._replace(start=partial(kind.start, cluster=cluster)), seed=1, most=SEQUENCES.get(name, 2))


def test_a_prober_that_lies_does_no_harm_to_others() -> None:
    campaign("prober", PEERS["prober"], seed=1, most=SEQUENCES["prober"])


def test_no_answer_of_a_database_is_so_deep_that_its_reader_fails() -> None:
    with pytest.raises(ValueError, match="nested more than"):
        JsonObjects(1 << 20).feed(b'{"id": 0, "result": ' + b"[" * 5000 + b"]" * 5000 + b"}")
