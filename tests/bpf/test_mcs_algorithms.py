"""The algorithms of MCS in eBPF: frame, verdict and state are the reference's, and these are what docs/mcs.md says."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.bpf.mcs_both import BLOCKS, D_SACK, KEY, LAST, MSS, Both, received, sent
from tests.bpf.mcs_reference import FRESH, MAX_CHANNELS, MAX_WEIGHT, ONE, PATIENCE_US, Connection, Mco, plus
from tests.bpf.mcs_script import Script
from tests.helpers.golden import play, scripts


@pytest.mark.parametrize("script", scripts(__file__, "mcs"), ids=lambda path: path.stem)
def test_script(both: Both, script: Path, request: pytest.FixtureRequest) -> None:
    play(script, Script(both).handle, record=request.config.option.record)


# -- algorithm 1: order -------------------------------------------------------------------------------------------------


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


# -- algorithms 2 to 5, from any state ------------------------------------------------------------------------------------


def any_connection(draw: random.Random, channels: int) -> Connection:
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
