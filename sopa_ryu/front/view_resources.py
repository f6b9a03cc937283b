"""What a relay answers by itself, from the view that it sends: paths, failures, and the fabric while no controller answers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from webob import Request, Response

from sopa_ryu.fabric.view import View
from sopa_ryu.rest.answers import answer
from sopa_ryu.rest.interface import paths_operation
from sopa_ryu.rest.operations import MAX_ITEMS, ROOT, Listing, Operation
from sopa_ryu.rest.reader import FabricControl
from sopa_ryu.rest.resources import Resources
from topologies import Clos, Failures, Level, Link
from topologies.way_out import away

UNKNOWN = "no controller answers the relay: this is what the last view says; what is connected is not known"


class ViewState(NamedTuple):
    """A view, as far as it is what `FabricState` is to `Resources.paths`."""

    tree: Clos
    epoch: int
    version: int
    failures: Failures


class _OfView(NamedTuple):
    state: ViewState


class ViewResources:
    """The answers of one view."""

    def __init__(self, view: View, carrier: str) -> None:
        self._view = view
        self._tree = view.failures.tree
        self._carrier = carrier
        state = ViewState(self._tree, view.epoch, view.version, view.failures)
        resources = Resources(cast("FabricControl", _OfView(state)))  # paths are computed from the state alone
        self._operations = {
            f"{ROOT}/paths": paths_operation(resources),
            f"{ROOT}/failures": Operation("GET", f"{ROOT}/failures", "failures", "", self._failures, "Failures", listed=True),
            f"{ROOT}/fabric": Operation("GET", f"{ROOT}/fabric", "fabric", "", self._fabric, "Fabric"),
        }

    def answer(self, request: Request, path: str) -> Response:
        """Return the answer to a GET of ``/paths``, ``/failures`` or ``/fabric``; `Problem` if there is none."""
        operation = self._operations[path]

        def make(values: Mapping[str, Any]) -> Any:
            its: Callable[..., Any] = operation.answer
            return its(**values)

        return answer(request, operation, {}, make, self._etag)

    def _etag(self, data: bytes) -> str:
        return f"{self._view.epoch}-{self._view.version}-{zlib.crc32(data):08x}"

    def _failed(self) -> list[dict[str, Any]]:
        failures = self._view.failures
        return [
            {"name": name, "kind": "link" if isinstance(element, Link) else "switch", "reason": failures[name]}
            for element, name in failures.elements.items()
        ]

    def _failures(self) -> Listing:
        items = [{**failed, "held_seconds": None} for failed in self._failed()]  # hold-downs are the leader's
        return Listing({"version": self._view.version}, "failures", len(items), items)

    def _fabric(self) -> dict[str, Any]:
        tree, failed = self._tree, self._failed()
        gateways = [
            {"name": tree.name(host), "address": str(tree.ip(host)), "away": away(self._view.failures, host)}
            for host in tree.gateways
        ]
        return {
            "k": tree.k,
            "pods": tree.pods,
            "edges": tree.edges,
            "aggregations": tree.aggregations,
            "cores": tree.cores,
            "hosts_per_edge": tree.hosts_per_edge,
            "hosts": tree.host_count,
            **tree.described6,
            "switches": {level.name.lower(): sum(1 for _ in tree.switches(level)) for level in Level},
            "connected": 0,
            "version": self._view.version,
            "epoch": self._view.epoch,
            "settled": True,
            "carrier": self._carrier,
            "failures": failed[:MAX_ITEMS],
            "failures_total": len(failed),
            "missing": [],
            "rejected": [],
            "no_channel": [],
            "management": {"fault": True, "detail": UNKNOWN, "channels_faults": 0, "pauses_faults": 0},
            "bfd": {"enabled": False, "detail": UNKNOWN},
            "setup": {"checked": 0, "detail": UNKNOWN, "problems": []},
            **({"gateways": gateways} if gateways else {}),
            "cluster": {"role": "relay", "term": self._view.epoch, "leader": None},
        }
