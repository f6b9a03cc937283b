"""What the program that turns probes round has to do with a frame, written anew in Python."""

from collections import Counter
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import Carrier
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.programs import Seen
from tests.helpers.frames import checksum
from tests.helpers.probe_frames import corrected

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
