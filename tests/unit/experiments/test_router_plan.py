"""The routers' addresses, autonomous systems and configuration, for any size."""

import pytest

from experiments.emulation.routers.frr_configuration import autonomous_system, bfd_configuration, bgp_configuration, sessions
from topologies import FatTree, Level, Switch

SIZES = [2, 4]


@pytest.mark.parametrize("k", SIZES)
def test_every_link_between_routers_is_one_session_with_equal_ends(k: int) -> None:
    tree = FatTree(k)
    its = sessions(tree)
    told = {(session.own, session.peer): router for router, of in its.items() for session in of}
    assert len(told) == sum(map(len, its.values())) == 2 * sum(isinstance(link.lower, Switch) for link in tree.links())
    for router, of in its.items():
        for session in of:
            peer = told[session.peer, session.own]
            assert session.peer_as == autonomous_system(tree, peer)
            assert tree.neighbour(router, session.port) == peer


@pytest.mark.parametrize("k", SIZES)
def test_autonomous_system_numbers_make_routes_valley_free(k: int) -> None:
    """All core switches have one, the aggregation switches of a pod one, and each edge switch its own."""
    tree = FatTree(k)
    shared: dict[object, set[int]] = {}
    for switch in tree.switches():
        place = {Level.CORE: "core", Level.AGGREGATION: switch.pod, Level.EDGE: switch}[switch.level]
        shared.setdefault(place, set()).add(autonomous_system(tree, switch))
    assert all(len(numbers) == 1 for numbers in shared.values())
    assert len(set.union(*shared.values())) == len(shared) == 1 + k + k * k // 2


@pytest.mark.parametrize("k", SIZES)
def test_edges_alone_announce_a_rack_and_every_session_has_bfd(k: int) -> None:
    tree = FatTree(k)
    its = sessions(tree)
    for number, router in enumerate(tree.switches(), start=1):
        text = bgp_configuration(tree, router, number, its[router])
        assert f" bgp router-id 0.0.{number >> 8}.{number & 255}\n" in text
        announced = [line.split()[1] for line in text.splitlines() if line.strip().startswith("network ")]
        assert announced == ([str(tree.prefix(router))] if router.level is Level.EDGE else [])
        assert text.count(" remote-as ") == text.count(" bfd profile fabric") == len(its[router])


def test_bfd_finds_a_dead_neighbour_after_300_ms_as_in_the_lab() -> None:
    text = bfd_configuration()
    assert "transmit-interval 100" in text
    assert "receive-interval 100" in text
    assert "detect-multiplier 3" in text
