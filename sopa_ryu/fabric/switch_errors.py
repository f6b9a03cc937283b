"""What may go wrong between a switch and this controller. Pure."""

from __future__ import annotations

ANOTHER_MASTER = "another controller, started later than this one, is its master; restart this one to take it back"


class SwitchError(Exception):
    """A switch refused a message, did not answer, or went away; the text says which."""


class RefusedError(SwitchError):
    """A switch answered with OpenFlow errors."""


class SilentError(SwitchError):
    """A switch did not answer in time."""


class LostError(SwitchError):
    """The connection was lost before the answer came."""


class AnotherMasterError(SwitchError):
    """Another controller is the switch's master."""
