"""Two hosts of the fabric that probe each other, and their frames."""

from ipaddress import IPv4Address

from flowrules.label import Carrier
from sopa_ryu.agent.probing.frames import Ends, ProbeFrame
from sopa_ryu.channel.messages import Stream
from tests.helpers.frames import checksum
from topologies.structure import GATEWAY_MAC

GATEWAY = bytes.fromhex(GATEWAY_MAC.replace(":", ""))
HERE, THERE = IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3")
SECRET, OWN_SECRET = 0x0BADCAFE, 0x0DDBA115
PATHS = tuple(Stream(THERE, up1, up2) for up1 in (0, 1) for up2 in (0, 1))


def ends(address: IPv4Address = HERE, carrier: Carrier = Carrier.MAC, secret: int = SECRET) -> Ends:
    return Ends(address, b"\x02\x00" + address.packed, GATEWAY, carrier, secret, OWN_SECRET)


def probe(
    stream: Stream = PATHS[1],
    *,
    source: IPv4Address = HERE,
    carrier: Carrier = Carrier.MAC,
    ssid: int = 77,
    number: int = 0,
    at: int = 5_000_000_123,
) -> bytes:
    ports = (3, 4) if stream.destination == source else None
    return bytes(ProbeFrame(ends(source, carrier), stream, ssid, ports).numbered(number, at))


def corrected(frame: bytes) -> bytes:
    """The frame with right checksums, whatever else is wrong with it."""
    words = frame[14] & 15
    at = 14 + 4 * words
    header = bytearray(frame[14:at])
    header[10:12] = b"\0\0"
    header[10:12] = checksum(bytes(header)).to_bytes(2)
    udp = bytearray(frame[at:])
    udp[6:8] = b"\0\0"
    pseudo_header = bytes(header[12:20]) + b"\0\x11" + len(udp).to_bytes(2)
    udp[6:8] = (checksum(pseudo_header + bytes(udp)) or 0xFFFF).to_bytes(2)  # 0 stands for none (RFC 768)
    return frame[:14] + bytes(header) + bytes(udp)


def changed(frame: bytes, at: int, value: bytes, *, correct: bool = True) -> bytes:
    """The frame with other bytes from a place in what follows its IPv4 header on, or with a negative place before that."""
    start = 14 + 4 * (frame[14] & 15) + at
    done = frame[:start] + value + frame[start + len(value) :]
    return corrected(done) if correct else done
