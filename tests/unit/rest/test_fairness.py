"""Turns of clients, shares of connections, and answers that cost much."""

from collections import Counter
from functools import partial
from ipaddress import IPv6Address
from itertools import count, pairwise
from types import SimpleNamespace

import eventlet
import eventlet.event
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.rest import application as module
from sopa_ryu.rest.application import BURST_SECONDS, MAX_WAITING, SHARE, SLICE_SECONDS, Fairness
from sopa_ryu.rest.operations import Problem
from sopa_ryu.runtime.clients import Clients, ExcessClient, client_of, network
from sopa_ryu.runtime.fair_order import LONGEST_EVERY, FairOrder


def test_one_client_with_many_requests_delays_another_by_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    fairness, order, now = (Fairness(), [], count(0, 2 * SLICE_SECONDS))  # each answer takes processor time, and does not yield
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: next(now)))
    for number in range(20):
        eventlet.spawn(fairness.answer, "192.0.2.1", partial(order.append, f"many {number}"))
    eventlet.spawn(fairness.answer, "192.0.2.2", partial(order.append, "one")).wait()
    assert order.index("one") <= 1


@given(st.lists(st.floats(0.1, 3.0), min_size=40, max_size=40), st.integers(1, 20))
def test_who_asks_for_little_is_next_and_who_asks_without_pause_has_as_much_as_others(costs: list[float], readers: int) -> None:
    order, had = FairOrder[None](), dict.fromkeys(map(str, range(readers)), 0.0)
    for client in had:
        order.add(client, None)
    for number, cost in enumerate(costs):
        client, _ = order.take()
        had[client] += cost
        order.add(client, None)
        order.spent(client, cost)
        assert max(had.values()) - min(had.values()) <= 2 * 3.001
        if number % 10 == 9 and number >= readers:
            order.add("another", None)
            if (client := order.take()[0]) != "another":  # whose turn it is once in a while
                order.add(client, None)
                order.spent(client, 0.0)
                client, _ = order.take()
            assert client == "another"
            order.spent(client, 0.1)


def test_new_clients_without_end_keep_nobody_waiting() -> None:
    order, turns = FairOrder[None](), list[str]()
    for client in ("one", "one", *map(str, range(10))):
        order.add(client, None)
    for number in range(10, 1000):
        client, _ = order.take()
        turns.append(client)
        order.add(str(number), None)
        order.spent(client, 1.0)
    assert turns.count("one") == 2
    assert turns.index("one", 1) <= 11 * LONGEST_EVERY
    assert max(len(order._ends), len(order._line)) < 100


def test_all_clients_together_have_a_share_of_the_time_and_others_a_turn_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    fairness, now, used, turns = Fairness(), [100.0], [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        turns.append(used[0])

    def make() -> None:
        now[0], used[0] = now[0] + 0.02, used[0] + 0.02

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: used[0]))
    monkeypatch.setattr(module.eventlet, "sleep", sleep)
    for number in range(1000):
        fairness.answer(f"192.0.2.{number % 250}", make)
    assert used[0] == pytest.approx(BURST_SECONDS + SHARE * (now[0] - 100.0 - BURST_SECONDS), abs=0.1)
    assert max(after - before for before, after in pairwise(turns)) < 0.021


def test_a_costly_answer_is_shared_and_never_older_than_a_request() -> None:
    fairness, made, answered = Fairness(), [0], eventlet.event.Event()

    def make() -> int:
        made[0] += 1
        number = made[0]
        answered.wait()  # as for a switch that answers
        return number

    first = eventlet.spawn(fairness.costly, "a", make)
    eventlet.sleep(0)
    others = [eventlet.spawn(fairness.costly, "a", make) for _ in range(10)]
    eventlet.sleep(0)
    answered.send()
    assert first.wait() == 1
    assert {each.wait() for each in others} == {2}
    assert fairness.costly("a", make) == 3


def test_too_many_requests_for_costly_answers_are_rejected_and_forgotten() -> None:
    fairness, answered = Fairness(), eventlet.event.Event()
    waiting = [eventlet.spawn(fairness.costly, str(n), answered.wait) for n in range(MAX_WAITING)]
    eventlet.sleep(0)
    with pytest.raises(Problem, match="too many requests wait"):
        fairness.costly("one more", lambda: None)
    answered.send()
    for each in waiting:
        each.wait()
    assert fairness.costly("later", lambda: 5) == 5
    assert len(fairness._costly) == 0


ADDRESSES = st.sampled_from(
    ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:1::1", "10.9.9.9"]
)


@given(st.lists(ADDRESSES | st.integers(0, 20)))
def test_a_client_never_has_more_than_its_share(steps: list[str | int]) -> None:
    clients, inside = Clients(3, 8, [network("10.9.0.0/16")]), []
    for step in steps:
        if isinstance(step, int):
            if inside:
                clients.leave(inside.pop(step % len(inside)))
            continue
        counts = Counter(map(client_of, inside))
        excess = clients.enter(step)
        if len(inside) >= 8:
            assert excess is ExcessClient.TOTAL
        elif counts[client_of(step)] >= 3 and step != "10.9.9.9":
            assert excess is ExcessClient.SHARE
        else:
            assert excess is None
            inside.append(step)
        assert clients.total == len(inside)


@given(st.ip_addresses(v=6))
def test_addresses_of_one_prefix_are_one_client(address: IPv6Address) -> None:
    assert client_of(str(address)) == client_of(str(IPv6Address(int(address) ^ 1))) or address.ipv4_mapped
