"""What is known of a drain: since when, by whom, why, and until when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sopa_ryu.runtime.foreign_text import printable

MAX_REASON = 200


class Drain(NamedTuple):
    """A drained link or switch. Times are in seconds since 1970; what is not known is None, or empty."""

    since: float | None = None
    actor: str = ""
    reason: str = ""
    until: float | None = None
    """When it ends by itself; None: when it is restored."""

    def report(self) -> dict[str, Any]:
        """Return it as REST, file and engine have it."""
        return self._asdict()

    @classmethod
    def of(cls, value: object) -> Drain:
        """Return what `report` has made; what is not of its form, or missing, is not known."""
        if not isinstance(value, Mapping):
            return cls()
        since, until = (float(at) if isinstance(at := value.get(name), int | float) else None for name in ("since", "until"))
        actor, reason = (
            printable(text, MAX_REASON) if isinstance(text := value.get(name), str) else "" for name in ("actor", "reason")
        )
        return cls(since, actor, reason, until)


def over(drains: Mapping[str, Drain], now: float) -> list[str]:
    """Return the names of those whose time is over.

    >>> over({"c0_0": Drain(until=9.0), "c0_1": Drain(until=9.1), "c1_0": Drain()}, 9.0)
    ['c0_0']
    """
    return [name for name, drain in drains.items() if drain.until is not None and drain.until <= now]


def with_drain(drains: Mapping[str, Drain], name: str, drain: Drain) -> dict[str, Drain]:
    """Return the drains and one more; that of an element which is drained already gets another reason and end, if one is given.

    >>> with_drain({"c0_0": Drain(1.0, "ann", "fan")}, "c0_0", Drain(2.0, "bob", "", 9.0))
    {'c0_0': Drain(since=1.0, actor='bob', reason='fan', until=9.0)}
    >>> with_drain({"c0_0": Drain(1.0, "ann", "fan")}, "c0_0", Drain(2.0, "bob"))
    {'c0_0': Drain(since=1.0, actor='ann', reason='fan', until=None)}
    """
    was = drains.get(name)
    if was is not None:
        changed = Drain(was.since, drain.actor, drain.reason or was.reason, drain.until or was.until)
        drain = changed if drain.reason or drain.until else was
    return {**drains, name: drain}
