"""Schemes to compare. A scheme is a module of this package with ``SCHEME`` or ``SCHEMES``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from experiments.schemes.scheme import Fabric, Scheme, SchemeError
from experiments.suggestions import unknown

__all__ = ["Fabric", "Scheme", "SchemeError", "named", "schemes"]


@cache
def schemes() -> dict[str, Scheme]:
    """Return every scheme by name, ordered by name."""
    found: dict[str, Scheme] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        loaded = importlib.import_module(module.name)
        for scheme in (*getattr(loaded, "SCHEMES", ()), *([loaded.SCHEME] if hasattr(loaded, "SCHEME") else [])):
            assert scheme.name not in found, f"two schemes have the name {scheme.name}"
            found[scheme.name] = scheme
    return dict(sorted(found.items()))


def named(text: str) -> Scheme:
    """Return the scheme for ``sopa`` or, with different TCP settings, for ``sopa+fr=6+rack=off``.

    Raises:
        SchemeError: If the name is unknown. The message lists the schemes.
    """
    name, *settings = text.split("+")
    if name not in schemes():
        raise SchemeError(unknown("scheme", name, schemes()))
    pairs = [setting.partition("=") for setting in settings]
    return schemes()[name].with_settings({key: value for key, _, value in pairs}) if pairs else schemes()[name]
