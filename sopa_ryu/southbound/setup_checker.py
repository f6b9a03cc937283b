"""Verifies the configuration of every switch whose database the controller is given, and says what is wrong."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_setup import SetupProblem, SwitchSetup, problems, switch_of
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound import switch_database
from sopa_ryu.southbound.connection import Connection
from sopa_ryu.southbound.databases import Databases, databases, names
from topologies import Switch
from topologies.ovsdb import OvsdbError, Tls

LOG = logging.getLogger("sopa.setup")

CONTROLLER = "controller"
"""Stands for the switch in problems of the controller itself."""
LOOK_SECONDS = 10.0
"""From the end of a round to the next: a switch on which somebody enables in-band control may storm until then."""
GRACE_SECONDS = 1.0
"""After a switch has connected: others may connect at the same time."""
PAUSE_SECONDS = 0.05
"""After each database: a round of a large fabric takes as long as it takes."""
MAX_PROBLEMS = 100
"""Of a switch: more are said once these are mended."""
MEND = "ovs-vsctl set-manager there, or the option ovsdb"
NO_DATABASE = (
    "not verified: OpenFlow shows version, datapath id and ports only. Give Open vSwitch's database by --sopa-ovsdb, or run "
    "sopa doctor switch on each switch"
)


def _who(problem: SetupProblem) -> str:
    return problem.switch if problem.switch == CONTROLLER else f"switch {problem.switch}"


def tls_problems(certificate: str | None, authorities: str | None) -> list[SetupProblem]:
    """Return what is wrong with the controller's own options for OpenFlow over TLS."""
    if not certificate or authorities:
        return []
    problem = "OpenFlow over TLS without ca_certs: whoever connects is accepted as a switch"
    return [SetupProblem(CONTROLLER, "tls", problem, "set ca_certs in sopa.conf to the authority of the switches' certificates")]


class SetupChecker:
    """A worker that verifies the switches, mends what it may, and writes the result to the fabric's state.

    Args:
        addresses: OVSDB addresses, as of `BfdKeeper`.
        own: Problems of the controller's own configuration, which are reported together with the switches'.
        cluster: Several controllers share the fabric.
        may_change: Tell whether this controller commands the switches: what may be mended is another's otherwise.
    """

    def __init__(
        self,
        state: FabricState,
        connections: Mapping[Switch, Connection],
        addresses: Sequence[str],
        tls: Tls | None = None,
        own: Sequence[SetupProblem] = (),
        cluster: bool = False,
        may_change: Callable[[], bool] = lambda: True,
    ) -> None:
        self.addresses = addresses
        self._cluster = cluster
        self._may_change = may_change
        self._own = own
        self._state = state
        self._connections = connections
        self._tls = tls
        self._wake = hub.Event()
        self._known: dict[tuple[str, str, str], SetupProblem] = {}
        self._unread: set[str] = set()
        self._say(0, [], NO_DATABASE if not addresses else "no switch is connected yet")

    def look(self) -> None:
        """Schedule a check soon, after a switch has connected."""
        self._wake.set()

    def watch(self) -> None:
        """Run until killed: verify every switch, one after the other, again and again, and soon after one has connected."""
        while True:
            if self._wake.wait(LOOK_SECONDS):
                hub.sleep(GRACE_SECONDS)
            self._wake.clear()
            self.check()

    def check(self) -> None:
        """Verify every switch now."""
        found: list[SetupProblem] = []
        checked: set[Switch] = set()
        unread: dict[str, str] = {}
        its = databases(self.addresses, self._state.tree, self._connections)
        for address in its:
            try:
                found += self._check(address, its, checked)
            except OvsdbError as error:
                unread[address] = str(error)
            hub.sleep(PAUSE_SECONDS)
        for address in sorted(unread.keys() - self._unread):
            who = names(self._state.tree, its[address]) or "no connected switch"
            LOG.warning(
                "database of %s not read: %s. Its switches stay unverified and without BFD. Mend: %s", who, unread[address], MEND
            )
        self._unread = set(unread)
        total = self._state.tree.switch_count
        detail = f"{len(checked)} of {total} switches verified, {len(found)} problems"
        detail += f"; {len(unread)} databases not read" if unread else ""
        self._say(len(checked), found, detail)

    def _check(self, address: str, its: Databases, checked: set[Switch]) -> list[SetupProblem]:
        """Return the problems of the fabric's bridges in a database that remain after mending."""
        tree, found = self._state.tree, []
        strangers: dict[Switch, SwitchSetup] = {}
        for setup in switch_database.read(address, tls=self._tls):
            switch = switch_of(tree, setup)
            if switch is None:  # a bridge of another network; one of ours with a wrong id is listed as rejected
                continue
            if switch not in its[address]:
                strangers[switch] = setup
                continue
            if switch in checked:
                continue
            wrong = list(islice(problems(tree, setup, self._cluster), MAX_PROBLEMS))
            mendable = [problem for problem in wrong if problem.check in switch_database.MENDED]
            if mendable and self._may_change():
                switch_database.mend(address, setup, mendable, tls=self._tls)
                for problem in mendable:
                    LOG.warning("switch %s: %s. Put right: %s", problem.switch, problem.problem, problem.mend)
            checked.add(switch)
            found += [problem for problem in wrong if problem not in mendable]
        # others may be about to connect, or away while no switch connects from the address that the option has for them
        if self._state.settled and (its[address] or strangers.keys() & self._connections.keys()):
            found += self._ignored(address, its[address], strangers)
        return found

    def _ignored(self, address: str, own: Collection[Switch], strangers: Mapping[Switch, SwitchSetup]) -> Iterator[SetupProblem]:
        """Yield what is wrong with a database that has bridges with other switches' datapath ids."""
        if not strangers:
            return
        tree, bridge = self._state.tree, shlex.quote(strangers[min(strangers)].bridge)
        who, mend = CONTROLLER, "set ovsdb in sopa.conf to addresses that the switches connect from, as tcp:*:6640 does"
        if own:
            who, mend = tree.name(min(own)), f"ovs-vsctl get-controller {bridge}, and find out who made that bridge"
        others = names(tree, strangers)
        said = f"database {address} has bridges with datapath ids of {others}, which do not connect from there: ignored"
        yield SetupProblem(who, "datapath-id", said, mend)

    def _say(self, checked: int, found: list[SetupProblem], detail: str) -> None:
        found = [*self._own, *found]
        now = {
            (problem.switch, problem.check, problem.problem): problem for problem in found
        }  # what mends it may be known better later
        for key, problem in now.items():
            if key not in self._known:
                LOG.error("%s: %s. Mend it there: %s", _who(problem), problem.problem, problem.mend)
        for problem in (problem for key, problem in self._known.items() if key not in now):
            LOG.info("%s: no longer so: %s", _who(problem), problem.problem)
        self._known = now
        self._state.setup = {"checked": checked, "detail": detail, "problems": [problem._asdict() for problem in found]}
