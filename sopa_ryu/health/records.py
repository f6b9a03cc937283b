"""Reports as arrays: what the probes of each record have crossed, and which records are forged. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowrules.label import UNUSED
from sopa_ryu.channel.messages import RECORD_BYTES
from sopa_ryu.health.elements import Elements
from topologies.identity import FIRST_HOST

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RECORD = np.dtype(
    {
        "names": ["pod", "edge", "host", "up1", "up2", "probes", "out", "back", "lost", "smallest", "mean"],
        "formats": ["u1"] * 5 + ["<u2"] * 4 + ["<u4"] * 2,
        "offsets": [0, 1, 2, 3, 4, 8, 10, 12, 14, 16, 20],
        "itemsize": RECORD_BYTES,
    }
)


class Records(NamedTuple):
    """Valid records as columns.

    Attributes:
        src, dst: Hosts' numbers.
        links: Four rows: the links out of the source's rack, its pod, into the destination's pod and rack; `Elements.links` for
            none.
    """

    src: Ints
    dst: Ints
    links: Ints
    probes: Ints
    out: Ints
    back: Ints
    lost: Ints
    mean: Ints


def read(elements: Elements, present: Bools, answering: Bools, src: Ints, records: bytes) -> tuple[Records, Bools]:
    """Return the valid ones of these records, and which of all those are.

    A record is forged if its destination is no host that answers probes, or is in the rack of the reporting host, if its hops
    are no candidate path, or if it has lost more probes than there were.

    Args:
        present: Whether the fabric has the link of each number.
        answering: Whether each host answers probes, or did lately.
        src: The reporting host of each record.
    """
    tree, none = elements.tree, elements.links
    its = np.frombuffer(records, RECORD)
    columns = (its[name].astype(np.int64) for name in ("pod", "edge", "host", "up1", "up2"))
    q, f, number, j, i = columns
    rack, _ = np.divmod(src, tree.hosts_per_edge)
    p, e = np.divmod(rack, tree.edges)
    n = number - FIRST_HOST
    within = p == q
    right = (q < tree.pods) & (f < tree.edges) & (n >= 0) & (n < tree.hosts_per_edge) & (j < tree.aggregations)
    right &= np.where(within, (i == UNUSED) & (e != f), i < tree.cores_of_group)
    q, f, n, j, i = (np.where(right, column, 0) for column in (q, f, n, j, i))
    dst = (q * tree.edges + f) * tree.hosts_per_edge + n
    first = (p * tree.edges + e) * tree.aggregations + j
    last = (q * tree.edges + f) * tree.aggregations + j
    inner = within | ~right
    core = np.where(inner, 0, i)
    rise = elements.lower + (p * tree.aggregations + j) * tree.cores_of_group + core
    fall = elements.lower + (q * tree.aggregations + j) * tree.cores_of_group + core
    links = np.stack((first, np.where(inner, none, rise), np.where(inner, none, fall), last))
    counts = [its[name].astype(np.int64) for name in ("probes", "out", "back", "lost")]
    right &= answering[dst] & np.append(present, True)[links].all(axis=0)
    right &= counts[1] + counts[2] + counts[3] <= counts[0]
    mean = its["mean"].astype(np.int64)
    kept = Records(src, dst, links, counts[0], counts[1], counts[2], counts[3], mean)
    if not right.all():
        kept = Records(*(column[..., right] for column in kept))
    return kept, right
