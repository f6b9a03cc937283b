"""The agent of one interface through its absences: takes it when it is there, gives it back when it goes, waits for its return."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import NoReturn

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import AgentError, AgentOptions
from sopa_ryu.agent.cfr_agent import CfrAgent
from sopa_ryu.agent.follower import Follower
from sopa_ryu.agent.host.mending import InterfaceAway, Part
from sopa_ryu.agent.host.place import Place
from sopa_ryu.agent.host.tcp_settings import TO_CHECK, read, threshold_counts
from sopa_ryu.agent.host.threads import in_thread
from sopa_ryu.agent.host_agent import HostAgent
from sopa_ryu.agent.host_settings import HostSettings, SettingsError
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel import link_attributes
from sopa_ryu.agent.kernel.changes import Changes, Namespace
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.drops import Drops
from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.link_speed import speed
from sopa_ryu.agent.kernel.netns import Interface, NetnsError, inside
from sopa_ryu.agent.label.bursts import AUTO, segments_for
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.packet_socket import ProbeSocket
from sopa_ryu.agent.probing.prober import Prober
from sopa_ryu.agent.reaction import Reaction
from sopa_ryu.agent.scatter.mcs_peers import McsPeers
from sopa_ryu.agent.slots.cfr_sender import SlotSender
from sopa_ryu.agent.slots.departure_times import DepartureTimes
from sopa_ryu.agent.slots.send_buffers import SendBuffers
from sopa_ryu.channel.client import ClientOptionError
from sopa_ryu.channel.mcs import ChannelKind
from topologies.structure import GATEWAY_MAC

LOG = logging.getLogger("sopa.agent")

AWAY_SECONDS = 1.0
"""The interval of looking for an interface that is away; a notification of its namespace is faster."""
QUIET_SECONDS = 1.0
"""A host that got no scattered packet for so long is not scattered to any more."""
MAX_QUIET_SECONDS = 5.0
REFUSED_SECONDS = 10.0
"""The interval of trying again to take an interface that is there."""


class Supervisor:
    """The agent of one interface, as long as the process runs.

    Args:
        sender: With CFR: what begins granted slots.

    Attributes:
        agent: The agent at work; None while the interface is away. Others read it with `reading` locked.
        labeller: Its programs, with their counters.
        away: Why the interface is not taken; empty if it is.
        mended: What was put right after another program had changed it.
        reading: While it is locked, the agent is not given back.
    """

    def __init__(self, interface: Interface, options: AgentOptions, sender: SlotSender | None = None) -> None:
        self.interface, self.options, self._sender = interface, options, sender
        self.agent: HostAgent | None = None
        self.labeller: Labeller | None = None
        self.mended: Counter[Part] = Counter()
        self.reading = threading.Lock()
        self._taken = ExitStack()
        self.away = ""
        self._was_taken = False

    def take(self) -> bool:
        """Take the interface: its settings, and its place for the program; return False if it is away, which is logged once.

        Raises:
            AgentError, ClientOptionError: If the options contradict the machine.
            SettingsError, BpfError: If the host's settings or BPF refuse; whatever was changed is put back.
        """
        try:
            with ExitStack() as taken:
                agent, labeller = self._enter(taken)
                self._taken = taken.pop_all()
        except (InterfaceAway, NetnsError) as away:
            self._note_away(str(away))
            return False
        self._was_taken = True
        with self.reading:
            self.agent, self.labeller = agent, labeller
        if self.away:
            LOG.info("%s: %s is there again, and taken", agent.follower.address, self.interface)
            self.away = ""
        return True

    def release(self) -> None:
        """Give back what was taken: settings as they were, and packets unlabelled. May be repeated."""
        with self.reading:
            self.agent = self.labeller = None
            self._taken.pop_all().close()

    async def run(self) -> NoReturn:
        """Run the agent whenever the interface is there, until cancelled."""
        while True:
            while self.agent is None:
                await self._wait()
                await self._take_again()
            try:
                await self.agent.run()
            except InterfaceAway as away:
                self._note_away(str(away))
                await in_thread(self._release_what_is_left)

    async def stop_scattering(self) -> None:
        """With MCS by ports: send packets as TCP makes them from now on, before the controller says so to other hosts."""
        if self.labeller is not None and self._scatters_by_ports:
            try:
                await in_thread(self.labeller.stop_scattering)
            except (BpfError, NetnsError) as error:
                LOG.error("%s: packets are scattered until the agent has ended: %s", self.interface, error)

    async def until_quiet(self) -> None:
        """With MCS by ports, after the controller was left: wait until other hosts do not scatter to this one any more.

        Their packets on other ports would be of no connection without the program that translates them back.
        """
        if self.labeller is None or not self._scatters_by_ports or not self.labeller.mcs or not self.labeller.mcs.knows_hosts:
            return
        loop = asyncio.get_running_loop()
        begin = since = loop.time()
        taken = self._taken_packets(self.labeller)
        while loop.time() - since < QUIET_SECONDS:
            if loop.time() - begin >= MAX_QUIET_SECONDS:
                LOG.warning(
                    "%s: other hosts still scatter to it %g s after the agent has left the controller. Their connections "
                    "wait until these hosts hear of it. Check the controller and the network to it",
                    self.interface,
                    MAX_QUIET_SECONDS,
                )
                return
            await asyncio.sleep(QUIET_SECONDS / 10)
            before, taken = taken, self._taken_packets(self.labeller)
            if taken != before:
                since = loop.time()

    @property
    def _scatters_by_ports(self) -> bool:
        return self.options.mcs is not None and self.options.mcs.kind is ChannelKind.PORTS

    @staticmethod
    def _taken_packets(labeller: Labeller) -> int:
        return labeller.counted.of(Handling.MCO_TAKEN)

    async def _take_again(self) -> None:
        try:
            await in_thread(self.take)
        except (AgentError, BpfError, ClientOptionError, SettingsError) as error:
            self._note_away(f"it cannot be taken: {error}")
            await asyncio.sleep(REFUSED_SECONDS)

    async def _wait(self) -> None:
        """Return when something has changed where the interface may appear."""
        try:
            changes = Changes(self.interface.netns)
        except NetnsError:
            await asyncio.sleep(AWAY_SECONDS)
            return
        try:
            await changes.wait(AWAY_SECONDS)
        finally:
            changes.close()

    def _release_what_is_left(self) -> None:
        try:
            self.release()
        except (OSError, NetnsError, BpfError, SettingsError) as error:
            LOG.error("%s: cannot put back every setting: %s. Check the interface's %s", self.interface, error, TO_CHECK)

    def _note_away(self, reason: str) -> None:
        """Note why the interface is not at work, and log it unless that is known, or ends the agent."""
        if reason != self.away and (self.options.wait or self._was_taken):
            LOG.warning("%s is not labelled: %s. Its agent leaves the controller, and waits until it can take the interface",
                        self.interface, reason)  # fmt: skip
        self.away = reason

    def _automatic(self, namespace: Namespace) -> int:
        """Return how many packets of a burst share a label, by the speed of the interface's link."""
        with inside(namespace.path):
            mbit = speed(self.interface.name)
        segments = segments_for(mbit)
        has = "an unknown speed" if mbit is None else f"{mbit} Mbit/s"
        LOG.info("%s: the link has %s: --segments auto is %d", self.interface, has, segments)
        return segments

    def _timed(self, place: Place, labeller: Labeller, keeper: Keeper, follower: Follower) -> CfrAgent | None:
        """Return the agent's part in CFR, with that policy."""
        agent_options = self.options
        if agent_options.arbiter_address is None or labeller.cfr is None or self._sender is None:
            return None
        timed = CfrAgent(
            place.address,
            agent_options.arbiter_address,
            lambda: agent_options.token(place.address),
            labeller.cfr,
            self._sender,
            limit_bursts=keeper.limit_bursts,
            instead=follower.instead,
        )
        departure = DepartureTimes(place.address, self.interface.name, place.ifindex, place.namespace.path, timed.grants)
        departure.look()
        keeper.looks += [departure.look, SendBuffers(place.address, place.namespace.path, timed.grants).look]
        return timed

    def _ends(self, place: Place, namespace: Namespace) -> Ends:
        """Return what all probes of the interface have in common."""
        with inside(namespace.path):
            mac = link_attributes.mac(place.ifindex)
        own, gateway = (bytes.fromhex(text.replace(":", "")) for text in (mac, GATEWAY_MAC))
        return Ends(place.address, own, gateway, self.options.carrier, secrets.randbits(32), secrets.randbits(32))

    def _probing(
        self, labeller: Labeller, place: Place, namespace: Namespace, taken: ExitStack
    ) -> tuple[Prober | None, Callable[[], int]]:
        """Return the prober of an interface whose programs are loaded, and what counts the packets that its host drops."""
        if labeller.probes is None:
            return None, lambda: 0
        try:
            socket = ProbeSocket(self.interface.name, namespace.path, wrapped=self.options.carrier is Carrier.SRV6)
            taken.callback(socket.close)
            drops = Drops(place.ifindex, namespace.path)
            taken.callback(drops.close)
        except PermissionError as error:
            LOG.warning(
                "%s: the agent sends no probes: %s. Only the controller and BFD find bad paths. Give the agent "
                "CAP_NET_RAW and the address family AF_PACKET (sopa-agent@.service has them), or start it with "
                "--no-probes",
                self.interface,
                error,
            )
            return None, lambda: 0
        except OSError as error:
            raise InterfaceAway(f"{self.interface} cannot send probes: {error}") from error
        program = labeller.probes
        return Prober(program.ends, program, socket, first_ssid=secrets.randbits(16)), drops.count

    def _say_threshold(self, namespace: Namespace) -> None:
        """Log which of TCP's two settings has an effect here."""
        with inside(namespace.path):
            sack = read("tcp_sack") != 0
        name, release, options = self.interface, os.uname().release, self.options
        if not sack:
            LOG.info("%s: TCP without SACK bears reordering by net.ipv4.tcp_reordering=%d", name, options.fr_threshold)
        elif threshold_counts(release, sack):
            text = "%s: Linux %s bears reordering by net.ipv4.tcp_min_rtt_wlen=%d and net.ipv4.tcp_reordering=%d"
            LOG.info(text, name, release, options.min_rtt_window, options.fr_threshold)
        else:
            text = "%s: Linux %s bears reordering by net.ipv4.tcp_min_rtt_wlen=%d. net.ipv4.tcp_reordering has no effect with SACK"
            LOG.info(text, name, release, options.min_rtt_window)

    def _enter(self, taken: ExitStack) -> tuple[HostAgent, Labeller]:
        agent_options = self.options
        try:
            namespace = Namespace(self.interface.netns)
        except OSError as error:
            raise InterfaceAway(f"no network namespace at {self.interface.netns}: {error.strerror}") from None
        taken.callback(namespace.close)
        changes = Changes(namespace.path)
        taken.callback(changes.close)
        place = Place(self.interface, namespace)
        agent_options.token(place.address)  # an error in the options ends the agent before anything is changed
        for url in agent_options.controllers:
            agent_options.controller(url, place.address).check()
        segments = agent_options.segments if agent_options.segments != AUTO else self._automatic(namespace)
        settings = taken.enter_context(
            HostSettings(
                self.interface.name,
                fr_threshold=agent_options.fr_threshold,
                min_rtt_window=agent_options.min_rtt_window,
                state_dir=agent_options.state_dir,
                netns=namespace.path,
                overhead=agent_options.carrier.overhead,
                segments=segments,
                changes=agent_options.mcs is None,
                cuts=not agent_options.is_timed,
            )
        )
        if agent_options.mcs is None:
            self._say_threshold(namespace)
        labeller = taken.enter_context(
            Labeller(
                self.interface.name,
                flows=agent_options.flows,
                netns=namespace.path,
                owns_clsact=settings.clsact_added,
                on_clsact=settings.note_clsact,
                carrier=agent_options.carrier,
                fabric_mtu=settings.fabric_mtu,
                cut_by=settings.cut_by,
                mcs=agent_options.mcs,
                cfr=agent_options.is_timed,
                probes=self._ends(place, namespace) if agent_options.probes else None,
                spray=agent_options.sprayed,
            )
        )
        keeper = Keeper(place, labeller, settings, changes, self.mended)
        prober, drops = self._probing(labeller, place, namespace, taken)
        follower = Follower(
            place.address,
            agent_options.controllers,
            seed=agent_options.seed,
            policy=agent_options.labelling,
            parameter=agent_options.parameter,
            weighted=agent_options.weights,
            peers=McsPeers(place.address, agent_options.mcs.kind) if agent_options.mcs is not None else None,
            policy_name=agent_options.policy,
            spray=agent_options.sprayed,
            probes=prober is not None,
            carrier=agent_options.carrier,
        )
        timed = self._timed(place, labeller, keeper, follower)
        agent = HostAgent(self.interface, agent_options, follower, labeller, keeper, timed, prober, drops)
        if prober is not None and labeller.own is not None:
            its_own = labeller.own, labeller.counted, drops
            agent.reaction = Reaction(follower, agent, prober, *its_own, keep=agent_options.keep_paths)
            prober.judges.append(agent.reaction)
            prober.busy = agent.reaction.busy
        agent.start()
        return agent, labeller
