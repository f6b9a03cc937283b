"""The fabric that the controller of a state directory used last, so that a start says what a changed file changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sopa_ryu.runtime.atomic_file import write_atomically
from topologies import Clos
from topologies.identity import Shape

LOG = logging.getLogger("sopa")

FILE = "fabric.json"
SHOWN = 20
"""Differences that are listed."""


def note(directory: Path, tree: Clos) -> None:
    """Log what differs from the fabric that was used last, and keep this one for the next start.

    Args:
        directory: The state directory.
        tree: The fabric that the controller is about to use.
    """
    file, document = directory / FILE, tree.document()
    try:
        before = json.loads(file.read_text())
        found = list(differences(before, document))
    except FileNotFoundError:
        found = []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        LOG.warning("%s cannot be read: %s; what has changed since the last start is not known", file, error)
        found = []
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        LOG.warning(
            "the fabric differs from the one of the last start: %s%s; switches and agents get it now: stop the controller if "
            "that is not meant, they keep what they have",
            "; ".join(found[:SHOWN]),
            more,
        )
    try:
        write_atomically(file, (json.dumps(document) + "\n").encode())
    except OSError as error:
        LOG.error("%s cannot be written: %s; the next start cannot say what has changed", file, error.strerror)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two fabrics as plain data (`Clos.document`), in words.

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
    for key in ("gateways", "no_label"):
        old, new = set(before.get(key, ())), set(now.get(key, ()))
        yield from (f"{key} with {name}" for name in sorted(new - old))
        yield from (f"{key} without {name}" for name in sorted(old - new))
