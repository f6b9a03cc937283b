"""Keeps BFD enabled at both ends of every link between switches whose databases the controller is given."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound import bfd
from sopa_ryu.southbound.connection import Connection
from sopa_ryu.southbound.databases import Databases, databases, told
from topologies import Host, Reason, Switch
from topologies.ovsdb import Tls
from topologies.structure import BFD_INTERVAL_MS, BFD_MAC

LOG = logging.getLogger("sopa.bfd")

LOOK_SECONDS = 60.0
# Enabling BFD interrupts a link for about a second; a longer interruption has another cause.
BACK_SECONDS = 10.0
ANSWER_SECONDS = 3.0

OFF = "silent and one-way loss is not found: give Open vSwitch's database by --sopa-ovsdb, as in --sopa-ovsdb 'tcp:*:6640'"


class BfdKeeper:
    """A worker that enables BFD, one uplink index after the other, and writes the result to the fabric's state.

    Args:
        addresses: OVSDB addresses; ``*`` as the host means the address from which each switch connects.
        tls: For ``ssl:`` addresses; by default the system's authorities and no client certificate.
        answers: Receives each gateway whose BFD session is up, with True, or which has shut it down, with False.
        may_change: Tell whether this controller commands the switches. One that does not only reads: two that enabled BFD side
            by side could interrupt the links of two uplink indices at once.
    """

    def __init__(
        self,
        state: FabricState,
        connections: Mapping[Switch, Connection],
        addresses: Sequence[str],
        tls: Tls | None = None,
        answers: Callable[[Host, bool], None] = lambda _gateway, _does: None,
        may_change: Callable[[], bool] = lambda: True,
    ) -> None:
        self._tls = tls
        self._answers = answers
        self._may_change = may_change
        self._unfinished = False
        self._state = state
        self._connections = connections
        self.addresses = addresses
        self._wake = hub.Event()
        self._said = ""
        self._say(False, OFF if not addresses else "no switch is connected yet")

    def look(self) -> None:
        """Schedule a check of all links soon, after a switch has connected."""
        self._wake.set()

    def watch(self) -> None:
        """Run until killed: enable BFD wherever both ends of a link are found."""
        while True:
            self._wake.wait(BACK_SECONDS if self._unfinished else LOOK_SECONDS)
            hub.sleep(1)  # other switches may connect at the same time
            if self._state.settled:  # otherwise the check stays due
                self._wake.clear()
                self._round()

    def _round(self) -> None:
        its = databases(self.addresses, self._state.tree, self._connections)
        had = enabled = single = addressed = postponed = 0
        problems: dict[str, str] = {}
        stopped = ""
        before = silent = self._silent()
        for report in bfd.rollout(
            its, self._state.tree, BFD_INTERVAL_MS, tls=self._tls, may_change=self._may_change, is_last=self._is_last
        ):
            had += report.had
            enabled += report.enabled
            addressed += report.addressed
            single += len(report.single)
            postponed += len(report.postponed)
            problems |= report.problems
            if report.enabled:
                self._await_links(silent)
            silent = self._silent()
            if report.enabled and not _are_of_one_switch(silent - before):  # one that is broken, or lies, stops no others
                stopped = f"; links stayed down for {BACK_SECONDS:g} s after BFD was enabled; it is not enabled on further links"
                break
        tree = self._state.tree
        total = 2 * tree.switch_link_count
        reads_only = not self._may_change() and had < total  # the one that commands the switches may be about to
        self._unfinished = reads_only or postponed > 0
        if enabled:
            LOG.info("BFD enabled at %d ends of links, every %d ms", enabled, BFD_INTERVAL_MS)
        if addressed:
            LOG.info("BFD at %d ends of links: only packets to %s count from now on, which no host can send", addressed, BFD_MAC)
        detail = f"on at {had + enabled} of {total} ends of links between switches"
        if single:
            detail += f"; not on at {single} ends whose other ends were not found"
        if reads_only:
            detail += "; this controller changes nothing while another one leads"
        elif postponed:
            detail += f"; not on yet at {postponed} ends: the switches below have no other live uplink"
        if tree.gateways:
            detail += self._gateways(its, problems)
        detail += stopped + "".join(f"; {problem}" for problem in told(problems, tree, its))
        self._say(had + enabled > 0, detail)

    def _gateways(self, its: Databases, problems: dict[str, str]) -> str:
        """Enable BFD at the ports to gateways, and tell who answers."""
        tree = self._state.tree
        found = bfd.enable_gateways(its, tree, BFD_INTERVAL_MS, tls=self._tls, change=self._may_change())
        if found.enabled:
            LOG.info("BFD enabled at the ports to %d gateways, every %d ms", found.enabled, BFD_INTERVAL_MS)
            hub.sleep(ANSWER_SECONDS)  # those that speak it are up by then
            found = bfd.enable_gateways(its, tree, BFD_INTERVAL_MS, tls=self._tls, change=False)
        problems |= found.problems
        for gateway, does in found.answers.items():
            self._answers(gateway, does)
        up = sum(found.answers.values())
        return f"; on at {found.on} of {len(tree.gateways)} ports to gateways, of which {up} answer"

    def _silent(self) -> set[str]:
        return {name for name, reason in self._state.failures.items() if reason == Reason.SILENT}

    def _await_links(self, before: set[str]) -> None:
        """Wait until no link is silent but those that were ``before``, at most `BACK_SECONDS`."""
        hub.sleep(1)
        deadline = time.monotonic() + BACK_SECONDS
        while self._silent() - before and time.monotonic() <= deadline:
            hub.sleep(0.1)

    def _is_last(self, switch: Switch, uplink: int) -> bool:
        """Tell whether an uplink of a switch is the only live one of several: BFD may have been enabled at the others just now."""
        others = set(self._state.tree.uplinks(switch)) - {uplink}
        return bool(others) and others <= self._state.failures.lost_uplinks(switch)

    def _say(self, enabled: bool, detail: str) -> None:
        self._state.bfd = {"enabled": enabled, "detail": detail}
        if detail != self._said:
            (LOG.info if enabled or not self.addresses else LOG.warning)("BFD is %s: %s", "on" if enabled else "off", detail)
            self._said = detail


def _are_of_one_switch(links: set[str]) -> bool:
    return not links or bool(set.intersection(*(set(link.split("-")) for link in links)))
