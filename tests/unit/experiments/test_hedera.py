"""Hedera's rounds: rates from counters, which flows are elephants, what is moved."""

import pytest
from oslo_config import cfg

from experiments.schemes.hedera import entries, hedera_options
from experiments.schemes.hedera.flows import HederaFlow, Rates, Reading, Scheduler
from experiments.schemes.hedera.placement import Elephant, global_first_fit
from flowrules.model import Table
from flowrules.switch_rules import switch_rules
from tests.helpers.golden import Script, Step, each_script
from topologies import Failures, FatTree, Host, Level, Switch

TREE = FatTree(4)
HEALTHY = Failures(TREE)
EDGE = Switch(Level.EDGE, 0, 0)
ONE = HederaFlow(Host(0, 0, 2), 40001, Host(2, 1, 3), 5201)
TWO = HederaFlow(Host(0, 0, 3), 40002, Host(3, 1, 3), 5201)
FLOWS = {"ONE": ONE, "TWO": TWO, "WITHIN": HederaFlow(ONE.src, 1, Host(0, 0, 3), 2), "AGAIN": TWO._replace(src_port=40003)}
NAMES = {flow: name for name, flow in FLOWS.items()}


class Rounds:
    """Counters of two flows, read in rounds, and what is moved then; ``ONE`` and ``TWO`` begin at hosts of one rack."""

    def __init__(self) -> None:
        self._rates, self._scheduler = Rates(5.0), Scheduler(global_first_fit, 0.1)

    def handle(self, step: Step) -> str:
        return getattr(self, f"do_{step.command}")(*step.words, **step.options) or ""

    def do_read(self, *readings: str) -> str:
        """Read counters: each a flow, octets, the entry's age and perhaps the path on which it was placed."""
        found = []
        for text in readings:
            name, octets, age, *up = text.split(":")
            found.append(Reading(FLOWS[name], int(octets), float(age), path_of(up[0]) if up else None))
        told = self._rates.take(EDGE, found)
        rates = [f"{NAMES[flow]} {rate:g}" for flow, rate in told.rates.items()]
        return ", ".join([*rates, *(f"{NAMES[flow]} is on {up}" for flow, up in told.placed.items())]) or "nothing"

    def do_forget(self) -> None:
        self._rates.forget(EDGE)

    def do_fit(self, *elephants: str) -> str:
        """Say where the first fit places elephants: each by its ends, demand, and perhaps the path that it has."""
        its = [each.split(":") for each in elephants]
        ends = [map(TREE.host, pair.split("-")) for pair, *_ in its]
        flows = [Elephant(*two, float(d), *map(path_of, up)) for two, (_, d, *up) in zip(ends, its, strict=True)]
        return " ".join(str(up) for up in global_first_fit(HEALTHY, flows))

    def do_begin(self) -> None:
        self.__init__()  # type: ignore[misc]

    def do_round(self, *rates: str, failed: str = "", placed: str = "") -> str:
        """Say what is moved at these rates, in shares of a link, if these flows are placed."""
        its = {FLOWS[name]: float(rate) for name, rate in (each.split(":") for each in rates)}
        where = {FLOWS[name]: path_of(up) for name, up in (each.split(":") for each in placed.split())}
        moves = self._scheduler.round(Failures(TREE, {failed: "down"} if failed else {}), its, where)
        return "\n".join(f"{NAMES[move.flow]} from {move.was} to {move.up}" for move in moves) or "nothing"


def path_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@each_script(__file__, "hedera")
def test_rounds(script: Script) -> None:
    script.play(Rounds().handle)


class Datapath:
    from sopa_ryu.runtime.library import ofproto_v1_3 as ofproto
    from sopa_ryu.runtime.library import ofproto_v1_3_parser as ofproto_parser


class Statistics:
    def __init__(self, message, octets):  # type: ignore[no-untyped-def]
        self.cookie, self.match = message.cookie, message.match
        self.byte_count, self.duration_sec, self.duration_nsec = octets, 2, 500_000_000


@pytest.mark.parametrize("up", [(0, 0), (1, 0), (0, 1), (1,), (0,)])
def test_a_placed_entry_tells_its_flow_and_path(up: tuple[int, ...]) -> None:
    assert ONE.text(TREE) == "h0_0_2:40001 -> h2_1_3:5201"
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


def test_the_options_have_the_papers_defaults_and_can_be_given() -> None:
    without, given = cfg.ConfigOpts(), cfg.ConfigOpts()
    without([])
    hedera_options.register(given)
    given(["--hedera-interval=1", "--hedera-placement=simulated-annealing"])
    annealing, first_fit = hedera_options.Algorithm.SIMULATED_ANNEALING, hedera_options.Algorithm.GLOBAL_FIRST_FIT
    assert hedera_options.settings(without) == hedera_options.HederaSettings(5.0, 0.1, first_fit, 1)
    assert hedera_options.settings(given) == hedera_options.HederaSettings(1.0, 0.1, annealing, 1)
