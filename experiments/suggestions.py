"""Error messages for names that do not exist. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error message for a name that does not exist.

    >>> unknown("scheme", "sopp", ["ecmp", "sopa"])
    "unknown scheme 'sopp': did you mean sopa? expected one of ecmp, sopa"
    """
    every = list(known)
    near = "".join(f"did you mean {one}? " for one in difflib.get_close_matches(name, every, 1))
    return f"unknown {kind} {name!r}: {near}expected one of {', '.join(every)}"
