"""Fabric files: a Clos fabric described in YAML (docs/fabrics.md)."""

from __future__ import annotations

from pathlib import Path

from topologies.identity import TopologyError
from topologies.structure import Clos


def load(path: Path) -> Clos:
    """Read a fabric file.

    Raises
    ------
    TopologyError
        If it cannot be read, is no YAML, or describes no fabric.
    """
    import yaml  # not everywhere where the package is: Mininet's own Python may lack it

    try:
        return Clos.from_document(yaml.safe_load(path.read_text()))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise TopologyError(f"{path}: {error}") from error
