"""The prompt of ``sopa lab``: Mininet's, with commands that make links bad."""

from __future__ import annotations

from collections.abc import Callable

from mininet.cli import CLI
from mininet.log import error, output

from experiments.cli.lab_tutorial import Tutorial
from experiments.emulation.bad_links import BadLinks
from topologies.lab.faults import set_silent
from topologies.lab.network import Lab
from topologies.structure import TopologyError


class Prompt(CLI):
    """Mininet's prompt, with ``loss``, ``corrupt``, ``slow``, ``silent`` and ``bad``; the seed decides which packets they hit."""

    def __init__(self, lab: Lab, bad: BadLinks, seed: int, script: str | None = None, tutorial: Tutorial | None = None) -> None:
        self._lab, self._bad, self._seed, self._tutorial = lab, bad, seed, tutorial
        if tutorial is not None:
            tutorial.begin()
        super().__init__(lab.net, script=script)

    def onecmd(self, line: str) -> bool:
        """Carry out a command; a tutorial looks at what came of it."""
        ends = bool(super().onecmd(line))
        if self._tutorial is not None:
            self._tutorial.after(line)
        return ends

    def do_loss(self, line: str) -> None:
        """Lose a share of what one switch sends to another, in percent; 0 for none any more.
        Usage: loss a0_0 c0_1 1"""
        self._set(line, "loss", lambda name, towards, share: self._bad.set_loss(name, towards, share, self._seed))

    def do_corrupt(self, line: str) -> None:
        """Flip a bit in a share of what one switch sends to another, in percent; 0 for none any more.
        Usage: corrupt a0_0 c0_1 1"""
        self._set(line, "corrupt", lambda name, towards, share: self._bad.set_corruption(name, towards, share, self._seed))

    def do_slow(self, line: str) -> None:
        """Let what one switch sends to another have a share of the link's rate, in percent; 100 for all of it.
        Usage: slow a0_0 c0_1 25"""
        self._set(line, "slow", self._bad.set_rate)

    def do_silent(self, line: str) -> None:
        """Drop all that one switch sends to another, while both ports stay up, or no longer.
        Usage: silent a0_0 c0_1 [on/off]"""
        words = line.split()
        if len(words) != 3 or words[2] not in ("on", "off"):
            error("usage: silent a0_0 c0_1 [on/off]\n")
            return
        try:
            set_silent(self._lab, self._name(words[0], words[1]), words[1], words[2] == "on")
        except TopologyError as problem:
            error(f"{problem}\n")

    def do_bad(self, _line: str) -> None:
        """Show the packets of each direction with loss or corruption, and how many they hit: since they were set last."""
        for name, towards in self._bad.directions():
            lost, corrupted = self._bad.lost(name, towards), self._bad.corrupted(name, towards)
            counts = f"lost {lost.hit} of {lost.packets} packets, corrupted {corrupted.hit} of {corrupted.packets}"
            output(f"{name} towards {towards}: {counts}\n")

    def _name(self, sender: str, towards: str) -> str:
        tree = self._lab.tree
        return tree.name(tree.link(tree.node(sender), tree.node(towards)))

    def _set(self, line: str, command: str, change: Callable[[str, str, float], None]) -> None:
        try:
            sender, towards, percent = line.split()
            share = float(percent) / 100
        except ValueError:
            error(f"usage: {command} a0_0 c0_1 PERCENT\n")
            return
        try:
            change(self._name(sender, towards), towards, share)
        except (TopologyError, ValueError) as problem:
            error(f"{problem}\n")
