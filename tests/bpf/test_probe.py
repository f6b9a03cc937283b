"""The program that turns probes round, packet by packet: what it answers, takes, refuses and lets pass."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from ipaddress import IPv4Address
from itertools import pairwise

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.probing.frames import FRAME_BYTES, read
from sopa_ryu.agent.probing.programs import BURST, ProbeProgram, Seen, random_key
from sopa_ryu.channel.messages import Stream
from tests.bpf.probe_fuzz import KEY, PASS, REDIRECT, SHOT, STOLEN, Host, fuzz
from tests.helpers.frames import tcp
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.probe_frames import HERE, PATHS, SECRET, THERE, changed, ends, probe

BOTH = [(first, second) for first in Carrier for second in Carrier]
FEW = 50
"""Answers a second of a host whose flood has to be faster on any machine, and that stands still meanwhile."""


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(ends(THERE)) as made:
        yield made
        made.compare_counts()


@pytest.mark.parametrize(("near", "far"), BOTH)
def test_a_probe_comes_back_on_its_own_path_with_either_carrier_at_either_end(near: Carrier, far: Carrier) -> None:
    with Host(ends(HERE, near)) as here, Host(ends(THERE, far)) as there:
        for number in range(3):
            sent = probe(PATHS[1], carrier=near, number=number)
            assert len(sent) == FRAME_BYTES + (near.overhead if near is Carrier.OPTION else 0)  # srv6: behind this program
            back = there.take(sent)[0].data
            answer = read(back)
            assert answer is not None
            assert (answer.source, answer.destination, answer.carried) == (THERE, HERE, (0, 1))
            assert (answer.number, answer.sender_number, answer.ssid, answer.secret) == (number, number, 77, SECRET)
            assert answer.times[0] == answer.times[1] > answer.times[2] == 5_000_000_123
            assert back[15] == 0xC0  # CS6
            assert there.take(back)[1] is Seen.NOT_OURS  # an answer is not answered
            assert here.take(back)[1] is Seen.TAKEN
            [record] = here.program.records()
            assert record[1:4] == (THERE, number, number)
            assert record.arrived_ns > record.received_ns == record.sent_ns == answer.times[0]
            assert record[6:9] == (77, 0, 1)
            assert 0 <= record[9] <= number  # those of the second before: a second may have begun meanwhile


@pytest.mark.parametrize("carrier", Carrier)
def test_a_self_probe_is_taken_once_it_is_home_and_answered_by_nobody(carrier: Carrier) -> None:
    path = Stream(HERE, 0, 255)
    with Host(ends(HERE, carrier)) as here, Host(ends(THERE, carrier)) as there:
        sent = probe(path, carrier=carrier, number=9, ssid=5)
        done, seen = here.take(sent)
        assert (done.retval, seen) == (STOLEN, Seen.TAKEN)
        [record] = here.program.records()
        assert record[1:] == (HERE, 9, 9, 5_000_000_123, 5_000_000_123, 5, 0, 255, 0)
        assert there.take(sent)[1] is Seen.NOT_OURS
        for forged in (changed(sent, 64, SECRET.to_bytes(4)), changed(sent, 52, b"\0"), changed(sent, 40, b"\1")):
            assert here.take(forged)[0].retval == SHOT
            assert here.program.records() == []
        assert here.take(changed(sent, 60, b"\1", correct=False))[1] is Seen.CORRUPT


def play_step(host: Host, step: Step) -> str:
    """What becomes of a probe with other bytes ``at`` a place (`changed`), right checksums unless ``wrong``, and another length."""
    its = step.options
    path, source = Stream(IPv4Address(its.get("to", THERE)), 0, 1), IPv4Address(its.get("from", HERE))
    frame = probe(path, source=source, carrier=Carrier(its.get("carrier", "mac")))
    if "at" in its:
        frame = changed(frame, int(its["at"]), bytes.fromhex(its["bytes"]), correct="wrong" not in step.words)
    frame = frame[:12] + bytes.fromhex(its.get("type", "0800")) + frame[14:]
    frame = tcp().ljust(FRAME_BYTES, b"x") if step.command == "tcp" else frame
    done, seen = host.take(frame[: len(frame) - int(its.get("cut", 0))] + bytes(int(its.get("more", 0))))
    verdict = {PASS: "passes", SHOT: "dropped", STOLEN: "stolen", REDIRECT: "sent back"}[done.retval]
    return verdict if seen is None else f"{verdict}, {seen.name.lower()}"


@each_script(__file__, "probes")
def test_script(host: Host, script: Script) -> None:
    script.play(partial(play_step, host))


def test_a_forged_flood_of_one_source_is_answered_no_more_and_others_are() -> None:
    with closing(ProbeProgram(ends(THERE), most=FEW)) as program:
        flood = [program.run(probe(number=number, ssid=number)).retval for number in range(4 * BURST)]
        answered = flood.count(REDIRECT)
        assert flood[: BURST // 2] == [REDIRECT] * (BURST // 2)
        assert set(flood) == {REDIRECT, SHOT}
        assert program.seen()[Seen.ANSWERED] == answered
        assert program.seen()[Seen.TOO_MANY] == 4 * BURST - answered > 0
        assert program.run(probe(source=IPv4Address("10.3.0.2"))).retval == REDIRECT


def test_whose_counter_a_source_shares_is_nobodys_choice() -> None:
    def place(address: IPv4Address, key: int) -> int:
        return (int.from_bytes(address.packed, sys.byteorder) * key) % 2**64 >> 52

    assert random_key() != random_key()
    mate = next(each for n in range(2**16) if place(each := IPv4Address("10.1.0.1") + n, KEY) == place(HERE, KEY) and each != HERE)
    for key, shared in ((KEY, True), (0xD1B54A32D192ED03, False)):
        with closing(ProbeProgram(ends(THERE), key=key, most=FEW)) as program:
            for number in range(BURST):
                program.run(probe(number=number, source=mate))
            # a counter allows one more now and then, how often depends on how fast this machine is
            verdicts = []
            for number in range(BURST, 2 * BURST):
                program.run(probe(number=number, source=mate))
                verdicts.append(program.run(probe(number=number)).retval)
            assert (SHOT in verdicts) == shared


def test_answers_say_how_many_probes_the_host_has_answered_in_the_second_before() -> None:
    """In seconds of the machine's own clock: as many as this test has seen in that one, or none after one without any."""
    seconds: list[list[int]] = [[]]
    with closing(ProbeProgram(ends(HERE))) as here, closing(ProbeProgram(ends(THERE), most=0)) as there:
        while not any(second[0] for second in seconds[2:-1]):
            time.sleep(0.001 * len(seconds))  # so that no two seconds have equally many
            here.run(there.run(probe()).data)
            for record in here.records():
                if seconds[-1] and record.answers != seconds[-1][0]:
                    seconds.append([])
                seconds[-1].append(record.answers)
    for before, after in pairwise(seconds[1:-1]):
        assert after[0] in (len(before), 0)


def test_answers_that_nobody_reads_are_counted_and_dropped() -> None:
    with closing(ProbeProgram(ends(HERE))) as here, closing(ProbeProgram(ends(THERE))) as there:
        ring = 1 << 16
        answers = [changed(there.run(probe(ssid=n)).data, -8, bytes([10, 9, 0, n])) for n in range(90)]
        total = 0
        while not here.seen()[Seen.FULL]:
            total += 1
            assert here.run(answers[total % len(answers)]).retval in (STOLEN, SHOT)
            assert total < ring
        assert len(here.records()) == here.seen()[Seen.TAKEN] > 1000
        assert here.records() == []
        assert here.run(answers[0]).retval == STOLEN


def test_garbled_probes_and_answers_are_treated_as_the_reference_does() -> None:
    done = fuzz(3000, seed=5)
    assert {"answered", "taken", "corrupt", "not_ours", "odd", "unasked", "passed"} <= done.keys()
