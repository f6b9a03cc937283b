"""Natural demands of elephants: their rates if only host interfaces were limited (Hedera, NSDI 2010, section 4.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topologies import Host

TOLERANCE = 1e-9


class _Flow:
    def __init__(self) -> None:
        self.demand = 0.0
        self.converged = False


def estimate(flows: Sequence[tuple[Host, Host]]) -> list[float]:
    """Return the natural demand of each flow as a share of the interface rate of hosts, from 0 to 1, in their order.

    Senders share their rate equally among the flows that no receiver limits. Overloaded receivers limit the larger of their flows
    equally. This is repeated until nothing changes (figure 3 of the paper: ESTIMATE-DEMANDS, EST-SRC and EST-DST). A pair of hosts
    may have several flows.

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
        for pending in sent.values():
            _share_at_sender(pending)
        for pending in received.values():
            _limit_at_receiver(pending)
    return [flow.demand for flow in every]


def _same(before: Sequence[float], flows: Sequence[_Flow]) -> bool:
    """Return True if the last round has changed nothing."""
    return len(before) == len(flows) and all(abs(old - flow.demand) <= TOLERANCE for old, flow in zip(before, flows, strict=True))


def _share_at_sender(flows: Iterable[_Flow]) -> None:
    """EST-SRC: share the rate that converged flows leave equally among the others."""
    flows = list(flows)
    others = [flow for flow in flows if not flow.converged]
    left = max(0.0, 1.0 - sum(flow.demand for flow in flows if flow.converged))
    for flow in others:
        flow.demand = left / len(others)


def _limit_at_receiver(flows: Iterable[_Flow]) -> None:
    """EST-DST: limit flows above an equal share to equal shares of the rate that the smaller flows leave."""
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
