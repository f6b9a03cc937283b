"""The keeper of an interface, by scripts with a virtual clock: when it looks, how often it puts something right."""

import logging
from collections import Counter
from contextlib import closing
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.host.mending import Part
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel.changes import InterfaceChange
from tests.helpers.agent_log import log_lines
from tests.helpers.golden import Script, Step, each_script
from tests.models.memory_labeller import MemoryChanges, MemoryInterface, MemoryLabeller, MemoryPlace, MemorySettings
from tests.models.virtual_clock import VirtualLoop


class Kept:
    def __init__(self, loop: VirtualLoop, caplog: pytest.LogCaptureFixture) -> None:
        self.loop, self.caplog = loop, caplog

    def handle(self, step: Step) -> str:
        getattr(self, "do_" + step.command)(*step.words)
        mended = ", ".join(f"{part} {count}" for part, count in self.mended.items()) or "nothing"
        state = "in force" if self.keeper.found.is_set() else "not in force"
        ended = f"ended: {self.task.exception()}" if self.task.done() else ""
        assert len(self.looks) == self.settings.reads  # what wants to look does so with the settings
        read = f"settings read {self.settings.reads} times"
        return "\n".join([f"{state}; {read}; put right: {mended}", ended, *log_lines(self.caplog)])

    def do_interface(self) -> None:
        self.loop.end_tasks()
        self.interface, self.mended, self.looks = MemoryInterface(), Counter[Part](), list[float]()
        self.settings, labeller = MemorySettings(self.interface), MemoryLabeller(self.interface)
        labeller.attach()
        place = MemoryPlace(self.interface, IPv4Address("10.0.0.2"))
        self.keeper = Keeper(place, labeller, self.settings, MemoryChanges(self.interface), self.mended)
        self.keeper.looks.append(lambda: self.looks.append(self.loop.time()))
        self.task = self.loop.create_task(self.keeper.run())

    def do_wait(self, seconds: str) -> None:
        self.loop.advance(float(seconds))

    def do_set(self, part: str) -> None:
        """Have a setting changed, of which nothing tells."""
        self.interface.wrong[Part(part)] = f"{part} was set to something else"

    def do_contest(self, part: str, seconds: str) -> None:
        """Have something changed twice a second, with notifications."""
        for _ in range(2 * int(seconds)):
            if part == Part.PROGRAM:
                self.interface.remove_program()
            else:
                self.do_set(part)
                self.interface.notify(InterfaceChange.LINK)
            self.loop.advance(0.5)

    def do_notify(self, times: str) -> None:
        for _ in range(int(times)):
            self.interface.notify(InterfaceChange.LINK)
            self.loop.advance(0.01)

    def do_remove(self) -> None:
        """Remove the namespace, of which nothing tells."""
        self.interface.away = "/run/netns/blue is gone, or another namespace"


@each_script(__file__, "keeper")
def test_keeper(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.agent")
    with closing(VirtualLoop()) as loop:
        script.play(Kept(loop, caplog).handle)
