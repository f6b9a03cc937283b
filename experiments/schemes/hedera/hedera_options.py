"""Options of Hedera: the group `hedera` of oslo.config, as in --hedera-interval or [hedera] of a --config-file.

Ryu parses the command line before it loads an application. ``--user-flags FILE`` loads this file earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oslo_config import cfg

from sopa_ryu.options import register_group

GROUP = "hedera"


class Algorithm(StrEnum):
    """Placement algorithms."""

    GLOBAL_FIRST_FIT = "global-first-fit"
    SIMULATED_ANNEALING = "simulated-annealing"


@dataclass(frozen=True)
class Settings:
    """The options with their defaults, which are those of the paper (sections 3 and 6)."""

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
        help=f"polling interval of the flow counters of edge switches (default {Settings.interval:g})",
    ),
    cfg.FloatOpt(
        "threshold",
        default=Settings.threshold,
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help=f"share of a host link above which a flow is an elephant (default {Settings.threshold:g})",
    ),
    cfg.StrOpt(
        "placement",
        default=str(Settings.placement),
        choices=[str(algorithm) for algorithm in Algorithm],
        metavar="ALGORITHM",
        help=f"placement of elephants: {' or '.join(Algorithm)} (default {Settings.placement})",
    ),
    cfg.IntOpt(
        "seed",
        default=Settings.seed,
        metavar="SEED",
        help=f"seed of simulated annealing (default {Settings.seed})",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the group with `conf`."""
    register_group(conf, _GROUP, _OPTIONS)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the values of the options."""
    register(conf)
    group = conf[GROUP]
    return Settings(group.interval, group.threshold, Algorithm(group.placement), group.seed)


if not __package__:  # loaded as a file by --user-flags
    from ryu.cfg import CONF

    register(CONF)
