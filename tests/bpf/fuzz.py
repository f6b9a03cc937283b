"""Random and mutated packets for the programs that read and write labels, each compared with the reference: ``make fuzz``.

A run prints its seed; ``--seed`` repeats it. The first difference ends it, with the frame in hexadecimal.
"""

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.libbpf import RunOutcome
from sopa_ryu.agent.label.edge_parser import Parser
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import short_address
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy, WayOut
from sopa_ryu.agent.slots.cfr_grants import Gate
from sopa_ryu.channel.slots import Granted
from tests.bpf import reference
from tests.helpers.frames import FAR, HERE, HERE6, INTER_POD, INTRA_RACK, PREFIX, checksum, table
from topologies import FatTree
from topologies.structure import FABRIC_NETWORK

PASSED = {"label": 0xFFFFFFFF, "wrap": 0xFFFFFFFF, "slot": 0xFFFFFFFF, "write": 0xFFFFFFFF, "strip": 0xFFFFFFFF, "parse": 2}
MTU = 300
SLOT_NS = 10**15
"""Longer than a run."""
ELSEWHERE = int(IPv4Address(FAR))
GRANTED: tuple[Label, ...] = ((7, 9), (1, 0), (3, 0xFF), (0xFF, 0xFF))
PACKETS_ALIKE = 500  # with the same table
WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), labels) for pod, labels in enumerate((INTRA_RACK, INTER_POD)))
SAY_EVERY_SECONDS = 10.0
# Frames below these are refused by BPF_PROG_TEST_RUN itself: any, and for tc those that say IPv4 or IPv6.
LEAST = 14
MIN_OF_IP = {b"\x08\x00": 34, b"\x86\xdd": 54}


class Programs(ExitStack):
    """The programs, loaded and attached to nothing: of ``mac`` and ``srv6``, of CFR, and the three of ``option``."""

    def __init__(self, labels: PathTable, mtu: int) -> None:
        super().__init__()
        self.mac = self.enter_context(Labeller("lo"))
        self.labeller = self.enter_context(Labeller("lo", carrier=Carrier.OPTION, fabric_mtu=mtu))
        self.srv6 = self.enter_context(Labeller("lo", carrier=Carrier.SRV6, fabric_mtu=mtu))
        self.parser = self.enter_context(Parser())
        self.timed = self.enter_context(Labeller("lo", carrier=Carrier.SRV6, cfr=True, fabric_mtu=mtu))
        self.swap(labels)

    def swap(self, labels: PathTable) -> None:
        self.mac.swap(labels)
        self.srv6.swap(labels)
        self.labeller.swap(labels._replace(prefix=None))

    def begin(self, source: int, labels: PathTable) -> None:
        """Begin a slot that lasts, with a table of either carrier."""
        assert self.timed.cfr is not None
        self.timed.swap(labels)
        now = time.monotonic_ns()
        self.timed.cfr.set_gate(IPv4Address(source), Gate(SLOT_NS, SLOT_NS + SLOT_NS // 2 - now, now + SLOT_NS, 0, 0))

    def grant(self, slot: reference.Slot) -> None:
        assert self.timed.cfr is not None
        self.timed.cfr.grant([Granted(1, *slot.hops, IPv4Address(slot.destination), 1)])

    def run(self, program: str, frame: bytes) -> RunOutcome:
        runs = {
            "label": self.mac.run,
            "wrap": self.srv6.run,
            "write": self.labeller.run,
            "strip": self.labeller.strip,
            "parse": self.parser.run,
            "slot": self.timed.run,
        }
        return runs[program](frame)

    def counters(self, program: str) -> dict[str, int]:
        its = {"label": self.mac, "wrap": self.srv6, "parse": self.parser, "slot": self.timed}
        return its.get(program, self.labeller).counters()


class Difference(AssertionError):
    """A program and the reference disagree."""


class Packets:
    """An endless stream of frames: well-formed ones of every kind, and such ones with something wrong."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"{seed} packets")

    def next(self) -> bytes:
        draw = self.draw
        frame = bytearray(self._frame())
        for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 5))):
            self._mutate(frame)
        return bytes(frame).ljust(LEAST, b"\0")

    def _frame(self) -> bytes:
        draw = self.draw
        source = draw.choice((b"\x02\x00\x0a\x00\x00\x02", b"\x02\x53\x9e\x04\x00\x01", draw.randbytes(6)))
        tag = draw.choice((b"", b"", b"", b"\x81\x00" + draw.randbytes(2), b"\x81\x00\0\x05\x81\x00\0\x06"))
        kind = draw.choice((b"\x08\x00",) * 8 + (b"\x86\xdd",) * 6 + (b"\x08\x06", draw.randbytes(2)))
        whole = {b"\x08\x00": self._packet, b"\x86\xdd": self._packet6}.get(kind, lambda: draw.randbytes(draw.randrange(80)))
        packet = whole()
        padding = bytes(draw.choice((0, 0, 0, 6, 18)))
        return draw.randbytes(6) + source + tag + kind + packet + padding

    def _packet(self) -> bytes:
        draw = self.draw
        options = self._options()
        protocol = draw.choice((6, 6, 6, 6, 17, 1, 132, 33, 136, 47, draw.randrange(256)))
        payload = draw.randbytes(draw.choice((0, 4, 7, 8, 20, 40, draw.randrange(MTU))))
        if protocol == 1 and payload:
            payload = bytes([draw.choice((0, 3, 8, 11))]) + payload[1:]
        fragment = draw.choice((0x4000, 0, 0x2000, 0x2010, 0x0010))
        address = draw.choice(
            ((10, draw.randrange(5), draw.randrange(3), 2), (192, 0, 2, draw.randrange(9)), (draw.randrange(220, 256), 0, 0, 1))
        )
        head = struct.pack(
            "!BBHHHBBHI4B", 0x40 | (5 + len(options) // 4), draw.randrange(256), 20 + len(options) + len(payload),
            draw.randrange(1 << 16), fragment, 64, protocol, 0, 0x0A000002, *address,
        )  # fmt: skip
        head += options
        if draw.random() < 0.9:
            head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        return head + payload

    def _packet6(self) -> bytes:
        draw = self.draw
        headers = [draw.choice((0, 43, 44, 51, 60)) for _ in range(draw.choice((0, 0, 0, 1, 2, 3, 7, 8, 9, 40)))]
        protocol = draw.choice((6, 6, 6, 6, 17, 58, 58, 132, 33, 136, 50, 59, draw.randrange(256)))
        packet = b""
        for header, following in zip(headers, [*headers[1:], protocol], strict=False):
            if header == 44:  # a fragment, more often an atomic one (RFC 6946)
                packet += struct.pack("!BBHI", following, 0, draw.choice((0, 0, 0, 6, 1, 8)), draw.randrange(1 << 32))
            else:
                units = draw.choice((0, 0, 0, 1, 2))
                length = 8 + 8 * units if header != 51 else 8 + 4 * units
                packet += bytes([following, units]).ljust(length, b"\x01")
        payload = draw.randbytes(draw.choice((0, 4, 7, 8, 20, 40, draw.randrange(MTU))))
        if protocol == 58 and payload:
            payload = bytes([draw.choice((1, 2, 128, 129, 132, 133, 135, 137, 138))]) + payload[1:]
        inside = PREFIX.network_address.packed[:6] + bytes([draw.randrange(5), draw.randrange(3)])
        address = draw.choice(
            (
                inside.ljust(15, b"\0") + b"\x02",
                inside + draw.randbytes(8),
                b"\x20\x01\x0d\xb8" + draw.randbytes(12),
                bytes([draw.choice((0xFF, 0xFE)), draw.randrange(256)]) + draw.randbytes(14),
            )
        )
        source = draw.choice((IPv6Address(HERE6).packed, draw.randbytes(16)))
        first = 6 << 28 | draw.randrange(1 << 20)
        head = struct.pack("!IHBB", first, min(len(packet + payload), 0xFFFF), (headers or [protocol])[0], 64)
        return head + source + address + packet + payload

    def _options(self) -> bytes:
        draw = self.draw
        words = []
        if draw.random() < 0.5:
            hops = draw.choice((draw.randbytes(2), b"\xff\xff", b"\x00\x01", b"\xff" + draw.randbytes(1)))
            words.append(b"\x9e" + draw.choice((b"\x04", b"\x04", b"\x04", draw.randbytes(1))) + hops)
        others = (b"\x94\x04\0\0", b"\x01\x01\x01\x01", b"\x07\x03\x04\x00", draw.randbytes(4))
        words += [draw.choice(others) for _ in range(draw.choice((0, 0, 1, 3, 8, 9, 10)))]
        if draw.random() < 0.2:
            draw.shuffle(words)
        return b"".join(words)[:40]

    def _mutate(self, frame: bytearray) -> None:
        draw = self.draw
        how = draw.randrange(6)
        if how == 0 and frame:  # the headers are where it matters
            frame[draw.randrange(min(len(frame), 64))] = draw.randrange(256)
        elif how == 1 and frame:
            frame[draw.randrange(min(len(frame), 64))] ^= 1 << draw.randrange(8)
        elif how == 2:
            del frame[draw.randrange(len(frame) + 1) :]
        elif how == 3:
            frame += draw.randbytes(draw.randrange(40))
        elif how == 4 and len(frame) > 20:  # another total length, or of IPv6's payload
            at, base = (18, 54) if frame[12:14] == b"\x86\xdd" else (16, 14)
            frame[at : at + 2] = struct.pack("!H", draw.choice((0, 20, 24, max(0, len(frame) - base), draw.randrange(1 << 16))))
        elif len(frame) > 16:
            at = draw.randrange(len(frame))
            frame[at:at] = draw.randbytes(draw.choice((1, 2, 4)))


def fuzz(packets: int, seed: int, say: bool = False) -> Counter[str]:
    """Give packets to all programs; return what the reference says that they count."""
    done, carried, stream = Counter[str](), Counter[Label](), Packets(seed)
    inside = table(seed=seed, policy=Policy.HASH)._replace(destinations=(0, 1, 2, 2, 2, 2, -1, 2), prefix=PREFIX)
    source = int(IPv4Address(HERE))
    with Programs(inside, MTU) as programs:
        for number in numbered(packets, say):
            if number % PACKETS_ALIKE == 0:
                labels = inside._replace(ways_out=stream.draw.choice(((), WAYS)))
                programs.swap(labels)
                timed = labels._replace(srv6=stream.draw.choice((None, labels.srv6)))
                programs.begin(source, timed)
            frame = stream.next()
            slot = reference.Slot(source, stream.draw.choice((aim(frame), ELSEWHERE)), stream.draw.choice(GRANTED))
            programs.grant(slot)
            expected = {"parse": reference.parse(frame)}
            if len(frame) >= MIN_OF_IP.get(frame[12:14], 0):
                expected |= {
                    "label": reference.label(frame, labels),
                    "wrap": reference.wrap(frame, labels, MTU, programs.srv6.outer_secret),
                    "slot": reference.timed(frame, timed, MTU, programs.timed.outer_secret, slot),
                }
                expected |= {"write": reference.write(frame, labels._replace(prefix=None), MTU), "strip": reference.strip(frame)}
            for program, (wanted, counted) in expected.items():
                outcome = programs.run(program, frame)
                if (outcome.data, outcome.retval) != (wanted, PASSED[program]):
                    raise Difference(
                        f"{program}, seed {seed}, packet {number} ({counted or 'nothing counted'})\n"
                        f"frame     {frame.hex()}\nreference {wanted.hex()}\nprogram   {outcome.data.hex()} ({outcome.retval})"
                    )
                done[counted or f"{program}: nothing"] += 1
                if program == "slot":
                    others = reference.timed(frame, timed, MTU, programs.timed.outer_secret, None)
                    done["slot: by a list" if timed.srv6 else "slot: by a label"] += (wanted, counted) != others
                elif counted == "labelled" and program != "wrap":
                    at = 10 if program == "label" else 36
                    carried[wanted[at], wanted[at + 1]] += 1
        of = ("label", "wrap", "slot", "write", "parse")
        kernel = sum((Counter(programs.counters(program)) for program in of), Counter[str]())
        told = {name: count for name, count in done.items() if ": " not in name}
        if told != kernel:
            raise Difference(f"the programs have counted {kernel}, the reference {told}")
        paths = sum((Counter(its.counted.by_path(FatTree(4))) for its in (programs.mac, programs.labeller)), Counter())
        if paths != carried:
            raise Difference(f"the programs have counted {paths} by path, the reference {carried}")
    return done


def aim(frame: bytes) -> int:
    """Return the address of the fabric to which an untagged frame goes, in 32 bits; another one for others."""
    is_ipv6 = frame[12:14] == b"\x86\xdd" and len(frame) >= 54
    found = short_address(IPv6Address(frame[38:54]), PREFIX) if is_ipv6 else int.from_bytes(frame[30:34], "big")
    return int(FABRIC_NETWORK.network_address) | found & int(FABRIC_NETWORK.hostmask)


def numbered(packets: int, say: bool) -> Iterator[int]:
    """Yield a number for each packet, and say how far it is."""
    started = said = time.monotonic()
    for number in range(packets):
        if say and time.monotonic() - said > SAY_EVERY_SECONDS:
            said = time.monotonic()
            print(f"{number} packets, {number / (said - started):.0f} a second", flush=True)
        yield number


def main(fuzz: Callable[[int, int, bool], Counter[str]], documentation: str) -> None:
    """Run a fuzzer from the command line: a number of packets, a seed, and whether to say how far it is."""
    options = argparse.ArgumentParser(prog="make fuzz", description=documentation.partition("\n\n")[0])
    options.add_argument("--packets", type=int, default=1_000_000, help="how many (default %(default)s)")
    options.add_argument("--seed", type=int, default=1, help="decides every packet (default %(default)s)")
    its = options.parse_args()
    build()
    try:
        counted = fuzz(its.packets, its.seed, True)
    except Difference as difference:
        sys.exit(str(difference))
    print(f"{its.packets} packets, seed {its.seed}: no difference")
    print(", ".join(f"{name} {count}" for name, count in sorted(counted.items())))


if __name__ == "__main__":
    main(fuzz, __doc__)
