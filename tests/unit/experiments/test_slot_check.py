"""The check of slots over a capture finds what was put into it."""

import struct

import pytest

from experiments.emulation.measurement.slot_check import SeenPacket, check, read_capture

FILE = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 276)
SLOT = 1000
UP, DOWN, CORE = 1, 2, 9  # towards host 1, towards host 2, between switches
HOSTS = {UP: 1, DOWN: 2}


def record(at_ns: int, interface: int, outgoing: bool, src: int, dst: int, protocol: int = 6, sequence: int = 0) -> bytes:
    cooked = struct.pack("!HHIHBB8s", 0x0800, 0, interface, 1, 4 if outgoing else 3, 6, bytes(8))
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, 1500, 7, 0, 64, protocol, 0, src, dst)
    data = cooked + ip + struct.pack("!HHI", 80, 90, sequence) + bytes(12)
    return struct.pack("=IIII", at_ns // 10**9, at_ns % 10**9, len(data), len(data)) + data


def packet(src: int, dst: int, number: int = 0) -> tuple[int, int, int, int, int, int]:
    return src, dst, 80, 90, number, number


def test_a_capture_is_read() -> None:
    capture = FILE + record(1_000_000_005, 9, True, 1, 2, sequence=77) + record(6, 9, False, 1, 2, protocol=17)
    assert list(read_capture(capture)) == [SeenPacket(1_000_000_005, 9, True, (1, 2, 80, 90, 77, 7))]


def test_a_capture_that_was_cut_off_is_read_to_its_last_whole_record() -> None:
    whole = record(5, 9, True, 1, 2)
    for cut in range(1, len(whole)):
        assert len(list(read_capture(FILE + whole + whole[:cut]))) == 1


@pytest.mark.parametrize("wrong", [b"", FILE[:-4] + struct.pack("=I", 1), b"\xd4\xc3\xb2\xa1" + FILE[4:]])
def test_another_file_is_rejected(wrong: bytes) -> None:
    with pytest.raises(ValueError, match=r"it has 0 bytes|it is no capture"):
        list(read_capture(wrong))


def test_times_count_from_the_slots_beginning() -> None:
    seen = [SeenPacket(100 + number * SLOT + late, UP, False, packet(1, 2, number)) for number, late in enumerate((40, 900, 0))]
    found = check(seen, HOSTS, [CORE], SLOT, zero_ns=100)
    assert (found.packets, found.late_ns) == (3, [0, 40, 900])
    assert (found.late_ms(0.5), found.late_ms(0.99)) == (40 / 1e6, 900 / 1e6)


def test_a_link_is_shared_if_packets_of_two_pairs_were_sent_in_one_slot_whenever_they_pass() -> None:
    first, second, third = packet(1, 2, 1), packet(3, 2, 1), packet(3, 2, 2)
    sent = [SeenPacket(10, UP, False, first), SeenPacket(20, 3, False, second), SeenPacket(SLOT + 10, 3, False, third)]
    passed = [SeenPacket(at, CORE, False, its) for at, its in ((500, first), (1700, second), (1800, third))]
    arrived = [SeenPacket(at, DOWN, True, its) for at, its in ((2500, first), (3700, second), (3800, third))]
    found = check(sent + passed + arrived, {**HOSTS, 3: 3}, [CORE], SLOT, 0)
    assert (found.packets, found.used, found.shared) == (3, 4, 2)  # the core link and the receiver's, in slot 0
    # packets of one pair may share a slot
    seen = [SeenPacket(10, UP, False, packet(1, 2, 1)), SeenPacket(20, UP, False, packet(1, 2, 2))]
    seen += [SeenPacket(30, CORE, False, packet(1, 2, number)) for number in (1, 2)]
    assert check(seen, HOSTS, [CORE], SLOT, 0).shared == 0


def test_only_the_end_of_a_link_that_a_packet_reaches_counts() -> None:
    seen = [
        SeenPacket(10, UP, False, packet(1, 2)),
        SeenPacket(20, CORE, True, packet(1, 2)),
        SeenPacket(30, 8, False, packet(1, 2)),
    ]
    assert check(seen, HOSTS, [CORE, 8], SLOT, 0).used == 1
    assert check([SeenPacket(30, 8, False, packet(1, 2))], HOSTS, [8], SLOT, 0) == (0, [], 0, 0)  # sent before the capture
