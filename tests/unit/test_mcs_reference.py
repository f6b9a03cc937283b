"""MCS as the paper describes it: two hosts of the reference over a simulated network, and properties of the reference.

What it does with single packets, tests/bpf shows, together with the eBPF programs.
"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bpf.mcs_reference import FRESH, MAX_CHANNELS, MAX_WEIGHT, Connection, Key, before
from tests.helpers.mcs_network import CLIENT, MSS, SERVER, Network, Transfer

LAST = 0xFFFFFFFF
KEY = Key(1, 2, 40000, 80)

delays = st.lists(st.integers(1, 60), min_size=MAX_CHANNELS, max_size=MAX_CHANNELS)
sequence_numbers = st.one_of(st.integers(0, LAST), st.integers(LAST - 300 * MSS, LAST))
losses = st.sets(st.integers(0, 300), max_size=15)
channel_numbers = st.integers(2, MAX_CHANNELS)


@settings(max_examples=25)
@given(delays, delays, channel_numbers, sequence_numbers, st.sets(st.integers(0, 15)), st.integers(3, 80))
def test_without_a_loss_nothing_reaches_the_sender(
    there: list[int], back: list[int], channels: int, isn: int, marking: set[int], cwnd: int
) -> None:
    done = Transfer(Network((there, back), marking=marking), channels=channels, isn=isn, cwnd=cwnd).run()
    assert (done.seen_blocks, done.retransmitted, done.timeouts) == (0, 0, 0)
    assert done.duplicates <= 1  # the first of all: the host does not know yet what has been acknowledged
    assert not done.receiving.loss


@settings(max_examples=25)
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


@settings(max_examples=25)
@given(delays, delays, channel_numbers, sequence_numbers, losses, losses, st.booleans())
def test_whatever_is_lost_nothing_is_retransmitted_endlessly(
    there: list[int], back: list[int], channels: int, isn: int, lost: set[int], lost_acks: set[int], dsack: bool
) -> None:
    network = Network((there, back), (lost, lost_acks))
    done = Transfer(network, channels=channels, isn=isn, dsack=dsack).run()
    assert done.timeouts <= len(lost) + len(lost_acks)
    assert done.retransmitted <= (done.timeouts + len(lost)) * done.full_cwnd


@given(st.lists(st.integers(0, MAX_WEIGHT), min_size=2, max_size=MAX_CHANNELS))
def test_a_channel_of_weight_w_gets_a_share_of_2_to_the_minus_w(weights: list[int]) -> None:
    weights[0] = 0
    its = Connection(len(weights))
    its.wv[: len(weights)] = weights
    rounds = 64
    taken = Counter(its.choose_channel() for _ in range(sum(rounds >> weight for weight in weights)))
    for channel, weight in enumerate(weights):
        assert abs(taken[channel] - (rounds >> weight)) <= 1


@settings(max_examples=25)
@given(delays, channel_numbers)
def test_a_channel_that_marks_gets_less(there: list[int], channels: int) -> None:
    transfer = Transfer(Network((there, there), marking={0}), count=600, channels=channels)
    taken: Counter[int] = Counter()
    transfer.trace.append(lambda: taken.update([transfer.sending.cc]))
    transfer.run()
    assert transfer.sending.wv[0] == MAX_WEIGHT
    assert all(not weight for weight in transfer.sending.wv[1:channels])


def test_a_transfer_goes_on_without_the_dead_channel() -> None:
    done = Transfer(Network(dead={3: (300, 10**9)}), count=2000).run()
    assert not done.sending.active(3)
    assert done.timeouts <= FRESH + 1


@settings(max_examples=25)
@given(channel_numbers, st.integers(0, 3000), st.integers(1, 6000))
def test_when_all_channels_were_dead_and_are_back_the_transfer_ends(channels: int, since: int, lasting: int) -> None:
    dead = dict.fromkeys(range(channels), (since, since + lasting))
    Transfer(Network(dead=dead), count=600, channels=channels).run()


@settings(max_examples=25)
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
