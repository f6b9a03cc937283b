"""Streams of probes: who has come back, where the others were lost, deadlines, schedules and reports."""

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrules.label import Carrier
from sopa_ryu.agent.probing.delays import FIRST_DEADLINE_NS, MAX_DEADLINE_NS, MIN_DEADLINE_NS, MS, Delays
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.frames import ProbeFrame, read
from sopa_ryu.agent.probing.reports import report
from sopa_ryu.agent.probing.schedule import BATCH_SECONDS, ProbeSchedule
from sopa_ryu.agent.probing.streams import FORGOTTEN_NS, PAUSE_NS, Record, Streams
from sopa_ryu.channel.messages import MAX_PROBE_RATE, MAX_STREAMS, RECORD_BYTES, Assignment, Stream, unpacked
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.probe_frames import HERE, OWN_SECRET, PATHS, SECRET, THERE, ends
from topologies.structure import GATEWAY_MAC, TURN_MAC

PATH = PATHS[1]
STEP_NS = 20 * MS


class Line:
    """One stream over a line that loses what it is told to, with a clock; the other host counts what it answers."""

    def __init__(self) -> None:
        self.streams, self.answers, self.now = Streams(65535), 0, 1_000_000 * MS
        self.state = self.streams.of(PATH)
        self.fates: list[Fate] = []

    def send(self) -> int:
        return self.streams.send(self.state, self.now)

    def answer(self, number: int, at: int) -> Record:
        self.answers += 1
        return Record(at, THERE, self.answers - 1, number, 10**15, 10**15, self.state.ssid, PATH.up1, PATH.up2)

    def wait(self, ns: int = STEP_NS) -> None:
        self.now += ns
        self.fates += self.streams.expire(self.now)

    def probe(self, fate: str = "back", delay_ns: int = 2 * MS) -> None:
        """Send one, which comes back or is lost on its way out or back; then the time of the next one comes."""
        number = self.send()
        if fate != "out":
            record = self.answer(number, self.now + delay_ns)
            if fate == "back":
                self.fates += self.streams.take(record)
        self.wait()

    def pass_by(self, ns: int) -> None:
        for _ in range(-(-ns // STEP_NS)):
            self.wait()
        self.streams.settle(self.now)


FATES = st.lists(st.sampled_from(["back", "back", "back", "out", "home"]), max_size=60)


@given(FATES)
def test_losses_between_two_answers_are_told_apart_exactly(fates: list[str]) -> None:
    line = Line()
    for fate in ["back", *fates, "back"]:
        line.probe(fate)
    _, probes, *lost = line.state.tally.counts(PATH, line.now)[:5]
    assert probes == len(line.fates) == len(fates) + 2
    assert lost == [fates.count("out"), fates.count("home"), 0]
    assert sum(fate.came_back for fate in line.fates) == fates.count("back") + 2 == line.streams.came_back
    assert line.streams.lost == len(fates) - fates.count("back")


@given(FATES, st.integers(0, 60))
def test_every_loss_is_counted_once_when_the_other_host_begins_anew(fates: list[str], when: int) -> None:
    line = Line()
    line.probe()
    for at, fate in enumerate(fates):
        if at == when:
            line.answers = 0
        line.probe(fate)
    line.probe()
    line.pass_by(FORGOTTEN_NS + STEP_NS)
    counts = line.state.tally.counts(PATH, line.now)
    assert counts.probes == len(fates) + 2
    assert counts.lost_out + counts.lost_back + counts.lost == len(fates) - fates.count("back")


def test_a_self_probe_needs_no_answer_and_its_loss_is_reported_after_a_quarter_of_a_second_with_its_moment() -> None:
    streams, path = Streams(7, HERE), Stream(HERE, 0, 1)
    state, now = streams.of(path), 10**12

    def home(number: int, at: int) -> list[Fate]:
        """Let a self-probe come home, of which the program says what it says of an answer."""
        return streams.take(Record(at, HERE, number, number, at - 3 * MS, at - 3 * MS, state.ssid, 0, 1))

    for number in range(4):
        streams.send(state, now + number * STEP_NS)
    assert [fate.came_back for fate in home(0, now + 3 * MS)] == [True]
    # none overtakes another: two are lost, on a way that nothing tells
    assert [(fate.came_back, fate.lost_out) for fate in home(3, now + 63 * MS)] == [(False, None), (False, None), (True, None)]
    assert state.has_lost(now + 63 * MS)
    counts = state.tally.counts(path, now + 500 * MS)
    assert (counts.probes, counts.lost_out, counts.lost_back, counts.lost) == (4, 0, 0, 2)
    assert counts.moments == 0b10  # 460 and 480 ms ago
    report(streams, 1, 0, now + 500 * MS)
    streams.send(state, now + 600 * MS)
    assert [fate.came_back for fate in streams.expire(now + 600 * MS + state.delays.deadline_ns)] == [False]
    assert not state.has_lost(now + 849 * MS)
    assert state.has_lost(now + 850 * MS)
    assert [one.lost for one in unpacked(report(streams, 1, 0, now + 850 * MS).streams)] == [1]
    assert not state.has_lost(now + 850 * MS)


class Scripted:
    """A line by a script: ``probe lost-out 5``, and what is decided of which probes."""

    def __init__(self) -> None:
        self.do_line()

    def do_line(self) -> None:
        self.line, self.known, self.sent = Line(), 0, dict[int, int]()

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command)(*step.words, **step.options)
        fates, self.known = self.line.fates[self.known :], len(self.line.fates)
        counted = Counter(self._fate(fate) for fate in fates)
        its, deadline = self.line.state.tally.counts(PATH, self.line.now), self.line.state.delays.deadline_ns // MS
        lost = f"lost {its.lost_out} out, {its.lost_back} back, {its.lost} somewhere"
        rows = [said, "; ".join(f"{count} {fate}" for fate, count in counted.items())]
        if step.command != "line":
            rows.append(f"reported: {its.probes} probes, {lost}; deadline {deadline} ms")
        return "\n".join(filter(None, rows))

    def _fate(self, fate: Fate) -> str:
        way = {None: "somewhere", True: "on the way out", False: "on the way back"}[fate.lost_out]
        said = f"came back in {fate.delay_ns // MS} ms" if fate.came_back else f"lost {way}"
        return said + (", crowded" if fate.crowded else "")

    def do_probe(self, fate: str, count: str = "1", ms: str = "2") -> None:
        for _ in range(int(count)):
            self.line.probe({"back": "back", "lost-out": "out", "lost-back": "home"}[fate], int(ms) * MS)

    def do_send(self) -> str:
        number = self.line.send()
        self.sent[number] = self.line.now
        return f"number {number}"

    def do_answer(self, number: str, ms: str, waited: str = "0", source: str = str(THERE), **others: str) -> str:
        """Let an answer arrive that comes so late after its probe, for which the other host has waited so long."""
        its = self.line
        record = its.answer(int(number), self.sent.get(int(number), its.now) + int(ms) * MS)
        changed = {"sent_ns": record.received_ns + round(float(waited) * MS), "source": IPv4Address(source)}
        changed |= {name: int(value) for name, value in others.items()}
        before = dict(its.streams.refused)
        its.fates += its.streams.take(record._replace(**changed))
        refused = [why.name.lower() for why, count in its.streams.refused.items() if count != before.get(why, 0)]
        return f"refused: {', '.join(refused)}" if refused else ""

    def do_withdraw(self, number: str) -> str:
        self.line.streams.withdraw(self.line.state, int(number))
        return f"{self.line.streams.sent} sent"

    def do_wait(self, ms: str) -> None:
        self.line.wait(int(ms) * MS)

    def do_forget(self) -> None:
        self.line.pass_by(FORGOTTEN_NS + STEP_NS)

    def do_pause(self) -> str:
        """Stand still for longer than a host may to judge what it has not seen."""
        self.line.wait(10 * PAUSE_NS)
        assert not self.line.streams.is_undecided
        return ""

    def do_report(self) -> str:
        before = self.line.state.idle
        report(self.line.streams, 1, 0, self.line.now)
        return f"idle: {before}, {self.line.state.idle}"


@each_script(__file__, "streams")
def test_streams(script: Script) -> None:
    script.play(Scripted().handle)


def test_streams_have_numbers_of_their_own_and_go_when_they_are_not_used() -> None:
    streams = Streams(65534)
    states = [streams.of(path) for path in PATHS] + [streams.apart(PATH)]
    assert [state.ssid for state in states] == [65534, 65535, 0, 1, 2]
    assert streams.of(PATHS[0]) is states[0]
    streams.send(states[0], 5)
    assert streams.remove_unused(9) == states[1:4]
    assert len(streams) == 2
    assert streams.of(PATHS[1]).ssid == 3


@given(st.lists(st.integers(1, 400 * MS), min_size=1, max_size=100))
def test_deadlines_follow_delays_within_bounds(delays: list[int]) -> None:
    its = Delays()
    assert its.deadline_ns == FIRST_DEADLINE_NS
    for at, delay in enumerate(delays):
        its.note(delay, at * STEP_NS)
        assert MIN_DEADLINE_NS <= its.deadline_ns <= MAX_DEADLINE_NS
        assert its.deadline_ns >= min(delay, MAX_DEADLINE_NS)


PAUSES = st.lists(st.floats(0.0, 0.3), min_size=30, max_size=120)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 12), st.floats(1.0, 200.0), PAUSES)
def test_no_wake_sends_a_stream_twice_nor_beyond_the_rate(assigned: int, busy: int, interval: float, pauses: list[float]) -> None:
    streams = [Stream(THERE, n, n) for n in range(30)]
    its, now, sent = ProbeSchedule(), 0.0, 0
    its.follow(Assignment(1, interval, tuple(streams[:assigned])), now)
    for pause in pauses:
        now += max(pause, BATCH_SECONDS)
        due = its.due(now, dict.fromkeys(streams[assigned - 1 : assigned - 1 + busy], 1.0))
        assert len(set(due)) == len(due)
        sent += len(due)
        assert its.next_due(now, ()) is not None
    assert sent <= MAX_PROBE_RATE * now + 4 + len(pauses)


@pytest.mark.parametrize(("interval", "busy", "rate", "assigned_rate", "busy_rate"), [
    (20.0, 8, 200.0, 50, 150),
    (40.0, 8, 200.0, 25, 175),
    (40.0, 8, 50.0, 25, 25),
    (40.0, 8, None, 25, 25),  # a controller that names no rate
    (5.0, 8, 200.0, 200, 1),
    (20.0, 1, 200.0, 50, 50),  # a stream once a wake
])  # fmt: skip
def test_busy_racks_get_what_is_left(interval: float, busy: int, rate: float | None, assigned_rate: int, busy_rate: int) -> None:
    schedule = ProbeSchedule()
    schedule.follow(Assignment(1, interval, tuple(SIXTEEN[:8]), rate), 100.0)
    sent = sent_in_ten_seconds(schedule, SIXTEEN[8 : 8 + busy])
    assert sum(sent[stream] for stream in SIXTEEN[:8]) == pytest.approx(10 * assigned_rate, rel=0.02, abs=2)
    assert sum(sent[stream] for stream in SIXTEEN[8:]) == pytest.approx(10 * busy_rate, rel=0.03, abs=4)


SIXTEEN = [Stream(THERE, n, n) for n in range(16)]


def sent_in_ten_seconds(schedule: ProbeSchedule, busy: Sequence[Stream], begin: float = 100.0) -> Counter[Stream]:
    return Counter(stream for n in range(1, 501) for stream in schedule.due(begin + n * BATCH_SECONDS, dict.fromkeys(busy, 1.0)))


@pytest.mark.parametrize("probing", [1, 3, 15, 60])
def test_a_host_that_many_probe_is_soon_probed_by_all_no_more_than_a_host_may_send(probing: int) -> None:
    rate, hosts = 40.0, [ProbeSchedule(n * 0.37 % 1) for n in range(probing)]
    for schedule in hosts:
        schedule.follow(Assignment(1, 20.0, (), rate), 100.0)
    answers, last = 0, Counter[Stream]()
    for now in range(100, 180, 10):
        for schedule in hosts:
            schedule.answered(THERE, answers, now)
        last = sum((sent_in_ten_seconds(schedule, SIXTEEN, now) for schedule in hosts), Counter[Stream]())
        answers = last.total() // 10
    assert 0.8 * rate <= answers <= 1.2 * rate
    assert set(last) == set(SIXTEEN)  # every path of it


def test_a_report_has_what_was_decided_since_the_last_and_no_more_than_fits() -> None:
    line, streams, now = Line(), Streams(0), 10**12
    paths = [Stream(THERE, up1, up2) for up1 in range(20) for up2 in range(20)]
    for path in paths:
        state = streams.of(path)
        number = streams.send(state, now)
        streams.take(line.answer(number, now + 3_500_000)._replace(ssid=state.ssid, up1=path.up1, up2=path.up2))
    apart = streams.apart(PATH)
    apart.decisions = {}
    number = streams.send(apart, now)
    assert streams.take(line.answer(number, now + 1)._replace(ssid=apart.ssid)) == []
    assert apart.decisions[0].came_back
    first, second, third = (report(streams, 7, dropped, now) for dropped in (5, 0, 0))
    assert (first.number, first.dropped, len(first.streams)) == (7, 5, MAX_STREAMS * RECORD_BYTES)
    counts = list(unpacked(first.streams + second.streams))
    assert sorted(one.stream for one in counts) == sorted(paths)
    assert third.streams == b""
    assert counts[0] == (paths[0], 1, 0, 0, 0, 3500, 3500, 0)


HOPS = st.integers(0, 255).flatmap(lambda up1: st.tuples(st.just(up1), st.integers(255 * (up1 == 255), 255)))


SENT = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 * 10**9 - 1), st.integers(0, 65535))


@given(SENT, HOPS, st.sampled_from(Carrier), st.booleans())
def test_a_frame_is_read_as_it_was_written(
    sent: tuple[int, int, int], hops: tuple[int, int], carrier: Carrier, turns: bool
) -> None:
    number, at, ssid = sent
    stream, ports = Stream(HERE if turns else THERE, *hops), (hops[1] ^ 1, 255)
    frame = bytes(ProbeFrame(ends(carrier=carrier), stream, ssid, ports if turns else None).numbered(number, at))
    packet = read(frame)
    # switches read ports where a packet turns, routers the path
    by_ports = turns and carrier is not Carrier.SRV6
    assert frame[:6] == bytes.fromhex((TURN_MAC if by_ports else GATEWAY_MAC).replace(":", ""))
    assert packet[:6] == (HERE, stream.destination, hops, ports if by_ports else hops, 0x80, number)
    assert (packet.ssid, packet.times, packet.secret) == (ssid, (at, 0, 0), OWN_SECRET if turns else SECRET)
    damaged = 14 + at % (len(frame) - 14)
    assert read(frame[:damaged] + bytes([frame[damaged] ^ 4]) + frame[damaged + 1 :]) is None
    assert read(frame[:-1]) is None


def test_what_a_host_remembers_of_a_silent_path_is_bounded() -> None:
    line, told = Line(), 0
    line.probe()
    for number in range(3000):  # a minute
        line.probe("out")
        if number % 50 == 0:
            told += sum(one.probes for one in unpacked(report(line.streams, 1, 0, line.now).streams))
    assert 3001 - 2 * 50 - 100 - 4 <= told <= 3001
