"""Sends LLDP probes from every switch-to-switch port, evenly over time, and takes in what arrives elsewhere."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ryu.lib import hub

from sopa_ryu.fabric.wiring import Wiring
from sopa_ryu.southbound import lldp, openflow
from sopa_ryu.southbound.switch_session import SwitchSession
from topologies import FatTree, Host, Switch

LOG = logging.getLogger("sopa.wiring")

# A link is reported as missing after this many rounds without a probe.
PATIENCE_ROUNDS = 3.5
# The controller has other things to do: a round of a large fabric takes as long as it takes at this rate.
PROBES_PER_SECOND = 500


class LinkDiscovery:
    """Checks the cabling.

    Parameters
    ----------
    tree : FatTree
    sessions : mapping
        The connected switches.
    interval : float
        Seconds from a port's probe to its next; 0 for none at all.
    changed : callable
        Told all links that lead elsewhere, whenever there are others.
    """

    def __init__(
        self,
        tree: FatTree,
        sessions: Mapping[Switch, SwitchSession],
        interval: float,
        changed: Callable[[Iterable[str], float], None],
    ) -> None:
        self.tree = tree
        ports = tree.k * tree.switch_count - tree.host_count
        self.interval = interval and max(interval, ports / PROBES_PER_SECOND)
        self.wiring = Wiring(tree, PATIENCE_ROUNDS * self.interval or math.inf)
        self.malformed = 0
        self._sessions = sessions
        self._changed = changed
        self._known: dict[str, str] = {}

    def rounds(self) -> None:
        """For ever: probe one switch after another."""
        while True:
            sessions = list(self._sessions.values())
            for session in sessions:
                self.probe(session)
                hub.sleep(self.interval / len(sessions))
            if not sessions:
                hub.sleep(min(1.0, self.interval))

    def probe(self, session: SwitchSession, ports: Iterable[int] | None = None) -> None:
        """Send probes from a switch's ports (all that lead to other switches, if none are named), without waiting for it."""
        if not self.interval:
            return
        session.to_probe.update(self._fabric_ports(session.switch) if ports is None else ports)
        if not session.probing:
            session.probing = True
            hub.spawn(self._send, session)

    def _send(self, session: SwitchSession) -> None:
        try:
            while session.to_probe:
                port = session.to_probe.pop()
                frame = lldp.frame(self.tree.dpid(session.switch), port)
                session.datapath.send_msg(openflow.packet_out(session.datapath, port, frame))
        finally:
            session.probing = False

    def _fabric_ports(self, switch: Switch) -> Iterable[int]:
        return (port for port, node in self.tree.ports(switch).items() if not isinstance(node, Host))

    def received(self, session: SwitchSession, message: Any) -> None:
        """Take in a frame that a switch has handed to the controller."""
        now = time.monotonic()
        try:
            probe = lldp.parse(message.data)
        except ValueError as error:
            self.malformed += 1
            if self.malformed == 1:
                LOG.warning("%s port %d: what arrived is no LLDP: %s", session.name, message.match["in_port"], error)
            return
        port = message.match["in_port"]
        self._tell(self.wiring.heard(session.switch, port, probe.dpid, probe.port, probe.text, now))

    def port_down(self, switch: Switch, port: int | None = None) -> None:
        """What was heard at a port (or at all of a switch's) no longer counts: something else may be plugged in next."""
        self._tell(self.wiring.forget(switch, port))

    def _tell(self, changed: bool) -> None:
        if not changed:
            return
        now_wrong = self.wiring.miswired
        for name, detail in now_wrong.items():
            if self._known.get(name) != detail:
                LOG.error("%s is cabled wrongly and taken out of the candidate paths: %s", name, detail)
        for name in self._known.keys() - now_wrong.keys():
            LOG.info("%s is no longer known to be cabled wrongly", name)
        self._known = dict(now_wrong)
        self._changed(now_wrong, time.monotonic())
