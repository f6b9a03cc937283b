"""What becomes of each ten seconds of reports: a row of the links' last hour.

The losses of a way are shared by what it crosses, each element by the share that it loses now: what the windows explain by a link
is that link's, and what nothing explains is spread.
"""

from __future__ import annotations

import numpy as np

from sopa_ryu.health.elements import Elements
from sopa_ryu.health.history import CELL, DELAY_UNIT, History
from sopa_ryu.health.window import Floats, Losses, Slot

ROW = np.dtype([("sent", "<u2"), ("up", "<f2"), ("down", "<f2"), ("delay", "<f2")])
assert ROW.itemsize == CELL.size
LEAST_SHARE = 1e-6
"""Of an element that loses nothing else: of what nothing explains all elements of a way have a part."""
MOST_SENT = np.iinfo(np.uint16).max
MOST_DELAY = float(np.finfo(np.float16).max)


class Recorder:
    """Writes what was measured.

    Parameters
    ----------
    elements : Elements
    history : History
    """

    def __init__(self, elements: Elements, history: History) -> None:
        self._elements, self._history = elements, history

    def write(self, its: Slot, shares: Floats, delay_us: Floats) -> None:
        """Write a slot, again if it is not over yet.

        Parameters
        ----------
        its : Slot
        shares : array
            The share that each element loses.
        delay_us : array
            The delay of each link; not a number where it is not known.
        """
        size = self._elements.links
        sent = its.crossings[:size]
        lost = attributed(its.lost, shares)[: 2 * size] / np.maximum(np.concatenate((sent, sent)), 1.0)
        row = np.zeros(size, ROW)
        row["sent"] = np.minimum(sent, MOST_SENT)
        row["up"], row["down"] = np.minimum(lost[:size], 1.0), np.minimum(lost[size:], 1.0)
        row["delay"] = np.minimum(delay_us / DELAY_UNIT, MOST_DELAY)
        before = self._history.row(its.number)
        if before is not None:  # what windows forget of a link that fails stays here
            known = np.frombuffer(before, ROW)
            row = np.where(known["sent"] > row["sent"], known, row)
        self._history.begin(its.number)[:] = row.tobytes()
        self._history.end(its.number)


def attributed(lost: Losses, shares: Floats) -> Floats:
    """Return how many of the losses are each element's."""
    of = np.append(np.maximum(shares, LEAST_SHARE), 0.0)[lost.ways]
    parts = of * (lost.counts / np.maximum(of.sum(axis=1), 1e-12))[:, None]
    found: Floats = np.bincount(lost.ways.ravel(), parts.ravel(), len(shares) + 1).astype(float)
    return found
