"""What the controller answers to a packet that nothing leads out of the fabric for, and what it must not answer."""

import struct
from typing import Any

import pytest
from ryu.lib.packet import icmp, ipv4, packet

from sopa_ryu.fabric.unreachable import MAX_ANSWERS_PER_SECOND, Unreachable
from tests.helpers.frames import ICMP, TCP, UDP, ip, ports, tcp
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

TREE = FatTree(4)
EDGE = TREE.switch("e0_0")
PORT = 1  # of 10.0.0.2
OUTSIDE = "198.51.100.7"


def answer(frame: bytes, port: int = PORT) -> bytes | None:
    return Unreachable(TREE).answer(EDGE, port, frame, 1.0)


@pytest.mark.parametrize("size", [8, 9, 40, 1400])
@pytest.mark.parametrize("options", [b"", bytes.fromhex("9e040001")])
def test_the_answer_is_well_formed_and_in_the_name_of_the_racks_gateway(size: int, options: bytes) -> None:
    frame = tcp(dst=OUTSIDE, options=options)[: 14 + 20 + len(options)] + bytes(size)
    total = struct.pack("!H", len(frame) - 14)
    frame = frame[:16] + total + frame[18:]
    made = answer(frame[:128])
    assert made is not None
    assert made[:14].hex(":") == "02:00:0a:00:00:02:02:00:00:00:00:01:08:00"
    parsed = packet.Packet(made)
    header, message = parsed.get_protocol(ipv4.ipv4), parsed.get_protocol(icmp.icmp)
    assert (header.src, header.dst, header.proto, header.total_length) == ("10.0.0.1", "10.0.0.2", 1, len(made) - 14)
    assert (message.type, message.code) == (3, 0)
    assert made[14 + 28 :] == frame[14:128]
    for part in (made[14:34], made[34:]):  # a right checksum makes the sum 0xffff (RFC 1071)
        words = struct.unpack(f"!{(len(part) + 1) // 2}H", part + b"\0" * (len(part) % 2))
        assert sum(words) % 0xFFFF == 0


@each_script(__file__, "unreachable")
def test_what_is_answered(script: Script) -> None:
    def handle(step: Step) -> str:
        """Have a packet come in, to an address outside unless ``dst`` says otherwise; some of its octets may be others."""
        its = {"dst": OUTSIDE, **step.options}
        switch, port, at, octets = its.pop("switch", "e0_0"), its.pop("port", "1"), its.pop("at", "0"), its.pop("octets", "")
        kind, size = int(its.pop("kind", "8")), int(its.pop("size", "128"))
        fields: dict[str, Any] = {name: int(text, 0) if name == "fragment" else text for name, text in its.items()}
        payloads = {"icmp": (ICMP, struct.pack("!BBHI", kind, 0, 0, 0) + bytes(28)), "gre": (47, bytes(8))}
        proto, payload = payloads.get(step.command, ({"tcp": TCP, "udp": UDP}.get(step.command), ports(1, 2)))
        frame = bytearray(ip(payload, proto=proto, **fields))
        frame[int(at) : int(at) + len(octets) // 2] = bytes.fromhex(octets)
        unreachable = Unreachable(TREE)
        made = unreachable.answer(TREE.switch(switch), int(port, 0), bytes(frame[:size]), 1.0)
        assert unreachable.outcomes["not_answerable"] == (made is None)
        return "no answer" if made is None else "answered"

    script.play(handle)


def test_all_racks_together_get_a_bounded_number_a_second() -> None:
    its = Unreachable(TREE)
    made = [its.answer(EDGE, PORT, tcp(dst=OUTSIDE), 5.0 + n / 1000) for n in range(900)]
    assert sum(each is not None for each in made) == MAX_ANSWERS_PER_SECOND
    assert its.outcomes["too_many"] == 900 - MAX_ANSWERS_PER_SECOND
    assert its.answer(EDGE, PORT, tcp(dst=OUTSIDE), 6.0) is not None
