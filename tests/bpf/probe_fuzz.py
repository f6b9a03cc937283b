"""Random and mutated probes and answers for the program that turns probes round, each compared with the reference: ``make fuzz``.

A run prints its seed; ``--seed`` repeats it. The first difference ends it, with the frame in hexadecimal.
"""

from collections import Counter
from contextlib import ExitStack
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.libbpf import RunOutcome
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen
from sopa_ryu.channel.messages import Stream
from tests.bpf.fuzz import MIN_OF_IP, Difference, Packets, main, numbered
from tests.helpers.frames import checksum
from tests.helpers.probe_frames import HERE, SECRET, THERE, changed, corrected, ends, probe

PASS, SHOT, STOLEN, REDIRECT = 0xFFFFFFFF, 2, 4, 7
STAMP, TLV = slice(8, 52), slice(52, 68)
RECEIVED, SENT = slice(24, 32), slice(12, 20)
"""Of a datagram: times that the program writes."""


class Expected(NamedTuple):
    """The verdict, what is counted, and the frame of the answer, in which times are those of the probe."""

    verdict: int
    seen: Seen | None = None
    answer: bytes | None = None


class Reference:
    """The program at a host, with the numbers of its answers."""

    def __init__(self, its: Ends) -> None:
        self.ends = its
        self.answers: Counter[tuple[object, ...]] = Counter()

    def expect(self, frame: bytes) -> Expected:
        if len(frame) not in (102, 106) or frame[12:14] != b"\x08\x00":
            return Expected(PASS)
        words = 5 if len(frame) == 102 else 6
        at = 14 + 4 * words
        header, datagram = frame[14:at], frame[at:]
        if header[0] != 0x40 | words or header[9] != 17 or int.from_bytes(header[6:8], "big") & 0x3FFF:
            return Expected(PASS)
        if int.from_bytes(header[2:4], "big") != len(frame) - 14 or (words == 6 and header[20:22] != b"\x9e\x04"):
            return Expected(PASS)
        tlv = datagram[TLV]
        if datagram[:6] != b"\x03\x5e\x03\x5e\x00\x44" or tlv[1:8] != b"\xfc\x00\x0cSOPA":
            return Expected(PASS)
        return self._ours(frame, header, datagram, tlv)

    def _ours(self, frame: bytes, header: bytes, datagram: bytes, tlv: bytes) -> Expected:
        source, destination = IPv4Address(header[12:16]), IPv4Address(header[16:20])
        if destination != self.ends.address:
            return Expected(PASS, Seen.NOT_OURS)
        own = source == destination and tlv[0] == 0x80 and not any(datagram[24:52])
        own &= tlv[12:16] == self.ends.own_secret.to_bytes(4, "big")
        if source.packed[0] != 10 or (source == destination and not own):
            return Expected(SHOT, Seen.NOT_OURS)
        if not _intact(frame, len(header)):
            return Expected(SHOT, Seen.CORRUPT)
        if own:
            return Expected(STOLEN, Seen.TAKEN)
        if tlv[0] == 0x80 and not any(datagram[24:52]):
            return Expected(REDIRECT, Seen.ANSWERED, self._answer(header, datagram))
        if tlv[0]:
            return Expected(PASS, Seen.ODD)
        if tlv[12:16] != self.ends.secret.to_bytes(4, "big"):
            return Expected(SHOT, Seen.UNASKED)
        return Expected(STOLEN, Seen.TAKEN)

    def _answer(self, header: bytes, datagram: bytes) -> bytes:
        stamp, tlv = datagram[STAMP], datagram[TLV]
        key = header[12:16], stamp[14:16], tlv[8:10]
        number = self.answers[key]
        self.answers[key] += 1
        label = b"\x9e\x04" + tlv[8:10]
        by_option = self.ends.carrier is Carrier.OPTION
        option = label if by_option or len(header) == 24 else b""
        ethernet = self.ends.gateway + (self.ends.mac if by_option else b"\x02\x53" + label) + b"\x08\x00"
        length = (20 + len(option) + len(datagram)).to_bytes(2, "big")
        ip = bytes([0x45 + len(option) // 4, 0xC0]) + length + b"\0\0\x40\0\xff\x11\0\0" + header[16:20] + header[12:16]
        estimate = b"\x5a\x01" if number % 8 else b"\x40\x01"  # of the coarse clock, of the precise one
        answered = number.to_bytes(4, "big") + stamp[4:12] + estimate + stamp[14:16] + stamp[4:12] + stamp[:12]
        answered += stamp[12:14] + b"\0\0" + header[8:9] + b"\0\0\0"
        return corrected(ethernet + ip + option + datagram[:8] + answered + b"\0" + tlv[1:10] + b"\0\0" + tlv[12:])


def without_times(frame: bytes) -> bytes:
    """An answer with the times of its probe in place of the program's own, no number of answers, and the checksum of that."""
    at = 14 + 4 * (frame[14] & 15)
    sent_first = frame[at + 36 : at + 44]
    times = frame[: at + 12] + sent_first + frame[at + 20 : at + 24] + sent_first + frame[at + 32 :]
    return corrected(times[:-6] + b"\0\0" + times[-4:])


def _intact(frame: bytes, header: int) -> bool:
    udp = frame[14 + header :]
    pseudo_header = frame[26:34] + b"\0\x11" + len(udp).to_bytes(2)
    return not checksum(frame[14 : 14 + header]) and not checksum(pseudo_header + udp)


SOURCES = (HERE, IPv4Address("10.3.1.2"), THERE, IPv4Address("192.0.2.1"))
EVERY = 500
KEY = 0x9E3779B97F4A7C15
"""The ring is read after so many packets."""


class Frames(Packets):
    """An endless stream of frames: probes and answers, and such with something wrong."""

    def next(self) -> bytes:
        draw = self.draw
        hops = draw.choice((0, 1, 2, 255)), draw.choice((0, 1, 255))
        target = draw.choice((THERE, THERE, THERE, THERE, HERE))
        numbers = {"ssid": draw.randrange(4), "number": draw.randrange(1 << 32), "at": draw.randrange(1 << 50)}
        frame = probe(Stream(target, *hops), source=draw.choice(SOURCES), carrier=draw.choice(list(Carrier)), **numbers)
        if draw.random() < 0.3:  # an answer
            secret = draw.choice((SECRET, draw.randrange(1 << 32))).to_bytes(4, "big")
            frame = changed(frame, 24, draw.randbytes(28))
            frame = changed(changed(frame, 52, b"\0"), 64, secret)
        mutated = bytearray(frame)
        for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 5))):
            self._mutate(mutated)
        frame = bytes(mutated)
        if len(frame) >= 58 and 5 <= frame[14] & 15 <= 6 and draw.random() < 0.7:
            frame = corrected(frame)
        return frame


class Host(ExitStack):
    """The program of a host, and the reference beside it: both do the same, or a `Difference` says what not."""

    def __init__(self, its: Ends, **options: int) -> None:
        super().__init__()
        self.program = ProbeProgram(its, key=KEY, **options)
        self.callback(self.program.close)
        self.reference, self.counted = Reference(its), Counter[Seen]()

    def take(self, frame: bytes) -> tuple[RunOutcome, Seen | None]:
        """Return what becomes of a frame, and what is counted."""
        wanted, done = self.reference.expect(frame), self.program.run(frame)
        made = done.data if wanted.answer is None or done.data == frame else without_times(done.data)
        if (done.retval, made) != (wanted.verdict, wanted.answer or frame):
            raise Difference(
                f"{self.program.ends.carrier}, {wanted.seen}\nframe     {frame.hex()}\n"
                f"reference {(wanted.answer or frame).hex()} ({wanted.verdict})\nprogram   {made.hex()} ({done.retval})"
            )
        if wanted.seen is not None:
            self.counted[wanted.seen] += 1
        return done, wanted.seen

    def compare_counts(self) -> None:
        if self.counted != +Counter(self.program.seen()):
            raise Difference(f"the program has counted {self.program.seen()}, the reference {self.counted}")


def fuzz(packets: int, seed: int, say: bool = False) -> Counter[str]:
    """Give frames to the program of a host with either carrier; return what the reference says that they count."""
    done, stream = Counter[str](), Frames(seed)
    with ExitStack() as stack:
        hosts = [stack.enter_context(Host(ends(THERE, carrier), most=0)) for carrier in Carrier]
        for number in numbered(packets, say):
            frame = stream.next()
            if len(frame) < MIN_OF_IP.get(frame[12:14], 14):
                continue
            for host in hosts:
                try:
                    _, seen = host.take(frame)
                except Difference as difference:
                    raise Difference(f"seed {seed}, packet {number}, {difference}") from None
                done["passed" if seen is None else seen.name.lower()] += 1
                if number % EVERY == 0:
                    host.program.records()
        for host in hosts:
            host.compare_counts()
    return done


if __name__ == "__main__":
    main(fuzz, __doc__)
