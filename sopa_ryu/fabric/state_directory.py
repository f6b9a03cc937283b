"""What a controller keeps in its state directory: the drains, and the fabric, so that a start says what a changed file changes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sopa_ryu.fabric.drain import Drain, with_drain
from sopa_ryu.runtime.atomic_file import write_atomically
from topologies import Aliases, Clos, Switch, TopologyError
from topologies.aliases import KEYS
from topologies.identity import Shape

LOG = logging.getLogger("sopa")

DRAINS_FILE = "drains.json"
REFUSED = ".refused"
FABRIC_FILE = "fabric.json"
SHOWN = 20
"""Differences that are listed."""


class StateError(RuntimeError):
    """The drains cannot be stored; the text says where and why, and nothing has changed."""


class Drains:
    """The drained links and switches of one fabric.

    Args:
        directory: Where they are stored; created if missing, and locked while the controller runs.
        drainable: Returns a name that may be drained, or raises `ValueError`.

    Raises:
        StateError: If another controller uses the directory. A directory that cannot be written is an error in the log now and
            of the first drain: a controller has to start on a full disk, too.
    """

    def __init__(self, directory: Path, tree: Clos, drainable: Callable[[str], str]) -> None:
        self.drains: dict[str, Drain] = {}
        self._file = directory / DRAINS_FILE
        self._tree = tree
        self._drainable = drainable
        self._lock: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise StateError(
                f"another controller uses {directory}: end it, or choose another directory with --sopa-state-dir"
            ) from None
        except OSError as error:
            LOG.error(
                "%s: %s. Drains will be rejected. Make room, or choose another directory with --sopa-state-dir",
                directory,
                error.strerror,
            )
        self.drains = self._load()

    def close(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add(self, name: str, drain: Drain) -> dict[str, Drain]:
        """Add a link or switch and return all drains; they are safe on disk when this returns.

        Raises:
            TopologyError, ValueError: If it cannot be drained.
            StateError: If the drains cannot be stored.
        """
        return self._keep(with_drain(self.drains, self._drainable(name), drain))

    def remove(self, name: str) -> dict[str, Drain]:
        """Remove a link or switch and return all drains; raises as `add` does."""
        self._drainable(name)
        return self._keep({other: drain for other, drain in self.drains.items() if other != name})

    def _keep(self, drains: dict[str, Drain]) -> dict[str, Drain]:
        if drains != self.drains:
            self._write(drains)
            self.drains = drains
        return drains

    def _write(self, drains: Mapping[str, Drain]) -> None:
        known = {name: drain.report() for name, drain in sorted(drains.items()) if drain != Drain()}
        text = json.dumps({**_of(self._tree), "drained": sorted(drains), **({"details": known} if known else {})})
        try:
            write_atomically(self._file, (text + "\n").encode(), self._file.with_suffix(".new").name)
            if self._lock is not None:
                os.fsync(self._lock)
        except OSError as error:
            raise StateError(f"{self._file} cannot be written: {error.strerror}") from error

    def _load(self) -> dict[str, Drain]:
        try:
            kept = json.loads(self._file.read_text())
            gone, names = _sorted_out(kept["drained"], self._drainable)
            details = kept.get("details", {})
            drains = {name: Drain.of(details.get(name)) for name in sorted(names)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            aside = self._file.with_suffix(REFUSED)
            LOG.error(
                "%s cannot be used: %s. Nothing is drained. The file is now %s. Drain the elements again",
                self._file,
                error,
                aside.name,
            )
            with contextlib.suppress(OSError):
                self._file.replace(aside)
            return {}
        if gone:
            self._set_aside({**kept, "drained": gone}, drains)
        if names:
            LOG.info("still drained from before the start: %s", ", ".join(sorted(names)))
        return drains

    def _set_aside(self, refused: dict[str, Any], drains: Mapping[str, Drain]) -> None:
        """Move the drains of elements that the fabric does not have to a file of their own; the others stay."""
        aside = self._file.with_suffix(REFUSED)
        LOG.error(
            "%s: this fabric has no %s, drained before the start. These drains are now in %s. Drain what has replaced the elements",
            self._file,
            ", ".join(refused["drained"]),
            aside.name,
        )
        with contextlib.suppress(OSError, StateError):  # a full disk: the next start says it again
            aside.write_text(json.dumps(refused) + "\n")
            self._write(drains)


def _sorted_out(drained: list[str], drainable: Callable[[str], str]) -> tuple[list[str], frozenset[str]]:
    """Return the names that cannot be drained, and those that can."""
    gone, names = [], set()
    for name in drained:
        try:
            names.add(drainable(name))
        except ValueError:
            gone.append(name)
    return gone, frozenset(names)


def _of(tree: Clos) -> dict[str, Any]:
    """Return what tells the elements of one fabric from those of another."""
    return {"shape": tree.shape._asdict()} if tree.k is None else {"k": tree.k}


def note_fabric(directory: Path, tree: Clos) -> None:
    """Log what differs from the fabric that was used last, and keep this one for the next start."""
    file, document = directory / FABRIC_FILE, tree.document()
    try:
        before = json.loads(file.read_text())
        found = list(differences({key: its for key, its in before.items() if key not in KEYS}, document))
    except FileNotFoundError:
        found = []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        LOG.warning("%s cannot be read: %s. The controller does not know what has changed since the last start", file, error)
        found = []
    if found:
        LOG.warning(
            "the fabric differs from the one of the last start: %s. Switches and agents get it now. If that is not meant, stop "
            "the controller: they keep what they have",
            _some(found),
        )
    keep_fabric(directory, tree, tree.aliases)


def keep_fabric(directory: Path, tree: Clos, aliases: Aliases) -> None:
    """Keep a fabric, and what operators call its elements, for the next start and for ``sopa token``."""
    file = directory / FABRIC_FILE
    try:
        write_atomically(file, (json.dumps({**tree.document(), **aliases.document()}) + "\n").encode())
    except OSError as error:
        LOG.error("%s cannot be written: %s. The next start cannot say what has changed", file, error.strerror)


class Reading(NamedTuple):
    """A fabric file as it is now: what has changed of names, racks and ports, and of all else, which only a restart takes."""

    fabric: Clos
    named: list[str]
    changed: list[str]


def read_anew(read: Callable[[], Clos], tree: Clos, aliases: Aliases, ports: Mapping[Switch, Collection[int]]) -> Reading:
    """Return what a fabric file has changed; `TopologyError`, with what to do, if a connected switch would not fit it.

    ``ports`` are those of the connected switches.
    """
    new = read()
    changed = list(differences(tree.document(), new.document()))
    wrong = [text for switch in sorted(ports) if (text := _misfit(tree, new, switch, ports[switch]))] if changed else []
    if wrong:
        raise TopologyError(f"{_some(wrong)}. It changes {_some(changed)}")
    return Reading(new, list(differences(aliases.document(), new.aliases.document())), changed)


def _misfit(tree: Clos, new: Clos, switch: Switch, ports: Collection[int]) -> str:
    """Return why a connected switch would not fit another fabric, and what to do; nothing if it does."""
    name = tree.name(switch)
    if not new.has(switch):
        return f"{name} is connected: take SOPA off it first"
    before, now = tree.ports(switch), new.ports(switch)
    moved = [port for port, node in now.items() if before.get(port, node) != node]
    if moved:
        return (
            f"{name} port {moved[0]} would lead to {new.name(now[moved[0]])} instead of {tree.name(before[moved[0]])}: ports of "
            "running switches stay where they are"
        )
    missing = ", ".join(str(port) for port in now if port not in ports)
    return f"{name} has no port {missing}: sopa fabric plan prints what makes it" if missing else ""


def _some(texts: list[str]) -> str:
    """Return texts as one, the first `SHOWN` of them."""
    return "; ".join(texts[:SHOWN]) + (f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two fabrics, or their aliases, as plain data (`Clos.document`), in words.

    >>> before = {"pods": 1, "edges": 3, "links": {"e0_0-a0_0": 10}, "gateways": ["h0_0_2"]}
    >>> list(differences(before, {"pods": 1, "edges": 4, "links": {"e0_0-a0_0": "absent"}}))
    ['edges 4 instead of 3', 'links.e0_0-a0_0 absent instead of 10', 'gateways without h0_0_2']
    """
    for key in Shape._fields:
        if before.get(key) != now.get(key):
            yield f"{key} {now.get(key)} instead of {before.get(key)}"
    for key in ("mbit", "links"):
        old, new = before.get(key, {}), now.get(key, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"{key}.{name} {new.get(name, 'as usual')} instead of {old.get(name, 'as usual')}"
    for key in KEYS:
        old, new = before.get(key, {}), now.get(key, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"{key}.{name} {new.get(name, 'nothing')} instead of {old.get(name, 'nothing')}"
    if before.get("prefix6") != now.get("prefix6"):
        yield f"prefix6 {now.get('prefix6', 'none')} instead of {before.get('prefix6', 'none')}"
    for key in ("gateways", "no_label"):
        old, new = set(before.get(key, ())), set(now.get(key, ()))
        yield from (f"{key} with {name}" for name in sorted(new - old))
        yield from (f"{key} without {name}" for name in sorted(old - new))
