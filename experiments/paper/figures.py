"""All figures by name: of sections 3 and 4 of the SOPA paper, of the PLTS, the MCS and the CFR paper. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from experiments.paper import congestion_free, few_flows, further_figures, multi_channel, whole_fabric
from experiments.paper.figure import Figure

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.name: figure
        for figure in (
            few_flows.oversubscription(),
            few_flows.paths(),
            few_flows.four_flows(),
            few_flows.failed_link(),
            multi_channel.channels(),
            multi_channel.schemes(),
            multi_channel.asymmetric(),
            multi_channel.bursts(),
            multi_channel.fairness(),
            multi_channel.failure(),
            multi_channel.fat_tree(),
            *congestion_free.figures(),
            whole_fabric.ftp(),
            whole_fabric.short_flow(),
            whole_fabric.permutations(),
            whole_fabric.thresholds(),
            whole_fabric.production(),
            whole_fabric.failed_switch(),
            further_figures.sizes(),
            further_figures.starts(),
            further_figures.hedera_period(),
            further_figures.hashing(),
            further_figures.first_path(),
        )
    }
)
"""All figures by name; those with the longest runs are last."""
