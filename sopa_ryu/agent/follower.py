"""The decisions of a host agent: what a message of the controller leads to, and when to connect again. Pure.

`HostAgent` carries them out. A message leads to an answer, or to a path table that has to be loaded before the answer is known:
a version is acknowledged only after its table is in force, and a table that cannot be loaded leaves the old one in force.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import UNUSED, Carrier
from sopa_ryu.agent.label.flow_labels import flow_labels
from sopa_ryu.agent.label.spray import EVERYTHING, Spray
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import PathSets
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy
from sopa_ryu.agent.scatter.mcs_peers import McsPeers
from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.addresses import Addresses, Loss
from sopa_ryu.channel.mcs import POLICY
from sopa_ryu.channel.messages import Assignment, Delta, HostChange, ProtocolError, Snapshot, TraceRequest
from sopa_ryu.fabric.view import View
from topologies.identity import IPV4, Family
from topologies.structure import FABRIC_NETWORK
from topologies.weights import Choices

LOG = logging.getLogger("sopa.agent")

LOAD_RETRY_SECONDS = 2.0


class Reply(NamedTuple):
    """A message for the controller, to be sent after a delay in seconds."""

    text: str
    delay: float = 0.0
    settle: bool = False
    """Make room for the next path table meanwhile: one has just been replaced."""


class Load(NamedTuple):
    """A path table to put in force, before `Follower.loaded` or `Follower.not_loaded` says what to answer."""

    view: View
    table: PathTable
    attach: bool
    """Attach the program afterwards: until now that of a killed agent has labelled, or none."""
    hosts: bool = False
    """Put the hosts that run MCS in force before that."""


class Hosts(NamedTuple):
    """A change of the hosts that run MCS, to put in force before the answer is sent."""

    answer: Reply


class Trace(NamedTuple):
    """A trace to begin or to end, and the answer meanwhile."""

    asked: TraceRequest
    answer: Reply


class Leave(NamedTuple):
    """The end of the channel: a close code and its reason, and the problem for the log."""

    code: int
    reason: str
    problem: str


class Probe(NamedTuple):
    """Streams to probe from now on, before the answer is sent."""

    assignment: Assignment
    answer: Reply


class Follower:
    """The state of one agent that follows the controller.

    Args:
        address: The host's, in the fabric.
        controllers: The URLs of the controller, or of a cluster's relays or controllers.
        seed: 32 bits that decide every flow's start, every random choice and the jitter of retries.
        parameter: The policy's (`PathTable.parameter`); 0 for its default.
        weighted: Whether packets use candidate paths in proportion to their weights.
        peers: The hosts that run MCS, if this one does.
        policy_name: The policy as on the command line, if that is not the name of `policy`.
        spray: The flows each of whose packets takes the next path.
        probes: Whether the agent probes paths.
        carrier: Where the label is written.

    Attributes:
        controllers: Which URL is in use, or asked next.
        view: The state of the fabric whose path table is in force; None before the first.
        connected: True while the channel to the controller is open.
        swaps, refused: Path tables put in force, and messages refused, so far.
        cut_off: Racks to which no path is left.
        avoided: What the host avoids by itself, besides what the controller excludes.
    """

    def __init__(
        self,
        address: IPv4Address,
        controllers: tuple[str, ...],
        *,
        seed: int = 0,
        policy: Policy = Policy.ROUND_ROBIN,
        parameter: int = 0,
        weighted: bool = True,
        peers: McsPeers | None = None,
        policy_name: str | None = None,
        spray: Spray = EVERYTHING,
        probes: bool = False,
        carrier: Carrier = Carrier.MAC,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address, self.peers = address, peers
        self._probes, self._carrier = probes, carrier
        self.seed, self.policy, self.parameter, self.weighted = seed, policy, parameter, weighted
        self._spray = spray
        self.policy_name = policy_name or (policy.option_name if peers is None else POLICY)
        self.view: View | None = None
        self.connected = False
        self.swaps = self.refused = self.cut_off = 0
        self.avoided = NOTHING
        self._sets: PathSets | None = None
        self._table: PathTable | None = None
        self._attached = False
        self._outdated = False
        self._lower = protocol.LowerTerms(now)
        self.controllers = Addresses(controllers, str(address), random.Random(f"{seed} {address}"))

    def start(self, inherited: bool) -> bool:
        """Return True if the program is to be attached now.

        Args:
            inherited: A killed agent's program is on the interface: it goes on labelling until there is a table to take its
                place.
        """
        self._attached = not inherited
        return self._attached

    # -- the connection --------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Note that the channel is open."""
        LOG.info("%s: connected to controller %s", self.address, self.controllers.url)
        self.connected, self._outdated = True, False
        if self.peers is not None:
            self.peers.connected()

    def leave(self) -> None:
        """Note that the agent has closed the channel, since what it would acknowledge is not in force."""
        LOG.warning(
            "%s: disconnected from controller %s until packets are labelled again. sopa agents --missing lists this host",
            self.address,
            self.controllers.url,
        )
        self.connected = False

    def disconnect(self, loss: Loss) -> float:
        """Note that there is no channel; return the seconds until the next attempt."""
        urls, url = self.controllers, self.controllers.url
        delay, is_new = urls.lost(loss, self.hosts, valid=self.connected and not self._outdated)
        self.connected = self._outdated = False
        if loss.sent_on:
            LOG.info("%s: sent by controller %s to %s, which comes first for this host", self.address, url, urls.url)
        elif is_new:
            LOG.warning(
                "%s: no controller at %s: %s. %s. %s. Check the controller and the network to it",
                self.address,
                url,
                loss.problem,
                "Its last path sets stay in force" if self.view else "Packets go unlabelled until it answers",
                urls.prospect,
            )
        return delay

    @property
    def hosts(self) -> int:
        """How many hosts the fabric has; 0 before the first view."""
        return self.view.failures.tree.host_count if self.view is not None else 0

    # -- messages --------------------------------------------------------------------------------------------------------

    def receive(self, text: str | bytes) -> Reply | Load | Hosts | Probe | Trace | Leave:
        """Return what to answer to a message of the controller, or what it puts in force before."""
        try:
            return self._take(messages.from_controller(text))
        except messages.GapError as error:
            LOG.info("%s: asking the controller for a snapshot: %s", self.address, error)
            return Reply(protocol.RESYNC)
        except messages.LowerTermError as error:
            if self._lower.last():
                LOG.warning("%s: no controller knows the term in force any more: it is forgotten", self.address)
                self.view = None
                return self.receive(text)
            self.refused += 1
            self._outdated = True
            return Leave(protocol.LOWER_TERM, "a view of a later term is in force", f"its snapshot is refused: {error}")
        except ProtocolError as error:
            self.refused += 1
            LOG.error(
                "%s: message of the controller refused (%d so far): %s. The path sets stay in force. Controller and "
                "agent may be of different versions",
                self.address,
                self.refused,
                error,
            )
            return self._ack()

    def _take(self, message: messages.FromController) -> Reply | Load | Hosts | Probe | Trace:
        """Raises as `protocol.follow`; nothing has changed then."""
        match message:
            case TraceRequest():
                return self._trace(message)
            case Assignment() if self._probes:
                self._check(message)
                return Probe(message, self._ack())
            case HostChange() if self.peers is not None:
                self.peers.follow(message)
                return Hosts(self._ack())
            case Snapshot() | Delta():
                return self._take_view(message)
        return self._ack()

    def _take_view(self, message: Snapshot | Delta) -> Reply | Load | Hosts:
        view = protocol.follow(message, self.view, self.address)
        self._lower.ended()
        hosts = message.hosts if isinstance(message, Snapshot) and self.peers is not None else None
        if self.peers is not None and hosts is not None:
            self.peers.follow(hosts, whole=True)
        table = None if view is None or view is self.view else self._follow(view)
        if view is None or table is None:
            self.view = view
            return self._ack() if hosts is None else Hosts(self._ack())
        return Load(view, table, attach=not self._attached, hosts=hosts is not None)

    def loaded(self, load: Load) -> Reply:
        """Return the answer after a path table is in force, and the program attached."""
        self.view, self._table, self._attached = load.view, load.table, True
        self.swaps += 1
        self._report(load)
        return self._ack()._replace(settle=True)

    def avoid(self, avoided: Avoided) -> PathTable | None:
        """Return the table without what the host avoids now, to be put in force at once; None if it stays as it is.

        The version does not change, so nothing is acknowledged.
        """
        self.avoided = avoided
        return None if self.view is None else self._follow(self.view)

    def swapped(self, table: PathTable) -> None:
        """Note that such a table is in force."""
        self._table = table
        self.swaps += 1

    def not_swapped(self, error: Exception) -> None:
        """Note that such a table could not be loaded."""
        self._sets = None  # the next table is complete, whatever this one would have changed
        LOG.error(
            "%s: cannot load the path sets without the avoided paths: %s. The old ones stay in force, next "
            "attempt in %g s. Check dmesg and free memory",
            self.address,
            error,
            LOAD_RETRY_SECONDS,
        )

    @property
    def avoided_paths(self) -> int:
        """The candidate paths, of all racks together, that the host avoids by itself."""
        return self._sets.avoided_paths if self._sets is not None else 0

    def candidates(self, pod: int, edge: int) -> Choices:
        """Return the uplink indices of all candidate paths to a rack that the controller does not exclude."""
        return self._sets.candidates(pod, edge) if self._sets is not None else ()

    def parts(self, pod: int, edge: int) -> Mapping[tuple[int, ...], float]:
        """Return `PathSets.parts` of a rack."""
        return self._sets.parts(pod, edge) if self._sets is not None else {}

    def instead(self, destination: IPv4Address, label: Label, turn: int) -> Label:
        """Return the label to use for one that the arbiter has chosen: `PathSets.instead`."""
        return label if self._sets is None else self._sets.instead(destination, label, turn)

    def not_loaded(self, error: Exception) -> Reply:
        """Return the answer after a path table could not be loaded: no acknowledgement, so that the controller sees the lag."""
        self._sets = None  # the next table is complete, whatever this one would have changed
        LOG.error(
            "%s: new path sets cannot be loaded: %s. The old ones stay in force, next attempt in %g s. Check dmesg and free memory",
            self.address,
            error,
            LOAD_RETRY_SECONDS,
        )
        return Reply(protocol.RESYNC, delay=LOAD_RETRY_SECONDS)

    def not_noted(self, error: Exception) -> Reply:
        """Return the answer after the hosts that run MCS could not be written for the programs."""
        assert self.peers is not None
        self.peers.number = 0
        LOG.error(
            "%s: the hosts that run MCS cannot be noted: %s. The old list stays in force, next attempt in %g s. Check dmesg and "
            "free memory",
            self.address,
            error,
            LOAD_RETRY_SECONDS,
        )
        return Reply(protocol.RESYNC, delay=LOAD_RETRY_SECONDS)

    def _trace(self, asked: TraceRequest) -> Reply | Trace:
        destination = asked.destination or asked.destination6
        if asked.cancel or asked.flow is None or destination is None:
            return Trace(asked, self._ack())
        labels, problem, table = None, "", self._table
        if table is None:
            problem = "it has no paths yet"
        elif destination.version == 6 and table.prefix is None:
            problem = "with its carrier it labels IPv4 only: switches hash the flow"
        else:
            family = IPV4 if destination.version == 4 or table.prefix is None else Family(table.prefix)
            key = FlowKey.of(family.address(IPV4.host(self.address)), destination, *asked.flow, table.prefix)
            labels = flow_labels(table, key, self.policy_name, self._spray)
        [answer] = messages.trace_answers(asked.number, (), done=True, problem=problem, flow=labels)
        return Reply(messages.encode(answer))

    def _ack(self) -> Reply:
        return Reply(protocol.ack(self.view, self.refused, self.peers.number if self.peers else None))

    def _check(self, assignment: Assignment) -> None:
        for stream in assignment.streams:
            if stream.destination not in FABRIC_NETWORK or stream.destination == self.address:
                raise ProtocolError(f"{stream.destination} is no other host to probe")
            if stream.up1 == UNUSED != stream.up2:
                raise ProtocolError(f"{UNUSED}, {stream.up2} are no hops of a path")

    def _follow(self, view: View) -> PathTable | None:
        tree = view.failures.tree
        if self._sets is None or self._sets.tree != tree:
            choice = self.seed, self.policy, self.parameter, self.weighted, self._carrier
            self._sets = PathSets(tree, tree.host_by_ip(self.address), *choice)
        return self._sets.follow(view.failures, self.avoided)

    def _report(self, load: Load) -> None:
        LOG.info(
            "%s: version %d%s in force: %d path sets for %d racks, %s",
            self.address,
            load.view.version,
            f" of term {load.view.epoch}" if load.view.cluster else "",
            len(load.table.sets),
            len(load.table.destinations),
            self.policy_name,
        )
        cut_off = load.table.cut_off
        if cut_off:
            LOG.warning(
                "%s: no path is left to %d racks. Packets for them go unlabelled. sopa failures lists what has failed",
                self.address,
                cut_off,
            )
        elif self.cut_off:
            LOG.info("%s: there are paths to every rack again", self.address)
        self.cut_off = cut_off
