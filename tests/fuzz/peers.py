"""Peers that lie: sequences of steps as plain text, what has to stay true meanwhile, and the shortest that breaks it."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import click

from tests.fuzz.target import Broken

MAX_STEPS = 8
SHRINK_SECONDS, MAX_TRIES = 900.0, 60
"""So long, and so often, a sequence that breaks something is played anew with fewer steps."""
SAY_EVERY_SECONDS = 30.0


class Peer(Protocol):
    """A peer, and what it talks to, which runs."""

    def play(self, step: str) -> None:
        """Do one step. What the other side makes of it is for `check`; a connection that it has closed is no failure."""

    def check(self) -> None:
        """Raise `Broken` if something is not true that no peer may change: after each step."""

    def heal(self) -> None:
        """Behave from now on, and raise `Broken` unless everything is as at the start soon."""

    def said(self) -> str:
        """Return the figures of what was checked."""


Steps = Sequence[str]
Plan = Callable[[random.Random], Iterator[str]]
"""Yields steps without end."""
Start = Callable[[Path], AbstractContextManager[Peer]]


def played(peer: Peer, steps: Steps) -> None:
    """Play a sequence; raise `Broken` about what does not stay true."""
    for step in steps:
        peer.play(step)
        peer.check()
    peer.heal()
    peer.check()


def campaign(name: str, plan: Plan, start: Start, seed: int, seconds: float = float("inf"), most: float = float("inf")) -> str:
    """Play sequences of a seed, one after another on the same target, and return what was done.

    Raises `Broken` with the shortest sequence that was found to do harm, on a target of its own.
    """
    everything: list[str] = []
    count = 0
    with TemporaryDirectory() as directory, start(Path(directory)) as peer:
        begin = said = time.monotonic()
        while count < most and time.monotonic() < begin + seconds:
            draw = random.Random(f"{seed} {name} {count}")
            steps = [step for step, _ in zip(plan(draw), range(draw.randint(1, MAX_STEPS)), strict=False)]
            everything += steps
            count += 1
            try:
                played(peer, steps)
            except AssertionError as error:
                failure = str(error)
                break
            if time.monotonic() > said + SAY_EVERY_SECONDS:
                said = time.monotonic()
                click.echo(f"{name}: {count} sequences, {len(everything)} steps in {said - begin:.0f} s; {peer.said()}")
        else:
            return f"{name}: {count} sequences, {len(everything)} steps, nothing found; {peer.said()}"
    click.echo(f"{name}, seed {seed}, sequence {count}: {failure}\nlooking for the shortest of: {'; '.join(steps)}", err=True)
    shortest, failure = shortened(steps, everything, start, failure)
    lines = "\n".join(shortest)
    raise Broken(f"{name}, seed {seed}: {failure}\nthe shortest sequence found, for --replay:\n{lines}")


def shortened(steps: Steps, everything: Steps, start: Start, failure: str) -> tuple[Steps, str]:
    """Return the shortest sequence found that does harm to a target of its own, and the harm; else all that was played."""
    until, tries = time.monotonic() + SHRINK_SECONDS, 0
    harm = {tuple(everything): failure}

    def harms(these: Steps) -> bool:
        nonlocal tries
        tries += 1
        if tries > MAX_TRIES or time.monotonic() > until:
            return False
        with TemporaryDirectory() as directory, start(Path(directory)) as peer:
            try:
                played(peer, these)
            except AssertionError as error:
                harm[tuple(these)] = str(error)
                return True
        return False

    for whole in (steps, everything[-4 * MAX_STEPS :]):
        if harms(whole):
            found = ddmin(whole, harms)
            return found, harm[tuple(found)]
    return everything, f"{failure}\n(not again on targets of their own: the sequence has all steps since the start)"


def ddmin(whole: Steps, harms: Callable[[Steps], bool]) -> Steps:
    """Return a part that harms and none of whose steps can be left out (Zeller and Hildebrandt, TSE 2002, section 3.2).

    >>> ddmin("a b c d e f g h".split(), lambda these: {"b", "g"} <= {*these})
    ['b', 'g']
    """
    parts = 2
    while len(whole) >= 2:
        size = -(-len(whole) // parts)
        rests = [[*whole[:at], *whole[at + size :]] for at in range(0, len(whole), size)]
        smaller = next((rest for rest in rests if harms(rest)), None)
        if smaller is not None:
            whole, parts = smaller, max(2, parts - 1)
        elif parts >= len(whole):
            break
        else:
            parts = min(len(whole), 2 * parts)
    return whole


def replay(start: Start, steps: Steps) -> None:
    """Play a sequence on a target of its own; raise `Broken` if it does harm."""
    with TemporaryDirectory() as directory, start(Path(directory)) as peer:
        for step in steps:
            click.echo(step)
            peer.play(step)
            peer.check()
        peer.heal()
        peer.check()
        click.echo(f"nothing found; {peer.said()}")
