"""The order in which clients ask several URLs, their pauses, and how often they ping."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import addresses
from sopa_ryu.channel.addresses import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS, OPEN_SECONDS, Addresses, ordered
from topologies import FatTree

RELAYS = [f"http://192.0.2.{number}:8080" for number in range(31, 35)]


def made(count: int, client: str = "10.0.0.2") -> Addresses:
    return Addresses(RELAYS[:count], client, random.Random(1))


@given(st.permutations(RELAYS), st.integers(2, 254))
def test_the_order_is_the_clients_whatever_the_options_order(urls: list[str], last: int) -> None:
    client = f"10.0.0.{last}"
    assert ordered(urls, client) == ordered(RELAYS, client)
    assert sorted(ordered([*urls, *urls], client)) == RELAYS
    more = ordered([*urls, "http://192.0.2.99:8080"], client)  # moves only those that it gets
    assert [url for url in more if url in RELAYS] == ordered(RELAYS, client)


def test_the_hosts_of_a_fabric_spread_evenly_and_those_of_a_relay_that_dies_do_too() -> None:
    clients = [str(FatTree(24).ip(host)) for host in FatTree(24).hosts()]
    orders = [ordered(RELAYS, client) for client in clients]
    fair = len(clients) / len(RELAYS)
    first = Counter(order[0] for order in orders)
    assert all(0.9 * fair < first[url] < 1.1 * fair for url in RELAYS)
    then = Counter(order[1] for order in orders if order[0] == RELAYS[0])
    assert len(then) == 3
    assert all(0.85 * first[RELAYS[0]] / 3 < count < 1.15 * first[RELAYS[0]] / 3 for count in then.values())


@pytest.mark.parametrize(("hosts", "longest"), [(16, MIN_RETRY_SECONDS), (1024, 2.048), (27648, MAX_RETRY_SECONDS)])
def test_few_agents_look_for_the_next_leader_often_and_many_seldom(hosts: int, longest: float) -> None:
    its = made(3)
    pauses = [pause for _ in range(30) if (pause := its.next(served=False, hosts=hosts))]
    assert max(pauses) <= longest
    assert longest / 2 <= pauses[-1]
    alone = made(1)
    assert max(alone.next(served=False, hosts=hosts) for _ in range(9)) > MAX_RETRY_SECONDS / 2


def test_channels_that_are_cut_soon_lead_to_pauses() -> None:
    its = made(2)
    assert not its.has_served(addresses.SERVED_SECONDS / 2)
    assert its.has_served(addresses.SERVED_SECONDS)
    paused = sum(its.next(its.has_served(0.1)) > 0 for _ in range(10))
    assert paused == 5


def test_with_one_url_every_channel_counts_and_opens_as_slowly_as_ever() -> None:
    its = made(1)
    assert its.has_served(0.0)
    assert its.open_seconds() == OPEN_SECONDS
    its.next(served=False)
    assert its.next(served=True) <= MIN_RETRY_SECONDS


def test_one_that_is_silent_holds_nobody_up_for_long() -> None:
    its = made(2)
    usual = its.open_seconds(hosts=16)
    assert usual == addresses.MIN_OPEN_SECONDS
    silent = its.url
    for _ in range(5):
        its.next(served=False, hosts=16, silent=its.url == silent)
        assert its.open_seconds(hosts=16) == (usual / 2 if its.url == silent else usual)
    if its.url != silent:
        its.next(served=False, hosts=16)
    its.next(served=False, hosts=16)  # it rejects now
    its.next(served=False, hosts=16)
    assert (its.url, its.open_seconds(hosts=16)) == (silent, usual)


@pytest.mark.parametrize("hosts", [0, 16, 27648])
def test_if_all_are_slow_they_get_more_time_each_round(hosts: int) -> None:
    its = made(3)
    first, rounds = its.open_seconds(hosts), []
    for _ in range(6):
        for _ in range(3):
            its.next(served=False, hosts=hosts, silent=True)
        rounds.append(its.open_seconds(hosts))
    assert rounds == sorted(rounds)
    assert first <= rounds[0]
    assert rounds[-1] >= 2.5 * first or rounds[-1] == OPEN_SECONDS
    its.next(served=True, hosts=hosts)
    assert its.open_seconds(hosts) <= first


@given(st.integers(0, 100_000))
def test_pings_are_bounded_for_the_controller_and_dead_channels_for_the_agents(hosts: int) -> None:
    every, patience = addresses.ping_seconds(hosts), addresses.patience_seconds(hosts)
    assert addresses.MIN_PING_SECONDS <= every <= addresses.MAX_PING_SECONDS
    assert every == addresses.MAX_PING_SECONDS or hosts / every <= addresses.PINGS_A_SECOND * (1 + 1e-9)
    assert every + patience <= 10.0


def test_no_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the URL"):
        made(0)
