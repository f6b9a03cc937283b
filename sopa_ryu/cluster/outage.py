"""What does not work with the engine now, and what of that the log has to say: each outage once. Pure.

Renewals, watches and writes fail one by one, and not all of them at once: an engine whose disks are slow, or whose database is
full, goes on answering what it need not write. So each of them is followed by itself, and the engine answers again when all do.
"""

from __future__ import annotations

from sopa_ryu.cluster.troubles import EngineError

SETTLED_SECONDS = 2.0
"""An outage has ended when nothing has failed for so long."""
REMIND_SECONDS = 60.0
"""What goes on being wrong is said again after so long."""


class Outage:
    """What of a client's work with the engine fails.

    Attributes:
        problem: What is wrong now; None if all works.
    """

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}
        self._said: dict[str, float] = {}
        self._failed_at = 0.0

    @property
    def problem(self) -> str | None:
        """What failed first of what fails now; None if all works."""
        return next(iter(self._failing.values()), None)

    def failed(self, work: str, error: EngineError, now: float) -> bool:
        """Note that some work has failed; return whether it has to be said.

        It has to be if its cause was not said in this outage, or not for `REMIND_SECONDS`: which nodes have not answered, and in
        which order, changes from one attempt to the next.

        >>> from sopa_ryu.cluster.troubles import Kind
        >>> late = EngineError("engine: unreachable: n1: it does not answer in time", Kind.UNREACHABLE, cause="late")
        >>> outage = Outage()
        >>> [outage.failed("lease", late, now) for now in (1.0, 1.5, 61.5)]
        [True, False, True]
        >>> outage.worked("lease", 62.0), outage.problem, outage.worked("lease", 63.6)
        (False, None, True)
        """
        self._failing[work] = str(error)
        self._failed_at = now
        if now - self._said.get(error.cause, -REMIND_SECONDS) < REMIND_SECONDS:
            return False
        self._said[error.cause] = now
        return True

    def worked(self, work: str, now: float) -> bool:
        """Note that some work was done; return whether it has to be said that the engine answers again."""
        self._failing.pop(work, None)
        if self._failing or not self._said or now - self._failed_at < SETTLED_SECONDS:
            return False
        self._said.clear()
        return True
