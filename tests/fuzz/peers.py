"""Peers that lie: sequences of steps as plain text, what has to stay true meanwhile, and the shortest that breaks it."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import click

MAX_STEPS = 8
SHRINK_SECONDS = 900.0
SAY_EVERY_SECONDS = 30.0


class Broken(AssertionError):
    """The other side did what a peer that lies must not cause."""


class Peer(Protocol):
    """A peer, and what it talks to, which runs. `check` and `heal` raise `Broken`."""

    def play(self, step: str) -> None:
        """Do one step. What the other side makes of it is for `check`; a connection that it has closed is no failure."""

    def check(self) -> None:
        """Check what no peer may change at any time."""

    def heal(self) -> None:
        """Behave from now on; everything has to be as at the start soon."""

    def said(self) -> str:
        """Return figures of what was checked."""


class PeerKind(NamedTuple):
    """How steps are drawn, without end, and how a peer and its target are started, in a directory."""

    plan: Callable[[random.Random], Iterator[str]]
    start: Callable[[Path], AbstractContextManager[Peer]]


def played(peer: Peer, steps: Sequence[str]) -> None:
    for step in steps:
        peer.play(step)
        peer.check()
    peer.heal()
    peer.check()


def replay(kind: PeerKind, steps: Sequence[str]) -> str:
    """Play a sequence on a target of its own, and return what was checked."""
    with TemporaryDirectory() as directory, kind.start(Path(directory)) as peer:
        played(peer, steps)
        return peer.said()


def campaign(name: str, kind: PeerKind, seed: int, seconds: float = float("inf"), most: float = float("inf")) -> str:
    """Play sequences of a seed, one after another on one target; raises `Broken` with the shortest that does harm to a new one."""
    everything: list[str] = []
    with TemporaryDirectory() as directory, kind.start(Path(directory)) as peer:
        begin = said = time.monotonic()
        count = 0
        while count < most and time.monotonic() < begin + seconds:
            draw = random.Random(f"{seed} {name} {count}")
            steps = [step for step, _ in zip(kind.plan(draw), range(draw.randint(1, MAX_STEPS)), strict=False)]
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
    shortest, failure = shortened(kind, (steps, everything), failure)
    lines = "\n".join(shortest)
    raise Broken(f"{name}, seed {seed}: {failure}\nthe shortest sequence found, for --replay:\n{lines}")


def shortened(kind: PeerKind, wholes: Sequence[Sequence[str]], failure: str) -> tuple[Sequence[str], str]:
    """Return the shortest part found of the first sequence that does harm to a new target, and the harm; the last if none does."""
    until = time.monotonic() + SHRINK_SECONDS
    harm: dict[tuple[str, ...], str] = {}

    def harms(steps: Sequence[str]) -> bool:
        if time.monotonic() < until:
            try:
                replay(kind, steps)
            except AssertionError as error:
                harm[tuple(steps)] = str(error)
        return tuple(steps) in harm

    for whole in wholes:
        if harms(whole):
            found = ddmin(whole, harms)
            return found, harm[tuple(found)]
    return wholes[-1], f"{failure}\n(not again on a new target: these are all steps since the start)"


def ddmin(whole: Sequence[str], harms: Callable[[Sequence[str]], bool]) -> Sequence[str]:
    """Return a part that harms and none of whose steps can be left out (Zeller and Hildebrandt, TSE 2002, section 3.2).

    >>> ddmin("a b c d e f g h".split(), lambda these: {"b", "g"} <= {*these})
    ['b', 'g']
    """
    parts = 2
    while len(whole) >= 2:
        size = -(-len(whole) // parts)
        rests = [[*whole[:at], *whole[at + size :]] for at in range(0, len(whole), size)]
        if (smaller := next(filter(harms, rests), None)) is not None:
            whole, parts = smaller, max(2, parts - 1)
        elif parts >= len(whole):
            break
        else:
            parts = min(len(whole), 2 * parts)
    return whole
