"""What a relay makes of the engine's keys: the fabric, the view that it sends, the leader that it asks. Pure.

A view is taken if its (term, version) is higher than that of the one before, whatever has happened to the engine meanwhile: agents
refuse lower terms, and a restored engine may hold an old view until a leader commits the next one. What is malformed or does not
fit leaves everything as it is, and is said once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from sopa_ryu.cluster.gateway import Contents
from sopa_ryu.cluster.records import CHARTER, FORMAT, LEADER, MEMBERS, VIEW, CommittedView, RecordError
from sopa_ryu.cluster.view import Mirror
from sopa_ryu.fabric.view import View
from topologies import Clos, TopologyError, fabric_of

LOG = logging.getLogger("sopa.relay")

_FOLLOWED = (CHARTER, VIEW, LEADER)


class News(NamedTuple):
    """What has changed: the fabric has become known, there is another view, there is another leader or none."""

    fabric: bool = False
    view: bool = False
    leader: bool = False


class Following:
    """The state of a relay, as of the engine.

    Attributes:
        tree: The fabric; None before the charter has been read.
        carrier: Of labels.
        view: The view that is sent; None before the first.
        refused: Views that were not taken, because they are older than the one that is sent, or do not fit.
    """

    def __init__(self, cluster: str, secret: str | None = None) -> None:
        self.cluster = cluster
        self._secret = secret
        self.tree: Clos | None = None
        self.carrier = ""
        self.view: View | None = None
        self.refused = 0
        self.mirror = Mirror()
        self._document: Mapping[str, Any] = {}
        self._said: dict[str, str] = {}
        self._fits = True
        self._judged: CommittedView | None = None

    @property
    def controllers(self) -> list[str]:
        """The URLs of the controllers that may be asked, the leader's first."""
        mirror, leader = self.mirror, self.leader
        others = [member.url for member in mirror.members.values() if member.url]
        return list(dict.fromkeys([leader, *others] if leader else others))

    @property
    def leader(self) -> str | None:
        """The URL of the leader's REST interface; None if there is no leader, or no member has named it."""
        its = self.mirror.leader
        return its.url if its is not None and its.url and not its.objection(self._secret) else None

    def take(self, contents: Contents) -> News:
        """Follow what was read of the engine, or has changed there."""
        before = self.leader
        changed = self.mirror.apply(contents)
        if not changed:
            return News()
        for key in sorted(changed):
            if key in _FOLLOWED or key.startswith(MEMBERS):
                self._say(f"value of {key}", self.mirror.problems.get(key, ""))
        if (its := self.mirror.leader) is not None:
            self._say(LEADER, its.objection(self._secret))
        fabric = self._take_charter()
        view = self._take_view() if changed & {VIEW, CHARTER} else False
        if self.leader != before:
            LOG.info("the cluster's leader is %s", f"{its.name}, {self.leader}" if its and self.leader else
                     "away: the last view goes on being sent, writes are answered 503")  # fmt: skip
        return News(fabric, view, self.leader != before)

    def _take_charter(self) -> bool:
        """Take the fabric from the first charter; another one is refused. Return whether it has become known."""
        charter = self.mirror.charter
        if charter is None:
            return False
        self._fits = self.tree is None or charter.fabric == self._document
        if self.tree is not None and self._fits:
            self._say(CHARTER, "")
            return False
        if charter.format != FORMAT:
            self._say(CHARTER, f"the cluster's charter has format {charter.format}, this relay reads {FORMAT}: run a relay of the "
                      "controllers' release")  # fmt: skip
            return False
        if self.tree is not None:
            self._say(CHARTER, "the cluster's charter describes another fabric than before. This relay goes on with the fabric and "
                      "the view that it has. If the change is meant, restart the relay")  # fmt: skip
            return False
        try:
            tree = fabric_of(charter.fabric)
        except TopologyError as error:
            self._say(CHARTER, f"the cluster's charter describes no fabric: {error}. Put the key back, or delete it: the next "
                      "controller that starts writes it anew")  # fmt: skip
            return False
        self.tree = tree
        self._document, self.carrier = charter.fabric, charter.carrier
        LOG.info(
            "the cluster's fabric is a %s (%d switches, %d hosts)", self.tree.title, self.tree.switch_count, self.tree.host_count
        )
        return True

    def _take_view(self) -> bool:
        """Take the committed view if it is later than the one that is sent; return whether it was taken."""
        committed = self.mirror.view
        if committed is None or self.tree is None or not self._fits or committed == self._judged:
            return False
        self._judged = committed
        if self.view is not None:
            order, now = (committed.term, committed.version), (self.view.epoch, self.view.version)
            if order == now and committed.failures == dict(self.view.failures):
                return False
            if order <= now:
                self.refused += 1
                self._say(
                    VIEW,
                    f"the engine has version {committed.version} of term {committed.term}, but version {self.view.version} of "
                    f"term {self.view.epoch} is being sent. It is not taken. Agents keep the later one until a leader commits "
                    "a higher one (was the engine restored from a backup, or the key changed by hand?)",
                )
                return False
        try:
            self.view = committed.view(self.tree)._replace(cluster=self.cluster)
        except RecordError as error:
            self.refused += 1
            self._say(VIEW, f"a view is not taken, the one before goes on being sent: {error}")
            return False
        self._say(VIEW, "")
        return True

    def _say(self, subject: str, problem: str) -> None:
        """Log a problem once, until it is another one or over."""
        if problem and self._said.get(subject) != problem:
            LOG.error("%s", problem)
        self._said[subject] = problem
