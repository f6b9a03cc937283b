"""Versions that count only once they are committed, where several controllers share a fabric (docs/cluster.md). Pure.

The leader proposes what has failed. The proposal becomes the fabric's version when the engine has it; a standby follows what the
leader has committed. A version number stands for one proposal only: when it is not known whether a proposal was committed, the
next one has the next number.
"""

from __future__ import annotations

from typing import NamedTuple

from topologies import Failures


class Proposal(NamedTuple):
    """What the next version has to be."""

    term: int
    version: int
    failures: Failures
    observed: float
    """When the first cause was observed that no version has yet, in monotonic seconds."""


class Commitment:
    """What a member of a cluster has to have committed, or follows.

    Attributes:
        term: Of the leader that is followed, or the own one; 0 before the first.
        is_known: Whether the fabric's version is one of the present term, or one that is followed: agents may be sent it.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.term = 0
        self.leads = False
        self.is_known = False
        self._wanted: Failures | None = None
        self._observed = 0.0
        self._last = 0

    def lead(self, term: int) -> None:
        """Begin to lead: nothing is known of this term yet, so that the first version is proposed even if nothing has changed."""
        self.term, self.leads, self.is_known = term, True, False
        self._wanted = None

    def stand_by(self) -> None:
        """Propose nothing any more."""
        self.leads, self._wanted = False, None

    def follow(self, term: int, version: int) -> None:
        """Note a version that a leader has committed."""
        self.term, self.is_known = term, True
        self._last = max(self._last, version)

    def want(self, failures: Failures, present: Failures, now: float) -> None:
        """Note what has failed now; ``present`` is what the fabric's version says."""
        if self.is_known and dict(failures) == dict(present):
            self._wanted = None
            return
        if self._wanted is None:
            self._observed = now
        if self._wanted is None or dict(self._wanted) != dict(failures):
            self._wanted = failures

    def propose(self, version: int) -> Proposal | None:
        """Return what has to be committed now, under a number of its own after the fabric's version; None if nothing has."""
        if not self.leads or self._wanted is None:
            return None
        self._last = max(self._last, version) + 1
        return Proposal(self.term, self._last, self._wanted, self._observed)

    def adopt(self, proposal: Proposal) -> bool:
        """Note that a proposal is committed; return False if it is none of the present term's."""
        if not self.leads or proposal.term != self.term:
            return False
        self.is_known = True
        if self._wanted is not None and dict(self._wanted) == dict(proposal.failures):
            self._wanted = None
        return True
