"""What elephants would send if only their hosts' interfaces held them back (Hedera, NSDI 2010, section 4.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topologies import Host

TOLERANCE = 1e-9


class _Flow:
    def __init__(self) -> None:
        self.demand = 0.0
        self.converged = False


def estimate(flows: Sequence[tuple[Host, Host]]) -> list[float]:
    """Each flow's natural demand as a share of the hosts' interface rate, from 0 to 1.

    Senders share what they have evenly among the flows that no receiver limits; receivers that are offered too much limit the
    larger of their flows evenly; until nothing changes (the paper's figure 3: ESTIMATE-DEMANDS, EST-SRC and EST-DST).

    Parameters
    ----------
    flows : sequence of (Host, Host)
        Sender and receiver of each; a pair may have several.

    Returns
    -------
    list of float
        In the order of ``flows``.

    Examples
    --------
    >>> a, b, c = Host(0, 0, 2), Host(0, 0, 3), Host(1, 0, 2)
    >>> estimate([(a, c), (b, c), (b, a)])
    [0.5, 0.5, 0.5]
    """
    every = [_Flow() for _ in flows]
    sent: dict[Host, list[_Flow]] = {}
    received: dict[Host, list[_Flow]] = {}
    for (src, dst), flow in zip(flows, every, strict=True):
        sent.setdefault(src, []).append(flow)
        received.setdefault(dst, []).append(flow)
    before: list[float] = []
    while not _same(before, every):
        before = [flow.demand for flow in every]
        for its in sent.values():
            _share_at_sender(its)
        for its in received.values():
            _limit_at_receiver(its)
    return [flow.demand for flow in every]


def _same(before: Sequence[float], flows: Sequence[_Flow]) -> bool:
    """Whether a round has changed nothing; not so before the first."""
    return len(before) == len(flows) and all(
        abs(old - flow.demand) <= TOLERANCE for old, flow in zip(before, flows, strict=True)
    )


def _share_at_sender(flows: Iterable[_Flow]) -> None:
    """EST-SRC: what the converged flows leave is for the others, evenly."""
    flows = list(flows)
    others = [flow for flow in flows if not flow.converged]
    left = max(0.0, 1.0 - sum(flow.demand for flow in flows if flow.converged))
    for flow in others:
        flow.demand = left / len(others)


def _limit_at_receiver(flows: Iterable[_Flow]) -> None:
    """EST-DST: if they are too many, those that send more than an equal share get an equal share of what the others leave."""
    limited = list(flows)
    if sum(flow.demand for flow in limited) <= 1.0 + TOLERANCE:
        return
    left, share = 1.0, 1.0 / len(limited)
    while small := [flow for flow in limited if flow.demand < share - TOLERANCE]:
        left -= sum(flow.demand for flow in small)
        limited = [flow for flow in limited if flow.demand >= share - TOLERANCE]
        share = left / len(limited)
    for flow in limited:
        flow.demand = share
        flow.converged = True
