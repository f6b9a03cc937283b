"""The fat-tree: its structure, its graph, its failures, and the Mininet fabric built from it."""

from topologies.failures import Failures
from topologies.structure import FatTree, Host, Level, Link, Path, Switch, TopologyError

__all__ = ["Failures", "FatTree", "Host", "Level", "Link", "Path", "Switch", "TopologyError"]
