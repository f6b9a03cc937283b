"""One run of an experiment, as both backends execute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.records import FlowRecord
from experiments.schemes import Scheme
from experiments.workloads import Plan, Scale
from topologies import Clos


@dataclass(frozen=True)
class Run:
    """A plan, and everything else that affects its results.

    The seed is that of ports, random path selection and first paths; queues have a capacity in full frames; ``options`` are those
    of the simulator that differ from their defaults, by name (`ns3.OPTIONS`).
    """

    tree: Clos
    plan: Plan
    workload: str
    scheme: Scheme
    seed: int
    scale: Scale
    queue_packets: int = 100
    options: Mapping[str, int | str] = field(default_factory=dict)

    def collective(self, flows: Sequence[FlowRecord]) -> dict[str, Any]:
        """Return `RunRecord.collective`, from the records of the transfers that have started."""
        if not self.plan.collective:
            return {}
        ended = {flow.flow: flow.start + flow.seconds for flow in flows if flow.completed}
        jobs: dict[int, float | None] = {}
        for number, one in enumerate(self.plan.transfers):
            latest, end = jobs.setdefault(one.job, 0.0), ended.get(number)
            jobs[one.job] = None if latest is None or end is None else round(max(latest, end), 9)
        times = [time for time in jobs.values() if time is not None]
        return {
            "transfers": len(self.plan.transfers),
            "completed": len(ended),
            "seconds": max(times) if len(times) == len(jobs) else None,
            **({"jobs": [*jobs.values()]} if len(jobs) > 1 else {}),
        }

    def flow_record(self, backend: str, number: int, **measured: Any) -> FlowRecord:
        """Return the record of a transfer of the plan. ``measured`` are the fields that the backend measures."""
        transfer = self.plan.transfers[number]
        return FlowRecord(
            workload=self.workload,
            backend=backend,
            scheme=self.scheme.name,
            k=self.tree.k,
            seed=self.seed,
            rate_mbit=self.scale.rate_mbit,
            flow=number,
            kind=transfer.kind,
            src=self.tree.name(transfer.src),
            dst=self.tree.name(transfer.dst),
            size=transfer.bytes,
            **measured,
        )
