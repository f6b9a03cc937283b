"""The delay of each link from the delays of paths: least squares. Pure."""

from __future__ import annotations

import numpy as np

from sopa_ryu.health.elements import Elements
from sopa_ryu.health.records import Records
from sopa_ryu.health.window import Floats

STEPS = 40
SMOOTHING = 0.3
"""The weight of the newest estimate."""
RIDGE = 0.002
"""Of the weight of an element's probes: what paths do not tell apart is shared evenly."""


class LinkDelays:
    """Delays of links, there and back, in microseconds.

    A path's delay is the sum of those of its links and of its two hosts; what probes do not tell apart, as a part that is the same
    for all, is shared by the elements concerned in equal parts. Solved by conjugate gradients on the normal equations, from the
    last solution, with a small pull towards it.
    """

    def __init__(self, elements: Elements) -> None:
        self._elements = elements
        self._size = elements.links + elements.hosts
        self._last: Floats | None = None
        self.microseconds: Floats = np.zeros(elements.links)
        self.known = np.zeros(elements.links, bool)

    def take(self, its: Records) -> None:
        """Take in the records of some seconds."""
        came = (its.mean > 0) & (its.probes > its.out + its.back + its.lost)
        if not came.any():
            return
        size, none = self._size, self._elements.links
        links = its.links[:, came]
        hosts = self._elements.links + np.stack((its.src[came], its.dst[came]))
        ways = np.concatenate((np.where(links == none, size, links), hosts))
        weight = (its.probes - its.out - its.back - its.lost)[came].astype(float)
        target = its.mean[came].astype(float)
        share = np.append(np.bincount(ways.ravel(), np.tile(weight, 6), size + 1)[:size], 0.0)
        start: Floats | None = self._last
        if start is None:  # all alike
            even = target / (ways < size).sum(axis=0)
            summed: Floats = np.bincount(ways.ravel(), np.tile(weight * even, 6), size + 1).astype(float)
            summed[size] = 0.0
            start = summed / np.maximum(share, 1.0)
        change = self._solved(ways, weight, target - start[ways].sum(axis=0), RIDGE * share)
        self._last = np.maximum(start + change, 0.0)
        seen = share[:none] > 0
        fresh = self._last[:none]
        smooth = np.where(self.known, self.microseconds + SMOOTHING * (fresh - self.microseconds), fresh)
        self.microseconds = np.where(seen, smooth, self.microseconds)
        self.known |= seen

    def _solved(self, ways: np.ndarray, weight: Floats, target: Floats, ridge: Floats) -> Floats:
        size = self._size

        def back(rows: Floats) -> Floats:
            found: Floats = np.bincount(ways.ravel(), np.tile(rows, 6), size + 1).astype(float)
            found[size] = 0.0
            return found

        change = np.zeros(size + 1)
        residual = back(weight * target)
        scale = 1.0 / np.maximum(back(weight) + ridge, 1e-9)
        direction = scale * residual
        before = float(residual @ direction)
        for _ in range(STEPS):
            image = back(weight * direction[ways].sum(axis=0)) + ridge * direction
            bend = float(direction @ image)
            if bend <= 1e-12 or before <= 1e-9:
                break
            change += before / bend * direction
            residual -= before / bend * image
            turned = scale * residual
            now = float(residual @ turned)
            direction = turned + now / before * direction
            before = now
        return change
