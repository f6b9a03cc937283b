"""Every figure, example and number of the SOPA paper's sections 3 and 4, and the PLTS paper's experiment, by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from experiments.paper import beyond, few_flows, whole_fabric
from experiments.paper.figure import Figure

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.name: figure
        for figure in (
            few_flows.oversubscription(),
            few_flows.paths(),
            few_flows.four_flows(),
            few_flows.failed_link(),
            whole_fabric.ftp(),
            whole_fabric.short_flow(),
            whole_fabric.permutations(),
            whole_fabric.thresholds(),
            whole_fabric.production(),
            whole_fabric.failed_switch(),
            beyond.sizes(),
            beyond.starts(),
            beyond.hedera_period(),
            beyond.hashing(),
            beyond.first_path(),
        )
    }
)
"""By name, those that take longest last."""
