"""MCS as the paper describes it: two hosts of the reference over a simulated network, and properties of the reference.

What it does with single packets, tests/bpf shows, together with the eBPF programs.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bpf.mcs_reference import (
    FRESH,
    MAX_CHANNELS,
    MAX_WEIGHT,
    ONE,
    Connection,
    Host,
    Key,
    Mco,
    Segment,
    before,
    plus,
)
from tests.helpers.mcs_network import CLIENT, MSS, SERVER, Network, Transfer

LAST = 0xFFFFFFFF
KEY = Key(1, 2, 40000, 80)

delays = st.lists(st.integers(1, 60), min_size=MAX_CHANNELS, max_size=MAX_CHANNELS)
sequence_numbers = st.one_of(st.integers(0, LAST), st.integers(LAST - 300 * MSS, LAST))
channel_numbers = st.integers(2, MAX_CHANNELS)


# -- order ------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(delays, delays, channel_numbers, sequence_numbers, st.sets(st.integers(0, 15)), st.integers(3, 80))
def test_without_a_loss_no_duplicate_ack_and_no_sack_block_reaches_the_sender(
    there: list[int], back: list[int], channels: int, isn: int, marking: set[int], cwnd: int
) -> None:
    done = Transfer(Network((there, back), marking=marking), channels=channels, isn=isn, cwnd=cwnd).run()
    assert (done.seen_blocks, done.retransmitted, done.timeouts) == (0, 0, 0)
    assert done.duplicates <= 1  # the first of all: the host does not know yet what has been acknowledged
    assert not done.receiving.loss


def test_the_network_reorders_so_that_without_mcs_each_such_transfer_would_be_repaired() -> None:
    there = [1 + 7 * channel for channel in range(MAX_CHANNELS)]
    transfer = Transfer(Network((there, there)))
    reordered = []
    transfer.trace.append(lambda: reordered.append(len(transfer.received) > transfer.rcv_next))
    transfer.run()
    assert sum(reordered) > 50


@settings(max_examples=30)
@given(st.integers(0, 150), channel_numbers, sequence_numbers)
def test_after_a_loss_duplicate_acks_pass_until_it_is_repaired(number: int, channels: int, isn: int) -> None:
    # one after the first of its channel: a receiver has to know what it is to expect there
    transfer = Transfer(Network(lost=({number + channels}, set())), channels=channels, isn=isn)
    known: list[tuple[bool, int]] = []
    transfer.trace.append(lambda: known.append((transfer.receiving.loss, transfer.server_passed)))
    done = transfer.run()
    assert (done.retransmitted, done.timeouts) == (1, 0)
    assert done.duplicates >= 3
    assert before(done.receiving.rsn, done.receiving.lan or 0)
    flags = [loss for loss, _ in known]
    first, last = flags.index(True), len(flags) - flags[::-1].index(True)
    assert all(flags[first:last])
    assert known[first - 1][1] == 0
    assert known[last][1] == known[-1][1]


def test_the_loss_of_a_channels_first_packet_shows_only_by_a_timeout() -> None:
    done = Transfer(Network(lost=({5}, set()))).run()
    assert (done.retransmitted > 0, done.timeouts, done.duplicates) == (True, 1, 0)


@given(
    delays,
    delays,
    channel_numbers,
    sequence_numbers,
    st.sets(st.integers(0, 300), max_size=15),
    st.sets(st.integers(0, 300), max_size=15),
    st.booleans(),
)
@settings(max_examples=40)
def test_whatever_is_lost_nothing_is_retransmitted_endlessly(
    there: list[int],
    back: list[int],
    channels: int,
    isn: int,
    lost: set[int],
    lost_acks: set[int],
    dsack: bool,
) -> None:
    network = Network((there, back), (lost, lost_acks))
    done = Transfer(network, channels=channels, isn=isn, dsack=dsack).run()
    assert done.timeouts <= len(lost) + len(lost_acks)
    assert done.retransmitted <= (done.timeouts + len(lost)) * done.full_cwnd


# -- channels ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, MAX_WEIGHT), min_size=2, max_size=MAX_CHANNELS))
def test_a_channel_of_weight_w_gets_a_share_of_2_to_the_minus_w(weights: list[int]) -> None:
    weights[0] = 0
    its = Connection(len(weights))
    its.wv[: len(weights)] = weights
    rounds = 64
    taken = Counter(its.choose_channel() for _ in range(sum(rounds >> weight for weight in weights)))
    for channel, weight in enumerate(weights):
        assert abs(taken[channel] - (rounds >> weight)) <= 1


@given(st.lists(st.tuples(st.integers(0, MAX_WEIGHT), st.booleans()), min_size=2, max_size=MAX_CHANNELS))
def test_only_active_channels_are_chosen_whatever_the_weights_are(channels: list[tuple[int, bool]]) -> None:
    its = Connection(len(channels))
    its.ab = sum(active << channel for channel, (_, active) in enumerate(channels))
    its.wv[: len(channels)] = [weight for weight, _ in channels]
    none = its.ab == 0
    taken = {its.choose_channel() for _ in range(200)}
    wanted = {channel for channel, (_, active) in enumerate(channels) if active or none}
    assert taken == wanted


# -- weights ----------------------------------------------------------------------------------------------------------


@given(
    channel_numbers,
    st.lists(
        st.tuples(st.integers(0, 0xFFFF), st.sampled_from([0xFFFF, 0xFFFF, 0x1111, 0x5554, 3])), min_size=1, max_size=60
    ),
)
def test_weights_stay_normalised_and_become_so_again_when_channels_die(
    channels: int, rounds: list[tuple[int, int]]
) -> None:
    its = Connection(channels)
    all_alive = True
    for marked, active in rounds:
        its.cb, earlier = marked & its.every_channel, its.wv[:channels]
        its.ab = active & its.every_channel or 1
        all_alive &= its.ab == its.every_channel
        its.on_new_rtt()
        now = its.wv[:channels]
        assert all(0 <= weight <= MAX_WEIGHT for weight in its.wv)
        if all_alive:
            assert min(now) == 0
            assert sum(abs(a - b) for a, b in zip(earlier, now, strict=True)) <= channels
        assert its.cb == 0
    for _ in range(MAX_WEIGHT):
        its.on_new_rtt()
    assert min(its.wv[channel] for channel in range(channels) if its.active(channel)) == 0


def test_one_channel_a_round_trip_changes_its_weight_and_all_marked_leaves_them_even() -> None:
    its = Connection(4)
    seen = []
    for _ in range(5):
        its.cb = 0b1111
        its.on_new_rtt()
        seen.append(its.wv[:4])
    assert seen[:3] == [[1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
    assert seen[3:] == [[3, 1, 0, 0], [3, 2, 0, 0]]


@settings(max_examples=15)
@given(delays, channel_numbers)
def test_a_channel_that_marks_gets_less(there: list[int], channels: int) -> None:
    transfer = Transfer(Network((there, there), marking={0}), count=600, channels=channels)
    taken: Counter[int] = Counter()
    transfer.trace.append(lambda: taken.update([transfer.sending.cc]))
    transfer.run()
    assert transfer.sending.wv[0] == MAX_WEIGHT
    assert all(not weight for weight in transfer.sending.wv[1:channels])


# -- windows ----------------------------------------------------------------------------------------------------------


def test_windows_are_left_alone_until_a_mark_and_then_follow_dctcp() -> None:
    its = Connection(scale=0)
    its.mss = 1000
    its.ws = 10_000
    its.enlarge_window(5)
    assert (its.ws, its.clamped(65535)) == (12_500, 65535)
    its.cb = 1
    its.on_new_rtt()
    assert (its.ws, its.alpha, its.clamped(65535), its.clamped(100)) == (6250, ONE, 6250, 100)
    its.enlarge_window(4)
    assert its.ws == 6250 + 4 * 1000 * 1000 // 6250
    its.on_new_rtt()
    assert its.alpha == ONE - ONE // 16


@given(st.lists(st.booleans(), max_size=300), st.integers(536, 9000), st.integers(0, 14))
def test_a_window_has_two_segments_at_least_and_is_never_zero(marks: list[bool], mss: int, scale: int) -> None:
    its = Connection(scale=scale)
    its.mss = mss
    for marked in marks:
        its.cb = marked
        its.on_new_rtt()
        assert 0 <= its.alpha <= ONE
        if not its.slow_start:
            assert its.ws >= 2 * mss
            assert 1 <= its.clamped(65535) <= 65535


# -- failures ---------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(channel_numbers, delays, st.data())
def test_a_dead_channel_is_inactive_after_three_rounds_at_most(
    channels: int, there: list[int], draw: st.DataObject
) -> None:
    dead = draw.draw(st.sets(st.integers(0, channels - 1), min_size=1, max_size=channels - 1))
    since = draw.draw(st.integers(0, 2000))
    network = Network((there, there), dead=dict.fromkeys(dead, (since, 10**9)))
    transfer = Transfer(network, count=600, channels=channels)
    rounds: Counter[int] = Counter()

    class Watched(Connection):
        """Counts a channel's rounds since data went out on it that is not known to have arrived."""

        def on_receive(self, its: Segment, mco: Mco) -> None:
            for channel in range(channels):
                if mco.rb >> channel & 1:
                    rounds[channel] = 0
            super().on_receive(its, mco)

        def choose_channel(self) -> int:
            if not self.ab:
                rounds.clear()  # all are active again
            return super().choose_channel()

        def update_freshness(self) -> None:
            rounds.update(channel for channel in range(channels) if self.fv[channel] < FRESH)
            super().update_freshness()
            for channel in range(channels):
                assert self.active(channel) == (rounds[channel] < FRESH)

    transfer.client.connections[CLIENT] = Watched(channels, scale=7)
    transfer.run(until=10**7)
    assert not any(transfer.sending.active(channel) for channel in dead if rounds[channel] >= FRESH)


@settings(max_examples=15)
@given(channel_numbers, st.integers(0, 3000), st.integers(1, 6000))
def test_when_all_channels_were_dead_and_are_back_the_transfer_ends(channels: int, since: int, lasting: int) -> None:
    dead = dict.fromkeys(range(channels), (since, since + lasting))
    Transfer(Network(dead=dead), count=600, channels=channels).run()


# -- connections ------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(sequence_numbers, st.booleans())
def test_a_connection_that_was_forgotten_begins_anew_in_the_middle(isn: int, at_sender: bool) -> None:
    transfer = Transfer(Network(), count=400, isn=isn)
    gone = []

    def forget() -> None:
        if len(transfer.received) >= 150 and not gone:
            host, key = (transfer.client, CLIENT) if at_sender else (transfer.server, SERVER)
            gone.append(host.connections.pop(key))

    transfer.trace.append(forget)
    transfer.run()
    assert gone
    assert transfer.timeouts <= 1


@given(st.integers(0, LAST), st.booleans())
def test_round_trips_are_seen_wherever_sequence_numbers_begin(isn: int, received_first: bool) -> None:
    host = Host()
    if received_first:
        host.receive(KEY, Segment(ack=isn, mco=Mco(0, 0, 0, 0, 0, 0)))
    for number in range(5):
        host.send(KEY, Segment(seq=plus(isn, number * 100), payload=100))
        its = host.connections[KEY]
        its.alpha = ONE
        host.receive(KEY, Segment(ack=plus(isn, (number + 1) * 100), mco=Mco(0, 0, 0, 0, 0, 0)))
        assert its.alpha < ONE
