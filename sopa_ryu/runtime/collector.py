"""Short pauses for garbage collection in a process on Ryu's hub."""

from __future__ import annotations

from ryu.lib import hub

from sopa_ryu.runtime.garbage import FREEZE_SECONDS, Freezer


def keep_short() -> None:
    """Run until killed: freeze live objects every second, collect all every ten minutes."""
    freezer = Freezer()
    while True:
        hub.sleep(FREEZE_SECONDS)
        freezer.step()
