"""Clos fabrics: structure, identities, candidate paths and failures. Pure, except for `topologies.lab` and `topologies.ovsdb`."""

from topologies.aliases import Aliases
from topologies.failures import Failures, Reason
from topologies.structure import Clos, FatTree, Host, Level, Link, Path, Switch, TopologyError, fabric_of

__all__ = [
    "Aliases",
    "Clos",
    "Failures",
    "FatTree",
    "Host",
    "Level",
    "Link",
    "Path",
    "Reason",
    "Switch",
    "TopologyError",
    "fabric_of",
]
