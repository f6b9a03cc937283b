"""Random and mutated probes and answers for the program that turns probes round, each compared with the reference: ``make fuzz``.

A run prints its seed; ``--seed`` repeats it. The first difference ends it, with the frame in hexadecimal.
"""

from collections import Counter
from contextlib import ExitStack
from ipaddress import IPv4Address

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.libbpf import RunOutcome
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen
from sopa_ryu.channel.messages import Stream
from tests.bpf.fuzz import MIN_OF_IP, Difference, Packets, main, numbered
from tests.bpf.probe_reference import Reference, without_times
from tests.helpers.probe_frames import HERE, SECRET, THERE, changed, corrected, ends, probe

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
