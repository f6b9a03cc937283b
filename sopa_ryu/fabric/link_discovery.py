"""LLDP probes from every switch-to-switch port, and what their arrival says of the cabling. Pure."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.fabric.pacer import Pacer
from sopa_ryu.fabric.switch_session import SwitchSession
from sopa_ryu.fabric.wiring import Wiring
from topologies import Clos, Host, Switch

LOG = logging.getLogger("sopa.wiring")

PATIENCE_ROUNDS = 3.5
"""A link counts as missing after this many rounds without a probe."""
PROBES_PER_SECOND = 500
"""A round of a large fabric takes as long as it takes at this rate."""


class LinkDiscovery:
    """Checks the cabling.

    Args:
        sessions: The connected switches.
        interval: Seconds from a port's probe to its next; 0 for none at all.
    """

    def __init__(self, tree: Clos, sessions: Mapping[Switch, SwitchSession], interval: float) -> None:
        self.tree = tree
        self.interval = interval and max(interval, 2 * tree.switch_link_count / PROBES_PER_SECOND)
        self.wiring = Wiring(tree, PATIENCE_ROUNDS * self.interval or math.inf)
        self._sessions = sessions
        self._pacer = Pacer[Switch](self.interval)
        self._known: dict[str, str] = {}
        self._also_heard: set[tuple[Switch, int]] = set()

    @property
    def next_tick(self) -> float:
        """When the next switch is to be probed, in monotonic seconds."""
        return self._pacer.at

    def tick(self, now: float) -> SwitchSession | None:
        """Return the switch that has probes due because its turn has come."""
        switch = self._pacer.due(self._sessions.keys(), now)
        if switch is None:
            return None
        self.probe(self._sessions[switch])
        return self._sessions[switch]

    def probe(self, session: SwitchSession, ports: Iterable[int] | None = None) -> None:
        """Have probes sent from a switch's ports, or some of them, that lead to other switches."""
        if self.interval:
            fabric_ports = self._fabric_ports(session.switch)
            session.probes.update(fabric_ports if ports is None else fabric_ports & set(ports))

    def _fabric_ports(self, switch: Switch) -> set[int]:
        return {port for port, node in self.tree.ports(switch).items() if not isinstance(node, Host)}

    def heard(self, switch: Switch, port: int, probe: Heard, now: float) -> bool:
        """Take an LLDP frame that arrived at a port; return True if other links are miswired now."""
        changed = self._tell(self.wiring.heard(switch, port, probe.dpid, probe.port, probe.text, now))
        if probe.dpid is None and self.wiring.beside(switch, port) and (switch, port) not in self._also_heard:
            self._also_heard.add((switch, port))
            LOG.warning(
                "%s port %d also hears LLDP of %s: the link stays in use; end lldpd there, or the LLDP of the network card",
                self.tree.name(switch),
                port,
                self.wiring.beside(switch, port),
            )
        return changed

    def port_down(self, switch: Switch, port: int | None = None) -> bool:
        """Forget what was heard at a port, or at all of a switch's: another cable may be plugged in next."""
        return self._tell(self.wiring.forget(switch, port))

    def _tell(self, changed: bool) -> bool:
        if changed:
            miswired = self.wiring.miswired
            for name, detail in miswired.items():
                if self._known.get(name) != detail:
                    LOG.error("link %s is miswired and excluded from candidate paths: %s; recable it", name, detail)
            for name in self._known.keys() - miswired.keys():
                LOG.info("link %s: miswiring cleared", name)
            self._known = dict(miswired)
        return changed
