"""Hedera's rounds: rates from counters, which flows are elephants, what is moved."""

import logging

import pytest
from oslo_config import cfg

from experiments.schemes import named
from experiments.schemes.hedera import OPTIONS_FILE, entries, hedera_options
from experiments.schemes.hedera.flows import Rates, Reading, TcpFlow
from experiments.schemes.hedera.placement import global_first_fit
from experiments.schemes.hedera.schedule import Move, Scheduler
from flowrules.model import Table
from flowrules.switch_rules import switch_rules
from topologies import Failures, FatTree, Host, Level, Switch

TREE = FatTree(4)
HEALTHY = Failures(TREE)
EDGE = Switch(Level.EDGE, 0, 0)
ONE = TcpFlow(Host(0, 0, 2), 40001, Host(2, 1, 3), 5201)
TWO = TcpFlow(Host(0, 0, 3), 40002, Host(3, 1, 3), 5201)


def rates_of(*rounds: list[Reading]) -> list[dict[TcpFlow, float]]:
    rates = Rates(5.0)
    return [rates.take(EDGE, readings).rates for readings in rounds]


def test_a_rate_is_what_has_been_counted_since_the_last_round_by_the_switchs_clock() -> None:
    # the second reply was read late, the third soon after it: the age of the entry says how long that was
    rounds = [
        [Reading(ONE, octets, age, None)] for octets, age in ((1000, 8.0), (6000, 18.0), (9000, 24.0), (9000, 29.0))
    ]
    assert rates_of(*rounds) == [{ONE: 1000.0}, {ONE: 4000.0}, {ONE: 4000.0}, {ONE: 0.0}]


@pytest.mark.parametrize("before", [[], [Reading(TWO, 500, 9.0, None)]])
def test_the_first_packets_of_a_mouse_are_no_elephant(before: list[Reading]) -> None:
    assert rates_of(before, [Reading(ONE, 500, 0.001, None)])[1] == {ONE: 800.0}


def test_a_new_entry_counts_anew_and_a_flow_that_has_ended_is_not_remembered() -> None:
    old = [Reading(ONE, 9000, 40.0, None)]
    assert rates_of(old, [Reading(ONE, 500, 1.0, None)])[1] == {ONE: 800.0}  # fewer bytes
    assert rates_of(old, [Reading(ONE, 10_000, 1.0, None)])[1] == {ONE: 16_000.0}  # more, but younger
    assert rates_of(old, [], [Reading(ONE, 9000, 1.0, None)])[1:] == [{}, {ONE: 14_400.0}]
    rates = Rates(5.0)
    rates.take(EDGE, old)
    rates.forget(EDGE)  # the switch has come back
    assert rates.take(EDGE, [Reading(ONE, 10_000, 50.0, None)]).rates == {ONE: 1600.0}


def test_a_placed_flow_is_counted_by_both_of_its_entries() -> None:
    assert ONE.text(TREE) == "h0_0_2:40001 -> h2_1_3:5201"
    rates = Rates(5.0)
    rates.take(EDGE, [Reading(ONE, 1000, 4.0, None)])
    report = rates.take(EDGE, [Reading(ONE, 1500, 9.0, None), Reading(ONE, 500, 4.0, (1, 0))])
    assert (report.rates, report.placed) == ({ONE: 1600.0}, {ONE: (1, 0)})


# -- rounds -----------------------------------------------------------------------------------------------------------


def test_only_what_exceeds_the_threshold_is_placed() -> None:
    scheduler = Scheduler(global_first_fit, 0.1)
    assert scheduler.round(HEALTHY, {ONE: 0.1, TWO: 0.05}, {}) == []
    assert scheduler.round(HEALTHY, {ONE: 0.11, TWO: 0.05}, {}) == [Move(ONE, (0, 0), None)]


def test_what_is_placed_stays_an_elephant_and_where_it_is() -> None:
    scheduler = Scheduler(global_first_fit, 0.1)
    assert scheduler.round(HEALTHY, {ONE: 0.02}, {ONE: (1, 1)}) == []
    # both want a whole link of their rack's switch: the second one has to take the other
    assert scheduler.round(HEALTHY, {ONE: 0.02, TWO: 0.5}, {ONE: (1, 1)}) == [Move(TWO, (0, 0), None)]
    assert scheduler.round(HEALTHY, {TWO: 0.5}, {TWO: (0, 0)}) == []


def test_who_was_found_first_is_placed_first() -> None:
    scheduler = Scheduler(lambda failures, elephants: [None] * len(elephants), 0.1)
    scheduler.round(HEALTHY, {TWO: 0.5}, {})
    scheduler._placement = global_first_fit
    moves = scheduler.round(HEALTHY, {ONE: 0.9, TWO: 0.5}, {})
    assert [move.flow for move in moves] == [TWO, ONE]


def test_a_failure_moves_a_placed_flow_or_releases_it_without_any_path() -> None:
    scheduler = Scheduler(global_first_fit, 0.1)
    cut = Failures(TREE, {"a0_0-c0_0": "down"})
    assert scheduler.round(cut, {}, {ONE: (0, 0)}) == [Move(ONE, (1, 0), (0, 0))]
    gone = Failures(TREE, {"e2_1": "down"})
    assert scheduler.round(gone, {}, {ONE: (0, 0)}) == [Move(ONE, None, (0, 0))]


def test_flows_within_a_rack_count_for_demand_and_are_not_placed() -> None:
    within = TcpFlow(ONE.src, 1, Host(0, 0, 3), 2)
    seen = []

    def placement(failures, elephants):  # type: ignore[no-untyped-def]
        seen.extend(elephants)
        return global_first_fit(failures, elephants)

    moves = Scheduler(placement, 0.1).round(HEALTHY, {ONE: 0.4, within: 0.4}, {})
    assert [elephant.demand for elephant in seen] == [0.5, 0.5]
    assert [move.flow for move in moves] == [ONE]


# -- entries ----------------------------------------------------------------------------------------------------------


class Datapath:
    """The attributes that Ryu's messages need of a datapath."""

    from ryu.ofproto import ofproto_v1_3 as ofproto
    from ryu.ofproto import ofproto_v1_3_parser as ofproto_parser


class Statistics:
    """The statistics of the entry that a message installs."""

    def __init__(self, message, octets):  # type: ignore[no-untyped-def]
        self.cookie, self.match = message.cookie, message.match
        self.byte_count, self.duration_sec, self.duration_nsec = octets, 2, 500_000_000


@pytest.mark.parametrize("up", [(0, 0), (1, 0), (0, 1), (1,), (0,)])
def test_a_placed_entry_tells_its_flow_and_path(up: tuple[int, ...]) -> None:
    message = entries.place(Datapath, TREE, ONE, up, 10)
    message.serialize()
    assert list(entries.readings(TREE, [Statistics(message, 77)])) == [Reading(ONE, 77, 2.5, up)]


def test_hedera_stands_between_sopas_entries_of_the_same_table() -> None:
    messages = entries.standing(Datapath, TREE, EDGE, 10)
    for message in messages:
        message.serialize()
    assert len(messages) == entries.standing_count(TREE)
    ours = {message.priority for message in messages} | {entries.PLACED_PRIORITY}
    theirs = {flow.priority for flow in switch_rules(TREE, EDGE, None, [ONE.src]).flows if flow.table is Table.INGRESS}
    assert not ours & theirs
    assert all(30 < priority < 35 for priority in ours)
    assert entries.COUNTING not in set(Table)


def test_statistics_of_foreign_hosts_and_static_entries_are_no_readings() -> None:
    message = entries.place(Datapath, TREE, ONE, (0, 0), 10)
    message.match = Datapath.ofproto_parser.OFPMatch(
        eth_type=0x800, ipv4_src="10.0.0.2", ipv4_dst="192.0.2.1", ip_proto=6, tcp_src=1, tcp_dst=2
    )
    standing = entries.standing(Datapath, TREE, EDGE, 10)
    assert list(entries.readings(TREE, [Statistics(each, 1) for each in (message, *standing)])) == []
    assert all(entries.is_standing(each) for each in standing)
    assert not entries.is_standing(message)


# -- options, scheme --------------------------------------------------------------------------------------------------


def test_the_options_have_the_papers_defaults_and_can_be_given(caplog: pytest.LogCaptureFixture) -> None:
    def parsed(*words: str) -> hedera_options.Settings:
        conf = cfg.ConfigOpts()
        hedera_options.register(conf)
        hedera_options.register(conf)
        conf([*words])
        return hedera_options.settings(conf)

    annealing, first_fit = hedera_options.Algorithm.SIMULATED_ANNEALING, hedera_options.Algorithm.GLOBAL_FIRST_FIT
    given = parsed("--hedera-interval=1", "--hedera-placement=simulated-annealing")
    assert given == hedera_options.Settings(1.0, 0.1, annealing, 1)
    other = cfg.ConfigOpts()
    other([])
    assert hedera_options.settings(other) == hedera_options.Settings(5.0, 0.1, first_fit, 1)
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(SystemExit):
        parsed("--hedera-placement=best")


def test_the_scheme_names_what_is_there() -> None:
    scheme = named("hedera")
    assert OPTIONS_FILE.is_file()
    assert str(OPTIONS_FILE) in scheme.controller_options
    assert scheme.applications == ("experiments.schemes.hedera.app",)
    assert scheme.policy is None
