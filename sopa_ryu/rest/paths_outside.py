"""The answer of ``GET /paths`` for a destination outside the fabric: the candidate paths to the gateways."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from topologies import Failures, Host
from topologies.way_out import away, gateways_from


def paths_outside(
    failures: Failures, source: Host, destination: IPv4Address, paths_to: Callable[[Host], dict[str, Any]]
) -> dict[str, Any]:
    """Return the candidate paths from a host to an address outside.

    Args:
        source: No gateway itself.
        paths_to: Returns the answer for a gateway as the destination.

    Returns:
        As for a host, with the name of the gateway in each path. Paths to gateways that are away are excluded for that.
    """
    tree = failures.tree
    in_use = gateways_from(failures, tree.edge_of(source))
    candidates: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    body: dict[str, Any] = {}
    for gateway in tree.gateways:
        body = paths_to(gateway)
        name, why = tree.name(gateway), away(failures, gateway) or "no path to it"
        if gateway in in_use:
            candidates += ({**path, "gateway": name} for path in body["candidates"])
        else:
            excluded += ({"up": path["up"], "reason": why, "gateway": name} for path in body["candidates"])
        excluded += ({**path, "gateway": name} for path in body["excluded"])
    weighed = sum(path.get("weight", 0) for path in candidates)
    for path in candidates:
        if "weight" in path:  # gateways have equal shares of all flows
            path["weight"] = round(path["weight"] / weighed, 9)
    return {
        **body,
        "dst": str(destination),
        "kind": "outside",
        "total": len(candidates) + len(excluded),
        "candidates": candidates,
        "excluded": excluded,
    }


def packets_of(
    failures: Failures, source: Host, key: FlowKey, seed: int, packets: int, candidates: list[dict[str, Any]]
) -> list[int]:
    """Return for each packet of a flow that an agent labels round-robin the index of its path; none if it has no gateway."""
    tree = failures.tree
    table = path_table(tree, source, failures, seed, Policy.ROUND_ROBIN)
    way = table.way_out(key)
    if way is None:
        return []
    gateway = tree.name(tree.host_by_mac(way.mac.hex(":")))
    index = {tuple(path["up"]): at for at, path in enumerate(candidates) if path["gateway"] == gateway}
    labels = (table.choose(key, n) for n in range(packets))
    return [index[tuple(hop for hop in label if hop != 0xFF)] for label in labels if label is not None]
