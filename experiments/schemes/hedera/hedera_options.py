"""Hedera's options: oslo.config's group `hedera`, as in --hedera-interval, or [hedera] in a --config-file.

Ryu reads the command line before it loads an application. ``--user-flags FILE`` has it load this file first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oslo_config import cfg

from sopa_ryu.options import register_group

GROUP = "hedera"


class Algorithm(StrEnum):
    """How elephants are given their paths."""

    GLOBAL_FIRST_FIT = "global-first-fit"
    SIMULATED_ANNEALING = "simulated-annealing"


@dataclass(frozen=True)
class Settings:
    """The options of group `hedera` with their defaults: the paper's (sections 3 and 6)."""

    interval: float = 5.0
    threshold: float = 0.1
    placement: Algorithm = Algorithm.GLOBAL_FIRST_FIT
    seed: int = 1


_GROUP = cfg.OptGroup(GROUP, title="Hedera options")
_OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=Settings.interval,
        min=0.1,
        metavar="SECONDS",
        help=f"how often the edge switches are asked for their flows' counters (default {Settings.interval:g})",
    ),
    cfg.FloatOpt(
        "threshold",
        default=Settings.threshold,
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help=f"a flow above this share of its host's link is an elephant (default {Settings.threshold:g})",
    ),
    cfg.StrOpt(
        "placement",
        default=str(Settings.placement),
        choices=[str(algorithm) for algorithm in Algorithm],
        metavar="ALGORITHM",
        help=f"how elephants are given their paths: {' or '.join(Algorithm)} (default {Settings.placement})",
    ),
    cfg.IntOpt(
        "seed",
        default=Settings.seed,
        metavar="SEED",
        help=f"of the random steps of simulated annealing (default {Settings.seed})",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the group known to `conf`."""
    register_group(conf, _GROUP, _OPTIONS)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """The options as they were given."""
    register(conf)
    group = conf[GROUP]
    return Settings(group.interval, group.threshold, Algorithm(group.placement), group.seed)


if not __package__:  # loaded by its path, as --user-flags does
    from ryu.cfg import CONF

    register(CONF)
