"""Options of Hedera: the group `hedera` of oslo.config, as in --hedera-interval or [hedera] of a --config-file.

Ryu parses the command line before it loads an application. ``--user-flags FILE`` loads this file earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oslo_config import cfg

from sopa_ryu.options import opts, register_group, values
from sopa_ryu.runtime.option_fields import option

GROUP = "hedera"


class Algorithm(StrEnum):
    """Placement algorithms."""

    GLOBAL_FIRST_FIT = "global-first-fit"
    SIMULATED_ANNEALING = "simulated-annealing"


@dataclass(frozen=True)
class HederaSettings:
    """The options; their defaults are those of the paper (sections 3 and 6)."""

    # fmt: off
    interval: float = option(5.0, "polling interval of the flow counters of edge switches (default {default:g})", min=0.1,
        metavar="SECONDS")
    threshold: float = option(0.1, "share of a host link above which a flow is an elephant (default {default:g})", min=0.0, max=1.0,
        metavar="SHARE")
    placement: Algorithm = option(Algorithm.GLOBAL_FIRST_FIT, f"placement of elephants: {' or '.join(Algorithm)} (default "
        "{default})", choices=[str(algorithm) for algorithm in Algorithm], metavar="ALGORITHM")
    seed: int = option(1, "seed of simulated annealing (default {default})", metavar="SEED")
    # fmt: on


_GROUP = cfg.OptGroup(GROUP, title="Hedera options")


def register(conf: cfg.ConfigOpts) -> None:
    """Register the group with `conf`."""
    register_group(conf, _GROUP, opts(HederaSettings))


def settings(conf: cfg.ConfigOpts) -> HederaSettings:
    """Return the values of the options."""
    register(conf)
    return HederaSettings(**values(HederaSettings, conf[GROUP]))


if not __package__:  # loaded as a file by --user-flags
    from sopa_ryu.runtime import library

    register(library.cfg.CONF)
