"""How far a switch has come from its connection to its rules. Pure.

A connected switch goes down this list; after a refusal or a silence it backs off and begins again:

1. `Phase.CLAIMING`: this controller asks which generation id the switch knows, and then to be its master.
2. `Phase.READING`: its flow entries and groups are read.
3. `Phase.WAITING`: it has rules of an earlier controller, which stay until it is known what has failed.
4. `Phase.INSTALLING`: what differs from its rules is changed, and a barrier confirms it.
5. `Phase.IN_FORCE`: it has its rules; `Phase.UPDATING` leads from one version's rules to the next one's.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """How far a switch has come; the module's docstring has the order."""

    CLAIMING = auto()
    READING = auto()
    WAITING = auto()
    INSTALLING = auto()
    IN_FORCE = auto()
    UPDATING = auto()
    BACKING_OFF = auto()
    """It refused, or did not answer; it is claimed again when the retry is due."""
    TAKEN = auto()
    """Another controller is its master."""
    STANDING_BY = auto()
    """This controller is its slave: a standby of a cluster."""
    CLOSED = auto()


ADMITTING = frozenset({Phase.CLAIMING, Phase.READING, Phase.WAITING, Phase.INSTALLING, Phase.BACKING_OFF})
"""Phases of a switch that is to get its rules, but has not confirmed them."""
