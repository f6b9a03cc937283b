"""The seconds that losses and packets are remembered for."""

from __future__ import annotations

from sopa_ryu.agent.paths.avoided import WayTo
from sopa_ryu.agent.probing.loss_window import MIN_LOSSES, WINDOW_SECONDS, LossWindow

GOOD, BAD = (0, 0), (1, 0)


def retransmitting(packets_before: int, since: int) -> LossWindow:
    """Return a window after one path has carried many packets in second 0, and then lost 2% of 5,000 beside another one."""
    window = LossWindow()
    window.carried({BAD: packets_before}, 0.0)
    window.carried({GOOD: 5000, BAD: 5000}, since)
    for _ in range(100):
        window.sent_again(WayTo(2, 1, BAD), since)
    return window


def test_what_was_carried_long_ago_does_not_thin_out_losses() -> None:
    excess = retransmitting(10_000_000, WINDOW_SECONDS).worst(())
    assert excess is not None
    assert excess.share == 0.02
    assert excess.section.covers(WayTo(2, 1, BAD))
    assert not excess.section.covers(WayTo(2, 1, GOOD))
    assert retransmitting(10_000_000, WINDOW_SECONDS - 1).worst(()) is None


def test_losses_are_forgotten_after_as_many_seconds() -> None:
    window = LossWindow()
    for path in (GOOD, BAD):
        for _ in range(20 * MIN_LOSSES):
            window.probed(WayTo(2, 1, path), path is BAD, 0.0)
    window.advance(WINDOW_SECONDS - 0.1)
    assert len(window) == 2
    window.advance(WINDOW_SECONDS)
    assert len(window) == 0


def test_too_few_lost_probes_are_no_excess_whatever_is_sent_again() -> None:
    window = LossWindow()
    for number in range(1000):
        window.probed(WayTo(2, 1, GOOD), False, 0.0)
        if number < 10:
            window.probed(WayTo(2, 1, BAD), number < MIN_LOSSES - 1, 0.0)
    for _ in range(MIN_LOSSES):
        window.sent_again(WayTo(2, 1, BAD), 0.0)
    assert window.worst(()) is None
    window.probed(WayTo(2, 1, BAD), True, 0.0)
    assert window.worst(()) is not None


def test_a_path_is_left_only_if_it_loses_twice_as_much_as_the_others() -> None:
    window = LossWindow()
    window.carried({GOOD: 100_000, BAD: 100_000}, 0.0)
    for path, count in ((GOOD, 1000), (BAD, 1900)):
        for _ in range(count):
            window.sent_again(WayTo(2, 1, path), 0.0)
    assert window.worst(()) is None
    for _ in range(100):
        window.sent_again(WayTo(2, 1, BAD), 0.0)
    assert window.worst(()) is not None
