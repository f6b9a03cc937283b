"""The program that turns probes round, packet by packet: what it answers, takes, refuses and lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.libbpf import Outcome
from sopa_ryu.agent.probing.frames import FRAME_BYTES, read
from sopa_ryu.agent.probing.programs import BURST, ProbeProgram, Seen
from sopa_ryu.channel.probes import Stream
from tests.bpf.probe_fuzz import fuzz
from tests.bpf.probe_reference import PASS, REDIRECT, SHOT, STOLEN, Reference, without_times
from tests.helpers.frames import tcp
from tests.helpers.probe_frames import HERE, PATHS, SECRET, THERE, changed, corrected, ends, probe

BOTH = [(first, second) for first in Carrier for second in Carrier]


class Host:
    """The program of a host, and the reference beside it."""

    def __init__(self, address: IPv4Address, carrier: Carrier = Carrier.MAC, secret: int = SECRET) -> None:
        self.program = ProbeProgram(ends(address, carrier, secret))
        self.reference = Reference(self.program.ends)

    def take(self, frame: bytes) -> Outcome:
        """Run the program on a frame as it comes in; it does what the reference does."""
        before, expected = self.program.seen(), self.reference.expect(frame)
        done = self.program.run(frame)
        counted = [seen for seen, count in self.program.seen().items() if count != before[seen]]
        assert (done.retval, counted) == (expected.verdict, [expected.seen] if expected.seen is not None else [])
        if expected.answer is None:
            assert done.data == frame
        else:
            assert without_times(done.data) == expected.answer
        return done


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host(THERE)
    yield made
    made.program.close()


@pytest.mark.parametrize(("near", "far"), BOTH)
def test_a_probe_comes_back_on_its_own_path_with_either_carrier_at_either_end(near: Carrier, far: Carrier) -> None:
    here, there = Host(HERE, near), Host(THERE, far)
    for number in range(3):
        sent = probe(PATHS[1], carrier=near, number=number)
        assert len(sent) == FRAME_BYTES + near.overhead
        back = there.take(sent).data
        answer = read(back)
        assert answer is not None
        assert (answer.source, answer.destination, answer.carried) == (THERE, HERE, (0, 1))
        assert (answer.number, answer.sender_number, answer.ssid, answer.secret) == (number, number, 77, SECRET)
        assert answer.times[0] == answer.times[1] > answer.times[2] == 5_000_000_123
        assert back[15] == 0xC0  # CS6
        assert here.take(back).retval == STOLEN
        [record] = here.program.records()
        assert record[1:4] == (THERE, number, number)
        assert record.arrived_ns > record.received_ns == record.sent_ns == answer.times[0]
        assert record[6:] == (77, 0, 1)
    here.program.close()
    there.program.close()


def test_answers_are_counted_by_source_stream_and_path(host: Host) -> None:
    other = IPv4Address("10.3.0.2")
    frames = [
        probe(),
        probe(ssid=78),
        probe(ssid=0x00FF),
        probe(ssid=0x00FF, source=other),
        probe(PATHS[2]),
        probe(source=other),
        probe(Stream(THERE, 3)),
    ]
    for number in range(3):
        for frame in frames:
            answer = read(host.take(frame).data)
            assert answer is not None
            assert answer.number == number


PACKETS = {
    "of a user": tcp(),
    "of a user, as long as a probe": tcp().ljust(FRAME_BYTES, b"x"),
    "to another port": changed(probe(), 2, b"\x03\x5f"),
    "from another port": changed(probe(), 0, b"\x03\x5f"),
    "of STAMP with another TLV": changed(probe(), 53, b"\xfb"),
    "with another value in it": changed(probe(), 56, b"SOPE"),
    "with a TLV of another length": changed(probe(), 54, b"\0\x0b"),
    "of another protocol": changed(probe(), -11, b"\x06"),
    "a fragment": changed(probe(), -14, b"\x20\x00"),
    "cut short": probe()[:-1],
    "longer": probe() + b"\0",
    "with another IPv4 length": changed(probe(), -18, b"\0\x57"),
    "with another UDP length": changed(probe(), 4, b"\0\x43"),
    "tagged": probe()[:12] + b"\x81\x00\x00\x05" + probe()[12:],
    "of IPv6": probe()[:12] + b"\x86\xdd" + probe()[14:],
    "with another option": changed(probe(carrier=Carrier.OPTION), -4, b"\x94\x04"),
}


@pytest.mark.parametrize("frame", PACKETS.values(), ids=PACKETS.keys())
def test_what_is_no_probe_passes_uncounted(host: Host, frame: bytes) -> None:
    assert host.take(frame).retval == PASS
    assert sum(host.program.seen().values()) == 0


STRANGE = {
    "to another host": (probe(Stream(IPv4Address("10.2.1.4"), 0, 1)), PASS, Seen.NOT_OURS),
    "from outside the fabric": (probe(source=IPv4Address("11.0.0.2")), SHOT, Seen.NOT_OURS),
    "from the host itself": (probe(source=THERE), SHOT, Seen.NOT_OURS),
    "with a wrong UDP checksum": (changed(probe(), 6, b"\x12\x34", correct=False), SHOT, Seen.CORRUPT),
    "without one": (changed(probe(), 6, b"\0\0", correct=False), SHOT, Seen.CORRUPT),
    "with a bit of its label flipped": (changed(probe(), 60, b"\x01", correct=False), SHOT, Seen.CORRUPT),
    "with a wrong header checksum": (changed(probe(), -12, b"\xfe", correct=False), SHOT, Seen.CORRUPT),
    "filled in by another reflector": (changed(probe(), 32, b"\0\0\0\x07"), PASS, Seen.ODD),
    "marked as malformed": (changed(probe(), 52, b"\x40"), PASS, Seen.ODD),
    "an answer to somebody else": (changed(probe(), 52, b"\0\xfc\0\x0cSOPA\0\1\0\0????"), SHOT, Seen.UNASKED),
}


@pytest.mark.parametrize(("frame", "verdict", "seen"), STRANGE.values(), ids=STRANGE.keys())
def test_what_is_wrong_is_refused_and_counted(host: Host, frame: bytes, verdict: int, seen: Seen) -> None:
    assert host.take(frame).retval == verdict
    assert host.program.seen()[seen] == 1


def test_an_answer_is_not_answered(host: Host) -> None:
    answer = host.take(probe()).data
    assert host.take(answer).retval == PASS  # it is another host's
    peer = Host(HERE)
    assert peer.take(answer).retval == STOLEN
    peer.program.close()


def test_a_forged_flood_of_one_source_is_answered_no_more_and_others_are(host: Host) -> None:
    flood = [host.program.run(probe(number=number, ssid=number)).retval for number in range(3 * BURST)]
    answered = flood.count(REDIRECT)
    assert flood[: BURST // 2] == [REDIRECT] * (BURST // 2)
    assert set(flood) == {REDIRECT, SHOT}
    assert host.program.seen()[Seen.ANSWERED] == answered
    assert host.program.seen()[Seen.TOO_MANY] == 3 * BURST - answered > 0
    assert host.program.run(probe(source=IPv4Address("10.3.0.2"))).retval == REDIRECT


def test_answers_that_nobody_reads_are_counted_and_dropped() -> None:
    here, there = Host(HERE), Host(THERE)
    ring = 1 << 16
    answers = [
        corrected(changed(there.program.run(probe(ssid=n)).data, -8, bytes([10, 9, n // 100, n % 100])))
        for n in range(90)
    ]
    total = 0
    while not here.program.seen()[Seen.FULL]:
        total += 1
        assert here.program.run(answers[total % len(answers)]).retval in (STOLEN, SHOT)
        assert total < ring
    assert len(here.program.records()) == here.program.seen()[Seen.TAKEN] > 1000
    assert here.program.records() == []
    assert here.program.run(answers[0]).retval == STOLEN
    here.program.close()
    there.program.close()


def test_garbled_probes_and_answers_are_treated_as_the_reference_does() -> None:
    done = fuzz(3000, seed=5)
    assert {"answered", "taken", "corrupt", "not_ours", "odd", "unasked", "passed"} <= done.keys()
