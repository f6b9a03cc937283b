"""Schemes to compare."""

from __future__ import annotations

from functools import cache

from experiments.schemes import catalogue, hedera
from experiments.schemes.scheme import Fabric, Scheme, SchemeError, Slots
from experiments.suggestions import unknown

__all__ = ["Fabric", "Scheme", "SchemeError", "Slots", "named", "schemes"]


@cache
def schemes() -> dict[str, Scheme]:
    """Return every scheme by name, ordered by name."""
    every = sorted((*catalogue.SCHEMES, *hedera.SCHEMES), key=lambda scheme: scheme.name)
    return {scheme.name: scheme for scheme in every}


def named(text: str) -> Scheme:
    """Return the scheme for ``sopa`` or, with different TCP settings, for ``sopa+fr=6+rack=off``.

    Raises `SchemeError` if the name is unknown. The message lists the schemes.
    """
    name, *settings = text.split("+")
    if name not in schemes():
        raise SchemeError(unknown("scheme", name, schemes()))
    pairs = [setting.partition("=") for setting in settings]
    return schemes()[name].with_settings({key: value for key, _, value in pairs}) if pairs else schemes()[name]
