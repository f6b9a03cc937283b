"""The keeper of a taken interface: notices what other programs change there, puts right what is the agent's, and says the rest.

The rule: a version is acknowledged only while the interface is the one that was taken and the agent's programs are on it. While
they are not, the agent is not connected, so that the controller lists its host as one without an agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import NoReturn, Protocol

from sopa_ryu.agent.host.mending import CONTEST, MAX_WAIT_SECONDS, TICK_SECONDS, InterfaceAway, MendingPace, Part
from sopa_ryu.agent.host.threads import in_thread
from sopa_ryu.agent.host_settings import SettingsError
from sopa_ryu.agent.kernel.changes import InterfaceChange
from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.netns import NetnsError

LOG = logging.getLogger("sopa.agent")

LOOK_SECONDS = 5.0
"""The interval of looking without a notification: a namespace that is removed makes none."""
SETTINGS_SECONDS = 30.0
"""The interval of reading settings without a notification: sysctls and gso_max_segs make none."""
PAUSE_SECONDS = 1.0
"""Between two readings of the settings, however many notifications come."""
_LOOKED_AT = (Part.PROGRAM, Part.PROBES)
_EFFECT = {
    Part.PROGRAM: "packets are unlabelled",
    Part.SEGMENTS: "the packets of a burst share a label",
    Part.REORDERING: "TCP takes reordering for loss sooner",
    Part.MIN_RTT: "TCP takes reordering for loss sooner",
    Part.MTU: "large packets are unlabelled",
    Part.PROBES: "other hosts' probes are not answered, and this host's paths are not judged",
}


class Taken(Protocol):
    """The interface that was taken: `Place`."""

    ifindex: int
    address: IPv4Address

    @property
    def interface(self) -> object:
        """Its name, for messages."""

    def check(self) -> None:
        """Raise `InterfaceAway` unless it is still there."""

    def check_address(self) -> None:
        """Raise `InterfaceAway` unless it has its address."""


class Notifications(Protocol):
    """What tells that something has changed: `Changes`."""

    def take(self, *ifindexes: int) -> InterfaceChange:
        """Return what has changed at these interfaces since the last call."""

    async def wait(self, seconds: float) -> None:
        """Return when something has changed, or after so many seconds."""


class Programs(Protocol):
    """What labels: `Labeller`."""

    def is_attached(self) -> bool:
        """Return False if what `attach` attached is not there any more."""

    def attach(self) -> None:
        """Attach it."""

    def answers_probes(self) -> bool:
        """Return False if the program that does is not there any more."""

    def attach_probes(self) -> None:
        """Attach that."""

    def follow(self, fabric_mtu: int, cut_by: int) -> None:
        """Note another MTU of the fabric, and another segmentation device."""


class SettingsInForce(Protocol):
    """What is set for it: `HostSettings`."""

    fabric_mtu: int
    cut_by: int

    def changed(self) -> dict[Part, str]:
        """Return what is not as it was set."""

    def mend(self) -> None:
        """Set it again."""

    def limit_bursts(self, segments: int) -> None:
        """Limit bursts to so many packets."""


class Keeper:
    """The keeper of one taken interface.

    Args:
        changes: Opened before settings and programs were put in place.
        mended: What was put right so far; it is counted on.

    Attributes:
        wrong: What is not as it has to be, and is not put right now.
        lost: Set while a version cannot be in force.
        found: Set while it can.
        looks: Called, in a thread, whenever the settings are read.
    """

    def __init__(
        self, place: Taken, programs: Programs, settings: SettingsInForce, changes: Notifications, mended: Counter[Part]
    ) -> None:
        self.place = place
        self.mended = mended
        self.wrong: dict[Part, str] = {}
        self.lost, self.found = asyncio.Event(), asyncio.Event()
        self.found.set()
        self.looks: list[Callable[[], None]] = []
        self._programs, self._settings, self._changes = programs, settings, changes
        self._paces = {part: MendingPace() for part in Part}
        self._unread = InterfaceChange.NOTHING
        self._settings_due = 0.0
        self._settings_read = -PAUSE_SECONDS
        self._refusals: dict[Part, str] = {}
        self._looking = asyncio.Lock()
        self._unattached = False

    async def confirm(self) -> bool:
        """Return True if what the interface's programs are to do is in force at this moment.

        Raises:
            InterfaceAway: If the interface is not the one that was taken.
        """
        self._take()
        if self._unread or self._looking.locked() or self.lost.is_set():
            await self._look()
        return self.found.is_set()

    async def run(self) -> NoReturn:
        """Keep the interface until cancelled.

        Raises:
            InterfaceAway: If the interface is not the one that was taken.
        """
        loop = asyncio.get_running_loop()
        self._settings_due = loop.time() + SETTINGS_SECONDS
        while True:
            await self._changes.wait(self._patience(loop.time()))
            self._take()
            await self._look()
            if self._settings_due <= loop.time() + TICK_SECONDS:
                await self._look_at_settings()

    def _patience(self, now: float) -> float:
        """Return how long to wait for the next notification."""
        due = [self._settings_due, now + LOOK_SECONDS]
        due += [self._paces[part].due_at for part in _LOOKED_AT if part in self.wrong]
        return max(0.0, min(due) - now)

    def _take(self) -> None:
        """Note what has changed."""
        change = self._changes.take(self.place.ifindex, self._settings.cut_by)
        if change:
            now = asyncio.get_running_loop().time()
            self._unread |= change
            self._settings_due = min(self._settings_due, max(now, self._settings_read + PAUSE_SECONDS))

    async def attach(self) -> None:
        """Attach the programs in a killed agent's place; if that is refused, they are not in force, and it is tried again."""
        async with self._looking:
            self._unattached = True
            try:
                await in_thread(self._attach)
            except (BpfError, NetnsError) as error:
                self._refuse(Part.PROGRAM, "the labelling program cannot be attached", error)
            self._set_in_force(Part.PROGRAM not in self.wrong)

    async def limit_bursts(self, segments: int) -> None:
        """Limit TCP's bursts to so many packets; a refusal is logged."""
        async with self._looking:
            try:
                await in_thread(self._settings.limit_bursts, segments)
            except (NetnsError, OSError, SettingsError) as error:
                LOG.error(
                    "%s: cannot limit bursts to %d packets: %s. Bursts longer than a slot are not sent. Check dmesg",
                    self.place.address,
                    segments,
                    error,
                )

    def _attach(self) -> None:
        self._programs.attach()
        self._unattached = False

    async def _look(self) -> None:
        """Look at the interface and its programs, and attach those that are gone."""
        async with self._looking:
            unread, self._unread = self._unread, InterfaceChange.NOTHING
            try:
                self.place.check()
                if unread & InterfaceChange.ADDRESS:
                    await in_thread(self.place.check_address)
                there = not self._unattached and self._programs.is_attached()
                answers = self._unattached or self._programs.answers_probes()
            except (BpfError, NetnsError, OSError) as error:
                raise InterfaceAway(f"{self.place.interface} cannot be read: {error}") from error
            if there:
                self._set_right(Part.PROGRAM)
            else:
                text = f"the labelling program was removed from {self.place.interface}"
                await self._mend(Part.PROGRAM, text, self._attach)
            if answers:
                self._set_right(Part.PROBES)
            else:
                text = f"the program that answers probes was removed from {self.place.interface}"
                await self._mend(Part.PROBES, text, self._programs.attach_probes)
            self._set_in_force(Part.PROGRAM not in self.wrong)

    async def _look_at_settings(self) -> None:
        """Read the settings that labelling needs, and set those again that another program has changed."""
        async with self._looking:
            self._settings_read = asyncio.get_running_loop().time()
            self._settings_due = self._settings_read + SETTINGS_SECONDS
            for look in self.looks:
                await in_thread(look)
            try:
                changed = await in_thread(self._settings.changed)
            except (NetnsError, SettingsError) as error:
                self.place.check()  # away: otherwise the reason is one of its own
                LOG.error("%s: %s. The settings are read again in %g s", self.place.address, error, SETTINGS_SECONDS)
                return
            for part in (Part.SEGMENTS, Part.REORDERING, Part.MIN_RTT, Part.MTU):
                if part in changed:
                    await self._mend(part, changed[part], self._set_again)
                else:
                    self._set_right(part)

    async def _mend(self, part: Part, text: str, mend: Callable[[], None]) -> None:
        """Put a part right if its time has come, and say what happened; otherwise note that it is wrong."""
        now, pace, address = asyncio.get_running_loop().time(), self._paces[part], self.place.address
        if not pace.due(now):
            self._set_wrong(part, text)
            return
        pace.note(now)
        try:
            await in_thread(mend)
        except (BpfError, NetnsError, OSError, SettingsError) as error:
            self.place.check()  # if it is away, that is what there is to say
            self._refuse(part, text, error)
            return
        self._set_right(part)
        self.mended[part] += 1
        if not pace.contested:
            LOG.warning("%s: %s: put right. Until then %s. Find the program that did it", address, text, _EFFECT[part])
        elif pace.times == CONTEST:
            LOG.error(
                "%s: %s again and again: put right at most every %g s from now on. Until then %s. End the program that does it, "
                "or this agent",
                address,
                text,
                MAX_WAIT_SECONDS,
                _EFFECT[part],
            )

    def _refuse(self, part: Part, text: str, error: Exception) -> None:
        """Note that a part cannot be put right; the reason is logged once."""
        if self._refusals.get(part) != str(error):
            self._refusals[part] = str(error)
            LOG.error(
                "%s: %s, and cannot be put right: %s. Until then %s. The agent tries again every %g s or sooner",
                self.place.address,
                text,
                error,
                _EFFECT[part],
                MAX_WAIT_SECONDS,
            )
        self._set_wrong(part, text)

    def _set_right(self, part: Part) -> None:
        self.wrong.pop(part, None)
        self._refusals.pop(part, None)

    def _set_wrong(self, part: Part, text: str) -> None:
        self.wrong[part] = text
        if part not in _LOOKED_AT:
            self._settings_due = min(self._settings_due, self._paces[part].due_at)

    def _set_in_force(self, is_so: bool) -> None:
        if is_so:
            self.lost.clear()
            self.found.set()
        else:
            self.found.clear()
            self.lost.set()

    def _set_again(self) -> None:
        self._settings.mend()
        self._programs.follow(self._settings.fabric_mtu, self._settings.cut_by)
