"""What tells a member from others, and whether it belongs to their cluster. Pure."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from sopa_ryu.cluster.records import Charter
from sopa_ryu.fabric.state_directory import differences

DIFFERENCES_SHOWN = 5


class Identity(NamedTuple):
    """A member as the others see it.

    Attributes:
        url: Of its REST API.
        program: The version of the program.
        secrets: A digest of its token files.
    """

    name: str
    url: str
    program: str
    secrets: str


def difference(own: Charter, clusters: Charter) -> str:
    """Return what a member does not share with its cluster, in words; nothing if it agrees.

    >>> difference(Charter(1, {"pods": 4}, "mac"), Charter(1, {"pods": 4}, "option"))
    "the cluster's carrier is option, and this controller's is mac"
    """
    if clusters.format != own.format:
        return f"the cluster's keys have format {clusters.format}, and this program writes format {own.format}"
    if clusters.carrier != own.carrier:
        return f"the cluster's carrier is {clusters.carrier}, and this controller's is {own.carrier}"
    found = list(islice(differences(clusters.fabric, own.fabric), DIFFERENCES_SHOWN))
    return f"its fabric is another than the cluster's: {'; '.join(found)}" if found else ""
