"""``sopa parser follow``: keeps the spreaders of edge switches' host ports at what the controller says has failed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack

import click

from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.netns import Interface, NetnsError
from sopa_ryu.agent.label import edge_parser
from sopa_ryu.agent.label.edge_spreader import LEASE_SECONDS, Spreader
from sopa_ryu.agent.paths.path_sets import PathSets
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.cli.client import Controller
from sopa_ryu.cli.common import fabric_of, fail
from sopa_ryu.runtime.service import SIGNALS, exit_status
from topologies import Clos, Failures, Level, Switch, TopologyError

LOG = logging.getLogger("sopa.parser")

ROUND_SECONDS = 1.0
_FAILURES = "/failures"


def spread(controller: Controller, tree: Clos, edges: Sequence[str]) -> int:
    """Spread the packets of bursts at ports of edge switches until SIGTERM, SIGINT or SIGHUP, then free the ports.

    Args:
        edges: ``NAME=IF[@NETNS][,IF...]``.

    Returns:
        The exit status: 0 after SIGINT, 128 + n after another signal n.

    Raises:
        click.ClickException: For an edge or a port that does not exist, or another fabric than the controller's.
    """
    ended: list[int] = []
    wakes = threading.Event()

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        wakes.set()

    for number in SIGNALS:
        signal.signal(number, end)
    racks = [_rack(tree, text) for text in edges]
    with ExitStack() as stack:
        try:
            for port in (port for _, ports in racks for port in ports):
                edge_parser.status(port)  # one that does not exist is no matter of waiting for a controller
            each = [_Rack(tree, edge, stack.enter_context(Spreader(ports))) for edge, ports in racks]
            following = _Following(controller, tree, each)
            while not ended:
                following.look()
                wakes.wait(ROUND_SECONDS)
        except (BpfError, NetnsError) as error:
            fail(str(error))
        LOG.info("the ports of %d edge switches are freed. Switches hash the flows whose bursts ask to be spread", len(each))
    return exit_status(ended[0])


class _Rack:
    """A rack's spreader, and the sets of paths that it has."""

    def __init__(self, tree: Clos, edge: Switch, spreader: Spreader) -> None:
        self.spreader = spreader
        self._sets = PathSets(tree, next(iter(tree.hosts_of(edge))), 0, Policy.ROUND_ROBIN)

    def follow(self, failures: Failures) -> None:
        table = self._sets.follow(failures)
        if table is None:
            self.spreader.confirm()
        else:
            self.spreader.swap(table)
            self.spreader.attach()  # until now that of a killed process has spread


class _Following:
    """What is known of the fabric, and how long ago it was confirmed."""

    def __init__(self, controller: Controller, tree: Clos, racks: Sequence[_Rack]) -> None:
        self._controller, self._tree, self._racks = controller, tree, racks
        self._names: dict[str, str] | None = None
        self._tag = ""
        self._is_away = self._is_same = False

    def look(self) -> None:
        """Ask the controller what has failed, and bring all racks to it."""
        try:
            self._check()
            names = self._read()
            failures = Failures(self._tree, names)
        except (click.ClickException, TopologyError, KeyError) as error:
            if not self._is_away:
                LOG.warning(
                    "no failures from controller %s: %s. Bursts are spread as before for %g s, then switches hash their "
                    "flows. Check the controller and the network to it",
                    self._controller.url,
                    error.message if isinstance(error, click.ClickException) else error,
                    LEASE_SECONDS,
                )
            self._is_away, self._tag = True, ""
            return
        for rack in self._racks:
            rack.follow(failures)
        if self._is_away or names != self._names:
            LOG.info("controller %s: %d elements have failed. Bursts of %d racks are spread over the other paths",
                     self._controller.url, len(names), len(self._racks))  # fmt: skip
        self._names, self._is_away = names, False

    def _read(self) -> dict[str, str]:
        """Return the reasons of failures by name; the answer's entity tag spares most of it, as nothing has changed."""
        body, self._tag = self._controller.get_if_changed(_FAILURES, self._tag)
        if body is None:
            assert self._names is not None
            return self._names
        if body["total"] > len(body["failures"]):
            body = self._controller.listing(_FAILURES, "failures")
        return {row["name"]: row["reason"] for row in body["failures"]}

    def _check(self) -> None:
        if self._is_same:
            return
        others = fabric_of(self._controller.get("/fabric"))
        if others.title != self._tree.title:
            fail(f"its fabric is {others.title}, not {self._tree.title}: start with the controller's --k or --fabric")
        self._is_same = True


def _rack(tree: Clos, text: str) -> tuple[Switch, list[Interface]]:
    name, _, ports = text.partition("=")
    try:
        edge = tree.element(name)
        if not isinstance(edge, Switch) or edge.level is not Level.EDGE:
            raise ValueError(f"{name} is no edge switch")
        found = [Interface.parse(port) for port in ports.split(",")]
    except (TopologyError, ValueError) as error:
        raise click.BadParameter(f"{text!r}: {error}; write e0_0=e0_0-eth1,e0_0-eth2", param_hint="--edge") from error
    return edge, found
