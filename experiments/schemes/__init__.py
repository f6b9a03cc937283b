"""Schemes to compare. Each is a module of this package with a ``SCHEME`` (or ``SCHEMES``): a new one is a new file."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from experiments.schemes.scheme import Fabric, Scheme, SchemeError

__all__ = ["Fabric", "Scheme", "SchemeError", "named", "schemes"]


@cache
def schemes() -> dict[str, Scheme]:
    """Every scheme by its name, in the order of the names."""
    found: dict[str, Scheme] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        loaded = importlib.import_module(module.name)
        for scheme in (*getattr(loaded, "SCHEMES", ()), *([loaded.SCHEME] if hasattr(loaded, "SCHEME") else [])):
            found[scheme.name] = scheme
    return dict(sorted(found.items()))


def named(text: str) -> Scheme:
    """The scheme that is meant by ``sopa`` or, with TCP set otherwise, by ``sopa+fr=6+rack=off``.

    Raises
    ------
    SchemeError
        If there is none; the text lists them.
    """
    name, *settings = text.split("+")
    if name not in schemes():
        near = difflib.get_close_matches(name, schemes(), 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise SchemeError(f"there is no scheme {name!r}: {meant}there are {', '.join(schemes())}")
    pairs = [setting.partition("=") for setting in settings]
    return schemes()[name].with_settings({key: value for key, _, value in pairs}) if pairs else schemes()[name]
