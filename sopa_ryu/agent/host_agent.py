"""The host agent: keeps an interface labelled with the candidate paths that the controller's state leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
from contextlib import ExitStack
from ipaddress import IPv4Address

import websockets
from pyroute2 import IPRoute
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.agent.agent_options import AgentError, Options
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel.counters import Counters
from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.netns import Interface, inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import PathSets
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.channel import protocol
from sopa_ryu.channel.protocol import GapError, ProtocolError
from sopa_ryu.fabric.view import View
from topologies.structure import FABRIC_NETWORK

LOG = logging.getLogger("sopa.agent")

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 5.0
OPEN_SECONDS = 10.0
LOAD_RETRY_SECONDS = 2.0


class HostAgent:
    """The agent of one interface.

    Parameters
    ----------
    interface : Interface
    options : Options

    Raises
    ------
    AgentError
        If the interface is missing or has no address of the fabric's network.
    SettingsError, BpfError
        If the host's settings or BPF refuse; whatever was changed is put back.

    Attributes
    ----------
    address : IPv4Address
        The interface's, in the fabric.
    view : View or None
        The fabric's state by which packets are labelled; None before there is any.
    connected : bool
        Whether the controller's channel is open.
    swaps, refused : int
        Path tables put in force, and messages refused, so far.
    cut_off : int
        Racks to which no path is left.
    """

    def __init__(self, interface: Interface, options: Options) -> None:
        self.interface = interface
        self.options = options
        self.address = _fabric_address(interface)
        self.url = options.channel(self.address)
        options.tls(), options.headers()  # what is wrong with it should be known before anything is changed
        self.view: View | None = None
        self.connected = False
        self.swaps = self.refused = self.cut_off = 0
        self._sets: PathSets | None = None
        self._attached = False
        self._settling: asyncio.Task[None] | None = None
        self._jitter = random.Random(f"{options.seed} {self.address}")
        self._settings = HostSettings(
            interface.name,
            fr_threshold=options.fr_threshold,
            state_dir=options.state_dir,
            netns=interface.netns,
            overhead=options.carrier.overhead,
        )
        self._taken = ExitStack()
        with ExitStack() as taking:
            taking.enter_context(self._settings)
            self._labeller = taking.enter_context(
                Labeller(
                    interface.name,
                    flows=options.flows,
                    netns=interface.netns,
                    owns_clsact=self._settings.clsact_added,
                    on_clsact=self._settings.note_clsact,
                    carrier=options.carrier,
                    fabric_mtu=self._settings.fabric_mtu,
                )
            )
            # What a killed agent left goes on labelling until there is a table to take its place.
            if not self._labeller.inherits():
                self._attach()
            self._taken = taking.pop_all()

    def stop(self) -> None:
        """Take the program off the interface and put the host's settings back; packets go on, unlabelled."""
        self._taken.close()

    @property
    def counters(self) -> Counters:
        """What its program has counted; not to be read after `stop`."""
        return self._labeller.counted

    async def run(self) -> None:
        """Follow the controller for ever, through every loss of the connection."""
        delay = FIRST_RETRY_SECONDS
        silent = False
        while True:
            try:
                async with connect(
                    self.url,
                    additional_headers=self.options.headers(),
                    ssl=self.options.tls(),
                    open_timeout=OPEN_SECONDS,
                    max_size=protocol.MAX_MESSAGE_BYTES,
                    compression=None,
                    proxy=None,
                ) as channel:
                    LOG.info("%s: connected to %s", self.address, self.options.controller)
                    delay, silent = FIRST_RETRY_SECONDS, False
                    self.connected = True
                    await self._follow(channel)
                problem = "the controller closed the connection"
            except websockets.InvalidStatus as error:
                problem = _refusal(error)
            except (OSError, AgentError, websockets.WebSocketException, TimeoutError) as error:
                problem = str(error) or type(error).__name__
            finally:
                self.connected = False
            if not silent:
                LOG.warning(
                    "%s: no controller at %s: %s; %s, trying again every %g s at most",
                    self.address,
                    self.options.controller,
                    problem,
                    "its last path sets stay in force" if self.view else "packets go unlabelled until it answers",
                    LAST_RETRY_SECONDS,
                )
                silent = True
            await asyncio.sleep(delay * self._jitter.uniform(0.5, 1.0))
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _follow(self, channel: ClientConnection) -> None:
        async for text in channel:
            try:
                view = protocol.receive(text, self.view, self.address)
                if view is not None and view is not self.view:
                    await self._take(view)
            except GapError as error:
                LOG.info("%s: a snapshot is needed: %s", self.address, error)
                await channel.send(protocol.RESYNC)
                continue
            except ProtocolError as error:
                self.refused += 1
                LOG.error(
                    "%s: a message of the controller's is refused (%d so far): %s", self.address, self.refused, error
                )
            except BpfMapError as error:
                # not acknowledged, so that the controller sees who lags behind
                self._sets = None
                LOG.error(
                    "%s: the new path sets cannot be loaded, the old ones stay in force for another %g s: %s",
                    self.address,
                    LOAD_RETRY_SECONDS,
                    error,
                )
                await asyncio.sleep(LOAD_RETRY_SECONDS)
                await channel.send(protocol.RESYNC)
                continue
            await channel.send(protocol.ack(self.view, self.refused))

    async def _take(self, view: View) -> None:
        tree = view.failures.tree
        if self._sets is None or self._sets.tree != tree:
            its = self.options
            self._sets = PathSets(tree, tree.host_by_ip(self.address), its.seed, its.policy, its.parameter)
        table = self._sets.follow(view.failures)
        if table is not None:
            await self._swap(table)
            if not self._attached:
                await asyncio.to_thread(self._attach)
            self._tell(view, table)
        self.view = view

    async def _swap(self, table: PathTable) -> None:
        """Put a table in force. What makes the kernel wait is done in a thread, after the swap wherever possible."""
        if self._settling is not None:
            await self._settling
        if self._labeller.tables.ready_for(table):
            self._labeller.swap(table)
        else:
            await asyncio.to_thread(self._labeller.swap, table)
        self.swaps += 1
        self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        try:
            await asyncio.to_thread(self._labeller.tables.settle)
        except BpfMapError as error:
            LOG.warning("%s: the next path sets will take the kernel longer: %s", self.address, error)

    def _tell(self, view: View, table: PathTable) -> None:
        LOG.info(
            "%s on %s: version %d, %d path sets for %d racks, %s",
            self.address,
            self.interface.name,
            view.version,
            len(table.sets),
            len(table.destinations),
            self.options.policy.name.lower().replace("_", "-"),
        )
        cut_off = table.destinations.count(-1)
        if cut_off:
            LOG.warning("%s: no path is left to %d racks; packets for them go unlabelled", self.address, cut_off)
        elif self.cut_off:
            LOG.info("%s: there are paths to every rack again", self.address)
        self.cut_off = cut_off

    def _attach(self) -> None:
        self._labeller.attach()
        self._attached = True


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
    """What the controller said when it did not open the channel: the detail of its problem document."""
    try:
        return str(json.loads(error.response.body)["detail"])
    except (ValueError, KeyError, TypeError):
        return str(error)
