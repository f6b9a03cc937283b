"""The programs that read and write labels, packet by packet (BPF_PROG_TEST_RUN): golden packets, and the reference in Python."""

from collections.abc import Iterator

import pytest

from experiments.bench.programs import FABRIC_MTU, TABLE, Golden, golden_packets
from flowrules.label import Carrier
from sopa_ryu.agent.labeller import Labeller
from tests.bpf import reference
from tests.bpf.fuzz import Programs, fuzz
from tests.helpers.frames import summed, table, tcp

GOLDEN = list(golden_packets())
UNSPEC, PASS = 0xFFFFFFFF, 2


@pytest.fixture(scope="module")
def programs(objects: None) -> Iterator[Programs]:
    with Programs(TABLE, FABRIC_MTU) as its:
        yield its


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden.program}: {golden.sentence}")
def test_golden(programs: Programs, golden: Golden) -> None:
    before = programs.counters(golden.program)
    outcome = programs.run(golden.program, golden.frame)
    after = programs.counters(golden.program)
    assert outcome.data == golden.result
    assert outcome.retval == (PASS if golden.program == "parse" else UNSPEC)
    counted = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert counted == ({golden.counted: 1} if golden.counted else {})
    more = (TABLE, FABRIC_MTU) if golden.program == "write" else ()
    assert getattr(reference, golden.program)(golden.frame, *more) == (golden.result, golden.counted)
    if golden.counted == "labelled" and golden.frame[12:14] == b"\x08\x00":
        assert programs.run("strip", golden.result).data == golden.frame


def test_a_packet_that_cannot_be_labelled_takes_no_turn_of_its_flow() -> None:
    with Labeller("lo", carrier=Carrier.OPTION) as labeller:
        labeller.swap(table())
        words = []
        for _ in range(8):
            words.append(labeller.run(tcp()).data[36:38])
            assert labeller.run(tcp(options=b"\x01" * 40)).data == tcp(options=b"\x01" * 40)
        assert words[:4] == words[4:]
        assert len(set(words)) == 4


def test_random_and_mutated_packets_come_out_as_the_reference_says() -> None:
    done = fuzz(packets=20_000, seed=1)
    # a fuzz that reaches only refusals proves nothing
    assert min(done[name] for name in ("labelled", "stripped", "believed")) > 1_000
    assert min(done[name] for name in ("no_room", "too_big", "malformed", "reserved", "forged")) > 20
    assert min(done[f"slot: by a {how}"] for how in ("list", "label")) > 20


def test_a_checksum_that_carries_twice_is_right(programs: Programs) -> None:
    golden = next(its for its in GOLDEN if (its.program, its.counted) == ("strip", "stripped"))
    up1, up2 = golden.frame[36:38]
    added = sum(0xFFFF - word for word in (0x0100, 4, 0x9E04, up1 << 8 | up2))
    for below in range(8):  # what is added to the inverted checksum ends a little below 0xffff, before its carries are added
        frame = bytearray(golden.frame)
        frame[24:26] = (0xFFFF - (0xFFFF - below - added) % 0x10000).to_bytes(2)
        frame[18:20] = bytes(2)
        frame[18:20] = ((0xFFFF - summed(bytes(frame[14:38]))) % 0xFFFF).to_bytes(2)
        assert not summed(bytes(frame[14:38])) % 0xFFFF
        out = programs.run("strip", bytes(frame)).data
        assert (out[14], summed(out[14:34]) % 0xFFFF) == (0x45, 0)
