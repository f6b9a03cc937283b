"""The host agent of an interface that is taken: follows the controller over a WebSocket, and swaps path tables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv4Address
from typing import NoReturn, Protocol

import websockets
from websockets.asyncio.client import ClientConnection

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.cfr_agent import CfrAgent
from sopa_ryu.agent.follower import Follower, Hosts, Leave, Load, Probe, Reply, Trace
from sopa_ryu.agent.host.threads import in_thread
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel.libbpf import BpfError, BpfMapError
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.paths.avoided import Avoided
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.agent.probing.prober import Prober
from sopa_ryu.agent.probing.tracer import Tracer
from sopa_ryu.agent.reaction import Reaction
from sopa_ryu.agent.scatter.mcs_peers import LEASE_SECONDS, Use
from sopa_ryu.channel.messages import encode
from sopa_ryu.runtime.service import TOGETHER_SECONDS, set_or_after

LOG = logging.getLogger("sopa.agent")

SWEEP_SECONDS = REPORT_SECONDS = 1.0
LEAST_REPORT_SECONDS = 0.02
NEWS_SECONDS, LOOK_SECONDS = 0.5, 0.1
"""A host that sends self-probes reports losses so soon after the last report; how often it looks for such."""
NOT_IN_FORCE = 4000
"""The close code with which an agent leaves the controller while its program is not on its interface (RFC 6455, section 7.4.2)."""


class Tables(Protocol):
    """The path tables of a program: `PathTables`."""

    def ready_for(self, table: PathTable) -> bool:
        """Return True if `swap` will not wait."""

    def swap(self, table: PathTable) -> None:
        """Put a table in force."""

    def settle(self) -> None:
        """Make room for the next table."""


class Scattering(Protocol):
    """What MCS needs besides: `McsPrograms`."""

    def note(self, uses: Mapping[IPv4Address, Use]) -> None:
        """Note what may be done with which host."""

    def sweep(self) -> None:
        """Remove the state of idle connections."""


class LoadedPrograms(Protocol):
    """What labels, and by what: `Labeller`."""

    @property
    def mcs(self) -> Scattering | None:
        """What MCS needs besides; None with another policy."""

    @property
    def tables(self) -> Tables:
        """Its path tables."""

    def inherits(self) -> bool:
        """Return True if a killed agent's program labels."""

    def attach(self) -> None:
        """Attach it."""


class HostAgent:
    """The agent of one interface, whose program is loaded.

    Args:
        follower: Decides what to do.
        keeper: Knows whether what the labeller has loaded is in force.
        timed: With CFR: follows the arbiter.
        prober: Probes paths.
        drops: Returns the packets that this host itself has dropped so far, as far as it counts them.

    Attributes:
        reaction: Leaves bad paths; set before it runs.
        tracer: Its traces; without a prober it answers that it sends no probes.
    """

    def __init__(
        self,
        interface: Interface,
        options: AgentOptions,
        follower: Follower,
        labeller: LoadedPrograms,
        keeper: Keeper,
        timed: CfrAgent | None = None,
        prober: Prober | None = None,
        drops: Callable[[], int] = lambda: 0,
    ) -> None:
        self.interface, self.options = interface, options
        self.follower, self.labeller, self.keeper, self.timed = follower, labeller, keeper, timed
        self.prober, self._drops, self._dropped = prober, drops, 0
        self.reaction: Reaction | None = None
        self._reporting: asyncio.Task[None] | None = None
        self.tracer = Tracer(prober)
        self._settling: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()
        self._heard_at = float("-inf")
        self._sweep_problem = ""

    def start(self) -> None:
        """Attach the program, unless a killed agent's labels there until this one has a table.

        Raises:
            AttachError: If another program has its place, or the kernel refuses.
        """
        if self.follower.start(inherited=self.labeller.inherits()):
            self.labeller.attach()

    async def run(self) -> NoReturn:
        """Keep the interface and follow the controller until cancelled, through every loss of the connection.

        Raises:
            InterfaceAway: If the interface is not there any more. Nothing that was taken is in use any more then.
        """
        tasks = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._follow())]
        if self.labeller.mcs is not None:
            tasks.append(asyncio.create_task(self._sweep(self.labeller.mcs)))
        if self.timed is not None:
            tasks.append(asyncio.create_task(self.timed.run()))
        if self.prober is not None:
            tasks.append(asyncio.create_task(self.prober.run()))
        if self.reaction is not None:
            tasks.append(asyncio.create_task(self.reaction.run()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # raises what has ended it
            raise AssertionError("a task that runs until cancelled has ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *([self._settling] if self._settling else []), return_exceptions=True)

    async def _follow(self) -> NoReturn:
        while True:
            await self.keeper.found.wait()
            follower, urls = self.follower, self.follower.controllers
            loss = await self.options.controller(urls.url, follower.address).attend(
                self.options.channel(follower.address, urls.first),
                self.follow,
                urls.open_seconds(follower.hosts),
                hosts=(lambda: self.follower.hosts) if urls.several else None,
            )
            await self._look_at_lease()
            if self.keeper.found.is_set():
                await asyncio.sleep(follower.disconnect(loss))
            else:
                follower.leave()

    async def follow(self, channel: ClientConnection) -> str:
        """Carry out what the controller's messages lead to, one after the other, until the channel closes.

        Nothing is answered while the program is not on the interface: the channel is closed instead.

        Returns:
            Why the agent has closed it; empty if it has not, or for its program.
        """
        self.follower.connect()
        leaving = asyncio.create_task(self._leave(channel))
        try:
            async for text in channel:
                async with self._loading:
                    todo = self.follower.receive(text)
                    if isinstance(todo, Leave):
                        await channel.close(todo.code, todo.reason)
                        return todo.problem
                    if isinstance(todo, Probe):
                        self._probe(todo, channel)
                        todo = todo.answer
                    if isinstance(todo, Trace):
                        self.tracer.follow(todo.asked, partial(_send, channel))
                        todo = todo.answer
                    answer = await self._carry_out(todo)
                    if answer.settle:
                        self._settling = asyncio.create_task(self._settle())
                if answer.delay:
                    await asyncio.sleep(answer.delay)
                if not await self.keeper.confirm():
                    await leaving
                    return ""
                await channel.send(answer.text)
            return ""
        finally:
            self._heard_at = asyncio.get_running_loop().time()
            self.tracer.end()
            ending = [leaving] if self._reporting is None else [leaving, self._reporting]
            self._reporting = None
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def _probe(self, todo: Probe, channel: ClientConnection) -> None:
        """Follow an assignment, and report: a controller that assigns nothing does not know reports."""
        if self.prober is None:
            return
        self.prober.follow(todo.assignment)
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report(self.prober, channel))

    async def _report(self, prober: Prober, channel: ClientConnection) -> None:
        """Report what has become of probes once a second, and when this host leaves or takes links, until the channel closes.

        A host that sends self-probes reports losses half a second after the last report.
        """
        self._dropped, clock = self._drops(), asyncio.get_running_loop().time
        prober.report()  # of before this connection
        departed = asyncio.Event() if self.reaction is None else self.reaction.departed
        left: tuple[str, ...] = ()
        looked = 0
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                told_at = clock()
                while (since := clock() - told_at) < REPORT_SECONDS - TOGETHER_SECONDS and looked == self._departures():
                    if since >= NEWS_SECONDS and prober.has_news:
                        break
                    wait = max(LOOK_SECONDS, NEWS_SECONDS - since) if prober.probes_itself else REPORT_SECONDS - since
                    await set_or_after(departed, wait)
                    departed.clear()
                if since < LEAST_REPORT_SECONDS:
                    await asyncio.sleep(LEAST_REPORT_SECONDS - since)
                looked = self._departures()
                before, self._dropped = self._dropped, self._drops()
                told, left = left, () if self.reaction is None else self.reaction.links_left
                report = prober.report(max(0, self._dropped - before), left)
                if report.streams or report.dropped or left != told:
                    await channel.send(encode(report))

    def _departures(self) -> int:
        return 0 if self.reaction is None else self.reaction.departures

    async def avoid(self, avoided: Avoided) -> bool:
        """Put a table in force without what the host avoids by itself, controller or not; return False if the kernel refuses."""
        async with self._loading:
            table = self.follower.avoid(avoided)
            if table is None:
                return True
            try:
                await self._swap(table)
            except BpfMapError as error:
                self.follower.not_swapped(error)
                return False
            self.follower.swapped(table)
            self._settling = asyncio.create_task(self._settle())
            return True

    async def _leave(self, channel: ClientConnection) -> None:
        await self.keeper.lost.wait()
        await channel.close(NOT_IN_FORCE, "the labelling program is not on the interface")

    async def _carry_out(self, todo: Reply | Load | Hosts) -> Reply:
        """Put in force what a message leads to; return the answer."""
        if isinstance(todo, Reply):
            return todo
        if isinstance(todo, Hosts) or todo.hosts:
            try:
                await self._note_hosts()  # before the programs are attached: what hosts scatter already is understood
            except BpfMapError as error:
                return self.follower.not_noted(error)
        return await self._load(todo) if isinstance(todo, Load) else todo.answer

    async def _note_hosts(self) -> None:
        if self.labeller.mcs is not None and self.follower.peers is not None:
            await in_thread(self.labeller.mcs.note, self.follower.peers.uses())

    async def _look_at_lease(self) -> None:
        """Stop scattering to hosts of which nothing has been heard for too long."""
        silent = asyncio.get_running_loop().time() - self._heard_at
        peers = self.follower.peers
        if peers is None or silent < LEASE_SECONDS or not peers.forget_permission():
            return
        LOG.warning(
            "%s: no controller for %.0f s: nothing is scattered until it answers. The agent would not notice a host that ends "
            "MCS. Check the controller and the network to it",
            self.follower.address,
            silent,
        )
        try:
            await self._note_hosts()
        except BpfMapError as error:
            LOG.error("%s: connections are scattered nevertheless: %s. Check dmesg and free memory", self.follower.address, error)

    async def _sweep(self, scattering: Scattering) -> NoReturn:
        """Remove the state of idle connections once a second; a refusal is logged once."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await in_thread(scattering.sweep)
                self._sweep_problem = ""
            except BpfError as error:
                if self._sweep_problem != str(error):
                    self._sweep_problem = str(error)
                    LOG.error(
                        "%s: idle connections cannot be removed: %s. Once --flows connections are kept, new ones are not "
                        "scattered. Check dmesg and free memory",
                        self.follower.address,
                        error,
                    )

    async def _load(self, load: Load) -> Reply:
        """Put the table of a version in force, and the program with it."""
        try:
            await self._swap(load.table)
            if load.attach:
                await self.keeper.attach()
        except BpfMapError as error:
            return self.follower.not_loaded(error)
        return self.follower.loaded(load)

    async def _swap(self, table: PathTable) -> None:
        """Put a table in force. What makes the kernel wait is done in a thread, after the swap wherever possible."""
        tables = self.labeller.tables
        if self._settling is not None:
            await self._settling
        if tables.ready_for(table):
            tables.swap(table)
        else:
            await in_thread(tables.swap, table)

    async def _settle(self) -> None:
        try:
            await in_thread(self.labeller.tables.settle)
        except BpfMapError as error:
            LOG.warning("%s: no room for the next path table yet, its swap will take longer: %s",
                        self.follower.address, error)  # fmt: skip


async def _send(channel: ClientConnection, text: str) -> None:
    """Send a message; `OSError` if the channel is closed."""
    try:
        await channel.send(text)
    except websockets.ConnectionClosed as error:
        raise OSError(str(error)) from error
