"""The algorithms of MCS in eBPF: frame, verdict and state are the reference's, and these are what docs/mcs.md says."""

from __future__ import annotations

import random
import struct
import time
from dataclasses import replace

import pytest

from tests.bpf.mcs_both import (
    BLOCKS,
    D_SACK,
    KEY,
    LAST,
    MSS,
    TIMESTAMPS,
    Both,
    option_of,
    received,
    sack,
    sent,
    tcp_sum,
)
from tests.bpf.mcs_frames import ACK, FIN, L4, MCO_BYTES, NOP, SYN
from tests.bpf.mcs_reference import (
    FRESH,
    MAX_CHANNELS,
    MAX_WEIGHT,
    ONE,
    PATIENCE_US,
    Block,
    Connection,
    Mco,
    Verdict,
    plus,
)

# -- algorithm 1: order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [0, LAST - 2 * MSS, 1 << 31])
def test_overtaken_packets_are_no_loss_and_a_gap_in_a_channel_is(both: Both, origin: int) -> None:
    def data(number: int, channel: int, local: int) -> None:
        seq = plus(origin, number * MSS)
        both.into(received(seq=seq, payload=MSS, mco=Mco(0, 0, 0, channel, seq, plus(origin, local * MSS))))

    for number, channel, local in ((1, 1, 0), (0, 0, 0), (3, 3, 0), (2, 2, 0), (5, 1, 1)):
        data(number, channel, local)
        assert not both.its.loss
    data(8, 0, 2)
    assert (both.its.loss, both.its.rsn, both.its.expected[0]) == (True, plus(origin, 8 * MSS), plus(origin, 3 * MSS))


def test_a_segment_of_a_super_packet_has_the_local_number_that_follows(both: Both) -> None:
    mco = Mco(0, 0, 0, 5, 4000, LAST - 1000)
    for number in range(3):
        both.into(received(seq=4000 + number * MSS, payload=MSS, mco=mco))
    assert not both.its.loss
    assert both.its.expected[5] == plus(LAST - 1000, 3 * MSS)


@pytest.mark.parametrize("blocks", [BLOCKS[:1], BLOCKS[:2]])
def test_a_duplicate_ack_that_reports_reordering_is_not_sent(both: Both, blocks: tuple[Block, ...]) -> None:
    before = TIMESTAMPS if len(blocks) == 1 else b""
    both.sent(sent(ack=4000))
    state = both.its
    frame = sent(ack=4000, blocks=blocks, before=before)
    assert both.out(frame) == (Verdict.DROP, frame)
    assert replace(both.its, gap_since=None) == state
    both.begin(Connection(lan=4000, loss=True, rsn=6000))
    assert option_of(both.sent(frame)).channel == 0
    assert both.its.loss
    both.sent(sent(ack=6001))
    assert not both.its.loss


@pytest.mark.parametrize(
    "frame",
    [
        sent(ack=4000),
        sent(ack=4000, window=900),
        sent(ack=4000, blocks=(D_SACK,)),
        sent(ack=4000, payload=1, blocks=(D_SACK,)),
        sent(ack=4000, flags=0, blocks=BLOCKS[:1]),
    ],
    ids=["keepalive", "window-update", "d-sack", "d-sack-with-data", "no-ack"],
)
def test_other_duplicates_pass_with_what_they_say(both: Both, frame: bytes) -> None:
    both.sent(sent(ack=4000))
    out = both.sent(frame)
    assert option_of(out)
    assert out[L4 + 20 : -MCO_BYTES - 1] == frame[L4 + 20 : -MCO_BYTES - 1]


@pytest.mark.parametrize(
    ("ack", "payload", "flags"),
    [(3999, 0, ACK), (4001, 0, ACK), (4000, 1, ACK), (4001, MSS, ACK), (4000, 0, ACK | FIN)],
    ids=["old", "new", "data", "new-data", "fin"],
)
def test_sack_that_reports_reordering_is_blanked(both: Both, ack: int, payload: int, flags: int) -> None:
    both.sent(sent(ack=4000))
    frame = sent(ack=ack, blocks=BLOCKS[:1], payload=payload, flags=flags)
    out = both.sent(frame)
    assert out[L4 + 32 : L4 + 44] == bytes([NOP]) * 12
    assert tcp_sum(out) == 0xFFFF
    both.begin(Connection(lan=3000, loss=True, rsn=6000))
    assert both.sent(frame)[L4 + 32 : L4 + 44] == sack(BLOCKS[:1])


def test_an_ack_that_was_lost_is_sent_again_when_its_data_comes_again(both: Both) -> None:
    both.into(received(seq=4000, payload=100))
    both.sent(sent(ack=4100))
    duplicate = sent(ack=4100, blocks=BLOCKS[:1])
    assert both.out(duplicate)[0] is Verdict.DROP
    both.into(received(seq=4000, payload=100))
    assert both.its.lan == 4000
    assert both.out(duplicate)[0] is Verdict.PASS
    assert both.out(duplicate)[0] is Verdict.DROP


@pytest.mark.parametrize("patience_us", [10_000_000, 0])
def test_what_is_missing_for_long_is_lost_though_no_channel_shows_a_gap(both: Both, patience_us: int) -> None:
    both.use(patience_us=patience_us or PATIENCE_US)
    both.programs.set(patience_us=patience_us)  # 0: the default
    now_us = time.monotonic_ns() // 1000 & LAST
    both.wire.host.clock_us = lambda: now_us
    both.begin(Connection(lan=4000, gap_since=now_us - 11_000_000 & LAST))
    both.sent(sent(ack=4000, blocks=BLOCKS[:1]))
    assert (both.its.loss, both.its.rsn) == (True, BLOCKS[0][1])
    both.sent(sent(ack=BLOCKS[0][1] + 1))
    assert not both.its.loss


def test_a_gap_begins_with_the_first_packet_behind_it_and_each_gap_anew(both: Both) -> None:
    both.use(patience_us=60_000_000)
    both.wire.host.clock_us = lambda: time.monotonic_ns() // 1000 & LAST
    for ack, blocks, gap in (
        (4000, (), False), (4000, BLOCKS, True), (4500, BLOCKS, True), (4600, (), False), (4700, BLOCKS, True),
        (4600, (), True), (4800, (D_SACK, *BLOCKS), False),
    ):  # fmt: skip
        both.out(sent(ack=ack, blocks=blocks[:1]))
        assert (both.its.gap_since is not None) == gap
        assert not both.its.loss


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("first", [(), (D_SACK,)], ids=["sack", "d-sack"])
@pytest.mark.parametrize("payload", [0, 100], ids=["ack", "data"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_where_sack_has_left_no_room(
    both: Both, count: int, payload: int, first: tuple[Block, ...], loss: bool
) -> None:
    before = b"" if count == 4 else TIMESTAMPS
    blocks = (*first, *BLOCKS)[:count]
    both.begin(Connection(lan=3000, loss=loss, rsn=20_000))
    frame = sent(ack=4000, blocks=blocks, room=b"", before=before, payload=payload)
    out = both.sent(frame)
    at, end = L4 + 20 + len(before), len(frame) - payload - MCO_BYTES
    if not loss and not first:
        assert option_of(out).channel == 0
        assert out[at:end] == bytes([NOP]) * (4 + 8 * count - MCO_BYTES)
    elif count == 2:
        assert out == frame
        assert both.its.cc == 7
    else:
        assert option_of(out).channel == 0
        assert out[at:end] == sack(blocks[: count - 2])
    assert both.its.lan == 4000
    assert tcp_sum(out) == 0xFFFF


def test_a_full_header_of_no_connection_or_with_room_for_a_placeholder_passes_as_it_is(both: Both) -> None:
    crowded = sent(blocks=BLOCKS[:3], room=b"")
    assert both.sent(crowded) == crowded
    both.sent(sent())
    for frame in (
        sent(blocks=BLOCKS[:2], room=b"", before=b""),
        sent(blocks=BLOCKS[:3], room=b"", flags=0),
        sent(blocks=BLOCKS[:1], room=b"\x01" * 16),
    ):
        assert both.sent(frame) == frame


@pytest.mark.parametrize("flags", [0, ACK])
def test_sack_blocks_that_look_like_a_placeholder_are_none(both: Both, flags: int) -> None:
    looks = ((0xFD100000, 0xFD100503), (0xFD101000, 0xFD102000))
    both.sent(sent(ack=0xFD000000))
    frame = sent(ack=0xFD000001, blocks=((0xFD090000, 0xFD0A0000), *looks), room=b"", flags=flags)
    out = both.sent(frame)
    if not flags:
        assert out == frame
    else:
        assert out[L4 + 32 : L4 + 44] == bytes([NOP]) * 12
        assert option_of(out).channel == 1


# -- algorithms 2 to 5, from any state ------------------------------------------------------------------------------------


def any_connection(draw: random.Random, channels: int) -> Connection:
    """Return a state that no sequence of packets might lead to."""
    numbers = [draw.getrandbits(32) for _ in range(MAX_CHANNELS)]
    mask = (1 << channels) - 1

    def some(high: int) -> list[int]:
        values = [draw.choice((0, draw.randrange(high + 1))) for _ in range(channels)]
        return values + [0] * (MAX_CHANNELS - channels)

    fv = some(FRESH)[:channels] + [FRESH] * (MAX_CHANNELS - channels)
    return Connection(
        channels, numbers, nsn=draw.getrandbits(32), msn=draw.choice((999, 1000, 1001, draw.getrandbits(32))),
        ws=draw.choice((draw.getrandbits(30), 3000, 1 << 30)), fv=fv, skv=some(7), wv=some(MAX_WEIGHT),
        cb=draw.choice((0, draw.getrandbits(16) & mask)), ab=draw.choice((mask, 0, draw.getrandbits(16) & mask)),
        cc=draw.randrange(channels), alpha=draw.randrange(ONE + 1), slow_start=draw.random() < 0.5,
        resent=draw.random() < 0.5,
        mss=draw.choice((536, 1448, 9000, 65495)),
        scale=draw.choice((None, 0, 7, 14)), expected=[draw.choice((None, number, 0)) for number in numbers],
        lan=draw.choice((None, 3000, 4000, 5000, draw.getrandbits(32))), rsn=draw.choice((3999, 4000, draw.getrandbits(32))),
        rb=draw.getrandbits(16), rcb=draw.getrandbits(16), rp=draw.choice((0, 3, 255)), loss=draw.random() < 0.3,
        closed_out=draw.random() < 0.1, closed_in=draw.random() < 0.1,
    )  # fmt: skip


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 11, 16])
def test_channels_are_chosen_by_weight_from_any_state(both: Both, channels: int) -> None:
    draw = random.Random(channels)
    both.use(channels=channels)
    for _ in range(60):
        both.begin(any_connection(draw, channels))
        for _ in range(20):
            if KEY not in both.wire.host.connections:
                break
            both.sent(sent(seq=draw.getrandbits(32), ack=9000, payload=draw.choice((0, 10, MSS))))


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 11, 16])
def test_weights_windows_and_freshness_follow_from_any_state(both: Both, channels: int) -> None:
    draw = random.Random(channels)
    both.use(channels=channels)
    for _ in range(300):
        both.begin(any_connection(draw, channels))
        for ack in (draw.choice((999, 1000, 1001, 1002)), draw.getrandbits(32)):
            seq = draw.getrandbits(32)
            mco = Mco(
                draw.choice((0, draw.getrandbits(16))), draw.choice((0, draw.getrandbits(16))), draw.randrange(256),
                draw.randrange(16), draw.choice((seq, plus(seq, -MSS))), draw.getrandbits(32),
            )  # fmt: skip
            both.into(
                received(
                    seq, ack, draw.choice((0, 1, MSS)), mco=mco, tos=draw.randrange(4), window=draw.getrandbits(16)
                )
            )


def test_a_dead_channel_is_left_after_three_round_trips_and_taken_again_with_its_first_packet(both: Both) -> None:
    alive = 0xFF & ~(1 << 3)
    seq, chosen = 1000, []
    for _ in range(5):
        for _ in range(8):
            chosen.append(option_of(both.sent(sent(seq=seq, payload=MSS))).channel)
            seq += MSS
        both.into(received(ack=seq, mco=Mco(0, alive, 0, 0, 4000, 0)))
    assert [chosen[8 * turn :][:8].count(3) for turn in range(5)] == [1, 1, 1, 0, 0]
    both.into(received(ack=seq, mco=Mco(0, 1 << 3, 0, 0, 4000, 0)))
    assert 3 in [option_of(both.sent(sent(seq=seq))).channel for _ in range(8)]


def test_a_retransmission_ends_a_round_and_its_acknowledgement_the_next_one(both: Both) -> None:
    for number in range(8):
        both.sent(sent(seq=1000 + number * MSS, payload=MSS))
    assert (both.its.fv[:8], both.its.msn) == ([2] * 8, 1000)
    both.begin(replace(both.its, msn=9000))
    both.sent(sent(seq=1000 + MSS, payload=MSS))
    assert (both.its.fv[1], both.its.msn, both.its.resent) == (1, 1000 + MSS, True)
    both.sent(sent(seq=1000 + 2 * MSS, payload=MSS))  # of the same recovery
    assert (both.its.fv[1], both.its.msn) == (1, 1000 + MSS)
    both.sent(sent(seq=1000 + MSS, payload=MSS))  # the timer, again
    assert both.its.fv[1] == 0
    both.sent(sent(seq=1000, payload=MSS))
    assert (both.its.ab, both.its.msn) == (0xFF, 1000)  # none has answered: all are tried again
    both.into(received(ack=1000 + MSS))
    assert (both.its.resent, both.its.msn) == (False, 1001 + 8 * MSS)
    both.sent(sent(seq=1000 + 8 * MSS, payload=MSS))
    assert not both.its.resent


def test_a_marked_channel_gets_an_eighth_of_the_packets(both: Both) -> None:
    seq = 1000
    for _ in range(3):
        both.sent(sent(seq=seq, payload=2))
        seq += 2
        both.into(received(ack=seq, mco=Mco(1 << 2, 0xFF, 0, 0, 4000, 0)))
        seq += 1
    assert both.its.wv[:8] == [0, 0, 3, 0, 0, 0, 0, 0]
    chosen = [option_of(both.sent(sent(seq=seq))).channel for _ in range(8 * 7 + 1)]
    assert (chosen.count(2), chosen.count(1)) == (1, 8)


def test_a_mark_of_a_channel_that_this_host_does_not_have_is_none(both: Both) -> None:
    both.use(channels=4)
    both.sent(sent(payload=10))
    both.into(received(ack=1010, mco=Mco(0xFFF0, 0xFFF0, 0, 0, 4000, 0)))
    assert (both.its.cb, both.its.slow_start, both.its.ab) == (0, True, 0xF)


def test_the_window_is_lowered_after_the_first_mark_and_never_raised(both: Both) -> None:
    both.sent(sent(flags=SYN, room=b"", before=b"\x03\x03\x08\0"))
    both.into(received(flags=SYN | ACK, reserved=0, before=b"\x03\x03\x02\0"))
    both.sent(sent(payload=MSS))
    assert both.its.scale == 2
    unmarked = received(ack=1000 + MSS, window=60_000)
    assert both.into(unmarked) == unmarked
    both.sent(sent(seq=9000, payload=MSS))
    out = both.into(received(ack=9000 + MSS, window=60_000, mco=Mco(1, 1, 0, 0, 4000, 0)))
    (window,) = struct.unpack_from("!H", out, L4 + 14)
    assert window == both.its.ws >> 2
    assert 2 * MSS <= both.its.ws < 14_600
    assert tcp_sum(out) == 0xFFFF
    small = received(ack=9000 + MSS, window=10)
    assert both.into(small) == small
    both.use(regulating=False)
    assert both.into(unmarked) == unmarked


@pytest.mark.parametrize("scale", [0, 7, 14])
@pytest.mark.parametrize("mss", [536, 65_495])
def test_a_window_is_neither_zero_nor_above_the_header_s_16_bits(both: Both, mss: int, scale: int) -> None:
    for ws in (2 * mss, 1 << 30):
        both.begin(Connection(slow_start=False, ws=ws, mss=mss, scale=scale))
        (window,) = struct.unpack_from("!H", both.into(received(window=65_535)), L4 + 14)
        assert window == min(65_535, max(1, ws >> scale))


def test_without_the_filter_duplicate_acks_pass_with_their_blocks(both: Both) -> None:
    both.use(filtering=False)
    both.sent(sent(ack=4000))
    frame = sent(ack=4000, blocks=BLOCKS[:1])
    assert both.sent(frame)[L4 + 32 : L4 + 44] == sack(BLOCKS[:1])


def test_a_loss_is_repaired_by_the_acknowledgement_of_what_comes_behind_it_only(both: Both) -> None:
    for ack, loss in ((5999, True), (6000, True), (6001, False)):
        both.begin(Connection(lan=4000, loss=True, rsn=6000))
        both.sent(sent(ack=ack))
        assert both.its.loss is loss
