"""How often links shall be crossed, and how often lanes cross them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowrules.label import UNUSED
from sopa_ryu.health.elements import Elements
from topologies import Failures, Switch

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CROSSINGS = 100.0
"""How often each link is crossed in each direction, a second."""
SHARE = 0.01
"""The most that probes take of a link's rate."""
RATE = 2.0
"""Probes of a stream, a second."""


class Demand(NamedTuple):
    """How many lanes shall cross each link, and may, by the links' numbers."""

    wanted: Ints
    most: Ints


def demand(elements: Elements, failures: Failures, bits: Mapping[int, float], probe_bytes: int) -> Demand:
    """Return how many lanes are to cross each link: none where it is absent or has failed.

    Args:
        bits: The bits per second of links, by number, as far as they are known: others bear what is wanted.
        probe_bytes: Of a probe's frame.
    """
    full = round(CROSSINGS / RATE)
    wanted = np.zeros(elements.links, np.int64)
    most = np.zeros(elements.links, np.int64)
    for number, link in elements.present:
        assert isinstance(link.lower, Switch)
        if failures and failures.hit((link, link.lower, link.upper)):
            continue
        bears = math.floor(SHARE * bits[number] / (8 * probe_bytes) / RATE) if number in bits else 4 * full
        wanted[number], most[number] = min(full, bears), min(4 * full, bears)
    return Demand(wanted, most)


def crossed(elements: Elements, made: Ints) -> Ints:
    """Return the numbers of the links that each lane crosses, four columns; the number of links for none."""
    tree, none = elements.tree, elements.links
    p, e, q, f, j, i, _ = made
    first = (p * tree.edges + e) * tree.aggregations + j
    last = (q * tree.edges + f) * tree.aggregations + j
    within = i == UNUSED
    rise = elements.lower + (p * tree.aggregations + j) * tree.cores_of_group + i
    fall = elements.lower + (q * tree.aggregations + j) * tree.cores_of_group + i
    return np.stack((first, np.where(within, none, rise), np.where(within, none, fall), last))


def counted(elements: Elements, made: Ints) -> Ints:
    """Return how many lanes cross each link."""
    links: Ints = np.bincount(crossed(elements, made).ravel(), minlength=elements.links + 1)[: elements.links]
    return links
