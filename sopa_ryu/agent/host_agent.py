"""The host agent of one interface: takes the interface, follows the controller over a WebSocket, and swaps path tables."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

import websockets
from pyroute2 import IPRoute
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.agent.agent_options import AgentError, Options
from sopa_ryu.agent.follower import Answer, Follower, Load
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.netns import Interface, inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.channel import protocol
from topologies.structure import FABRIC_NETWORK

LOG = logging.getLogger("sopa.agent")

OPEN_SECONDS = 10.0


class HostAgent:
    """The agent of one interface, whose program is loaded.

    Parameters
    ----------
    interface : Interface
    options : Options
    follower : Follower
        Decides what to do.
    labeller : Labeller
    """

    def __init__(self, interface: Interface, options: Options, follower: Follower, labeller: Labeller) -> None:
        self.interface, self.options = interface, options
        self.follower, self.labeller = follower, labeller
        self._settling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Attach the program, unless a killed agent's labels there until this one has a table.

        Raises
        ------
        AttachError
            If another program has its place, or the kernel refuses.
        """
        if self.follower.start(inherited=self.labeller.inherits()):
            self.labeller.attach()

    async def run(self) -> None:
        """Follow the controller until cancelled, through every loss of the connection.

        Raises
        ------
        AttachError
            If the program cannot take a killed agent's place.
        """
        while True:
            problem = await self._follow_once()
            await asyncio.sleep(self.follower.disconnect(problem))

    async def _follow_once(self) -> str:
        """Follow the controller over one connection; return why it ended, or could not be opened."""
        its = self.options
        try:
            async with connect(
                its.channel(self.follower.address),
                additional_headers=its.headers(),
                ssl=its.tls(),
                open_timeout=OPEN_SECONDS,
                max_size=protocol.MAX_MESSAGE_BYTES,
                compression=None,
                proxy=None,
            ) as channel:
                self.follower.connect()
                await self.follow(channel)
            return "the controller closed the connection"
        except websockets.InvalidStatus as error:
            return _refusal(error)
        except (OSError, AgentError, websockets.WebSocketException, TimeoutError) as error:
            return str(error) or type(error).__name__

    async def follow(self, channel: ClientConnection) -> None:
        """Carry out what the controller's messages lead to, one after the other, until the channel closes."""
        async for text in channel:
            todo = self.follower.receive(text)
            answer = await self._load(todo) if isinstance(todo, Load) else todo
            if answer.settle:
                self._settling = asyncio.create_task(self._settle())
            if answer.delay:
                await asyncio.sleep(answer.delay)
            await channel.send(answer.text)

    async def _load(self, load: Load) -> Answer:
        """Put a table in force. What makes the kernel wait is done in a thread, after the swap wherever possible."""
        tables = self.labeller.tables
        try:
            if self._settling is not None:
                await self._settling
            if tables.ready_for(load.table):
                tables.swap(load.table)
            else:
                await asyncio.to_thread(tables.swap, load.table)
            if load.attach:
                await asyncio.to_thread(self.labeller.attach)
        except BpfMapError as error:
            return self.follower.not_loaded(error)
        return self.follower.loaded(load)

    async def _settle(self) -> None:
        try:
            await asyncio.to_thread(self.labeller.tables.settle)
        except BpfMapError as error:
            LOG.warning("%s: no room for the next path table yet, its swap will take longer: %s",
                        self.follower.address, error)  # fmt: skip


@contextmanager
def host_agent(interface: Interface, options: Options) -> Iterator[HostAgent]:
    """Take an interface for as long as the context lasts: its settings, and its place for the labelling program.

    Afterwards the host's settings are what they were, and packets go on unlabelled.

    Raises
    ------
    AgentError
        If the interface is missing or has no address of the fabric's network, or the options contradict the machine.
    SettingsError, BpfError
        If the host's settings or BPF refuse; whatever was changed is put back.
    """
    address = _fabric_address(interface)
    for read in (options.headers, options.tls, lambda: options.channel(address)):
        read()  # an error in the options ends the agent before anything is changed
    follower = Follower(
        address, options.controller, seed=options.seed, policy=options.policy, parameter=options.parameter
    )
    with (
        HostSettings(
            interface.name,
            fr_threshold=options.fr_threshold,
            state_dir=options.state_dir,
            netns=interface.netns,
            overhead=options.carrier.overhead,
        ) as settings,
        Labeller(
            interface.name,
            flows=options.flows,
            netns=interface.netns,
            owns_clsact=settings.clsact_added,
            on_clsact=settings.note_clsact,
            carrier=options.carrier,
            fabric_mtu=settings.fabric_mtu,
        ) as labeller,
    ):
        agent = HostAgent(interface, options, follower, labeller)
        agent.start()
        yield agent


def _fabric_address(interface: Interface) -> IPv4Address:
    with inside(interface.netns):
        where = f"{interface.name} in {interface.netns}" if interface.netns else interface.name
        try:
            index = socket.if_nametoindex(interface.name)
        except OSError:
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise AgentError(f"there is no interface {where}; there are {known}") from None
        with IPRoute() as route:
            found = [
                IPv4Address(message.get_attr("IFA_LOCAL"))
                for message in route.get_addr(family=socket.AF_INET, index=index)
            ]
    inside_fabric = [address for address in found if address in FABRIC_NETWORK]
    if not inside_fabric:
        has = ", ".join(map(str, found)) or "no IPv4 address"
        raise AgentError(f"{where} has {has}, but a host of the fabric has one of {FABRIC_NETWORK}")
    return inside_fabric[0]


def _refusal(error: websockets.InvalidStatus) -> str:
    """Return the detail of the problem document with which the controller rejected the channel."""
    try:
        return str(json.loads(error.response.body)["detail"])
    except (ValueError, KeyError, TypeError):
        return str(error)
