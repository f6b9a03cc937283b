"""When a member may command, and when it campaigns: its lease, its clock, its term."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.cluster.candidacy import MARGIN, REST_LEASES, Candidacy


def leading(seconds: float = 2.0) -> Candidacy:
    """A member whose lease was granted at 100 s, and that leads with term 7."""
    its = Candidacy("m1")
    its.granted(11, seconds, 100.0)
    its.lead(7, 42)
    return its


def test_a_member_without_a_lease_neither_campaigns_nor_commands() -> None:
    its = Candidacy("m1")
    assert not its.may_campaign(100.0)
    assert not its.may_command(100.0)


def test_a_leader_commands_until_its_lease_may_have_ended() -> None:
    its = leading()
    assert its.may_command(101.79)
    assert not its.may_command(101.81)
    its.renewed(101.0)
    assert its.may_command(102.79)


def test_the_time_of_a_renewal_counts_from_when_it_was_asked_for_and_an_old_answer_takes_nothing_away() -> None:
    its = leading()
    its.renewed(101.5)
    its.renewed(101.0)
    assert its.may_command(103.2)


def test_a_lease_that_is_gone_ends_the_leadership_even_if_another_is_granted_at_once() -> None:
    its = leading()
    its.lost()
    assert not its.may_command(100.1)
    its.granted(12, 2.0, 100.2)
    assert not its.may_command(100.3), "the engine has forgotten the key that was bound to the former lease"
    its.stand_by()
    assert its.may_campaign(100.3)


def test_a_member_whose_lease_is_nearly_over_waits_for_its_renewal() -> None:
    its = Candidacy("m1")
    its.granted(11, 2.0, 100.0)
    assert its.may_lead(101.29)
    assert its.may_campaign(101.29)
    assert not its.may_lead(101.31), "it would command until 101.8"
    assert not its.may_campaign(101.31)
    its.renewed(101.35)
    assert its.may_campaign(101.4)


def test_a_member_that_was_asked_to_step_down_rests() -> None:
    its = leading()
    its.stand_by()
    its.rest(100.5)
    for now in (100.6, 100.5 + REST_LEASES * 2.0 - 0.1):
        its.renewed(now)
        assert not its.may_campaign(now)
    its.renewed(111.0)
    assert its.may_campaign(111.0)


def test_a_leader_without_switches_gives_way_to_a_standby_that_has_them_after_a_while() -> None:
    its = leading(60.0)
    assert not its.is_cut_off(20, 20, 100.0)
    assert not its.is_cut_off(10, 20, 101.0), "half of them are enough: the others may be on their way"
    assert not its.is_cut_off(9, 20, 102.0)
    assert not its.is_cut_off(9, 20, 104.9)
    assert not its.is_cut_off(12, 20, 104.95), "they are back"
    assert not its.is_cut_off(0, 20, 105.0)
    assert its.is_cut_off(0, 20, 108.0)
    assert not leading().is_cut_off(0, 0, 200.0), "nobody has any"


@given(last=st.integers(0, 1 << 62), clock=st.integers(0, 1 << 62), generation=st.integers(0, 1 << 62))
def test_a_term_is_above_the_last_one_and_above_what_switches_know(last: int, clock: int, generation: int) -> None:
    term = Candidacy.next_term(last, clock, generation)
    assert term > last
    assert term > generation
    assert term >= clock


@given(
    seconds=st.floats(0.5, 60.0),
    renewals=st.lists(st.floats(0.0, 100.0), max_size=20),
    now=st.floats(0.0, 200.0),
)
def test_a_leader_never_commands_later_than_the_engine_could_have_given_its_lease_away(
    seconds: float, renewals: list[float], now: float
) -> None:
    its = Candidacy("m1")
    its.granted(11, seconds, 0.0)
    its.lead(7, 42)
    for sent in renewals:
        its.renewed(sent)
    last = max([0.0, *renewals])
    assert its.may_command(now) == (now < last + seconds * (1 - MARGIN))
