"""What an agent's programs may do with each host, by what the controller says; test_mcs_hosts.py has both sides together."""

from __future__ import annotations

from ipaddress import IPv4Address

from sopa_ryu.agent.mcs_peers import McsPeers, Use
from sopa_ryu.channel.mcs import ChannelKind, HostChange

OWN, ONE, TWO = (IPv4Address(f"10.0.0.{number}") for number in (2, 3, 4))
NONE: frozenset[IPv4Address] = frozenset()


def whole(*hosts: IPv4Address, number: int = 1, known: int = 0, complete: bool = True) -> HostChange:
    return HostChange(number, True, frozenset(hosts), NONE, known, complete)


def changed(added: frozenset[IPv4Address], removed: frozenset[IPv4Address], number: int, known: int) -> HostChange:
    return HostChange(number, False, added, removed, known, True)


def test_by_paths_a_host_scatters_to_all_that_are_listed_and_not_to_itself() -> None:
    peers = McsPeers(OWN, ChannelKind.PATHS)
    peers.follow(whole(OWN, ONE))
    assert peers.uses() == {ONE: Use.SCATTERS}
    peers.follow(changed(frozenset([TWO]), frozenset([ONE]), 2, 2))
    assert peers.uses() == {ONE: Use.ACCEPTS, TWO: Use.SCATTERS}
    assert peers.number == 2


def test_by_ports_it_waits_for_its_own_name_to_be_known() -> None:
    peers = McsPeers(OWN, ChannelKind.PORTS)
    peers.follow(whole(ONE, known=1))
    assert peers.uses() == {ONE: Use.ACCEPTS}
    peers.follow(changed(frozenset([OWN]), NONE, 2, 1))
    assert peers.uses() == {ONE: Use.ACCEPTS}
    peers.follow(changed(NONE, NONE, 3, 2))
    assert peers.uses() == {ONE: Use.SCATTERS}
    peers.connected()
    peers.follow(whole(ONE, TWO, number=4, known=4))
    assert peers.uses() == {ONE: Use.SCATTERS, TWO: Use.ACCEPTS}  # the one has known since before


def test_without_a_controller_ports_are_left_alone_after_a_while_and_paths_go_on() -> None:
    for kind, forgets in ((ChannelKind.PORTS, True), (ChannelKind.PATHS, False)):
        peers = McsPeers(OWN, kind)
        peers.follow(whole(OWN, ONE, known=1))
        assert peers.uses() == {ONE: Use.SCATTERS}
        assert peers.forget_permission() is forgets
        assert not peers.forget_permission()
        assert peers.uses() == {ONE: Use.ACCEPTS if forgets else Use.SCATTERS}
        peers.follow(whole(OWN, ONE, number=5, known=5))
        assert peers.uses() == {ONE: Use.SCATTERS}


def test_a_list_that_is_not_complete_adds_to_what_is_known() -> None:
    peers = McsPeers(OWN, ChannelKind.PATHS)
    peers.follow(whole(OWN, ONE))
    peers.follow(whole(OWN, TWO, complete=False))
    assert peers.listed == {ONE, TWO}
    peers.follow(HostChange(2, False, NONE, NONE, 2, True))
    assert peers.listed == {TWO}
