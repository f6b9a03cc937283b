"""What REST and the command line say about paths: plain dictionaries, made from the pure layers."""

from __future__ import annotations

from typing import Any

from flowrules import word
from sopa_ryu.state import FabricState
from topologies import Host


def paths(state: FabricState, src: Host, dst: Host) -> dict[str, Any]:
    """The body of ``GET /sopa/v1/paths``: the candidate paths between two hosts, and those that failures exclude.

    Returns
    -------
    dict
        ``candidates`` in round-robin order, each with its uplink choices, the option word in hexadecimal and the names of the
        switches on it; ``total`` counts candidates and excluded paths together.
    """
    usable, excluded = state.failures.split(src, dst)
    return {
        "src": str(state.tree.ip(src)),
        "dst": str(state.tree.ip(dst)),
        "kind": state.tree.kind(src, dst),
        "version": state.version,
        "total": len(usable) + len(excluded),
        "candidates": [
            {"up": list(path.up), "option": word.option(path.up), "hops": list(path.hops)} for path in usable
        ],
        "excluded": [{"up": list(path.up), "reason": path.reason} for path in excluded],
    }
