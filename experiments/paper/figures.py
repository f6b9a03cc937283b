"""All figures by name: of sections 3 and 4 of the SOPA paper, of the PLTS, the MCS and the CFR paper, from ``figures.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from experiments.paper.figure import Bars, Figure, Part, Row, Variant
from topologies import Clos

FILE = Path(__file__).with_name("figures.yaml")

Values = dict[str, Any]
"""What the names in braces stand for."""


def _read(text: str) -> Mapping[str, Figure]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {one["name"]: _figure(one) for one in yaml.load(text, loader)["figures"]}


def _figure(one: Values) -> Figure:
    parts = tuple(_part(spec, values) for spec in one["parts"] for values in _each(spec, {}))
    variants = tuple(
        Variant(**{**variant, "options": _flat(variant.get("options", ()))}) for variant in one["variants"]
    )
    rows = tuple(row for spec in one["rows"] for row in _rows(spec, parts[0].name, {}))
    bars = _bars(**one["bars"]) if "bars" in one else None
    return Figure(one["name"], one["source"], parts, rows, variants, tuple(one.get("notes", ())), bars)


def _part(spec: Values, values: Values) -> Part:
    fields = _filled({name: value for name, value in spec.items() if name != "for"}, values)
    fabric = Clos(**fields["fabric"]) if "fabric" in fields else None
    options = _flat(fields.get("options", ()))
    return Part(**{**fields, "schemes": _named(fields["schemes"]), "options": options, "fabric": fabric})


def _rows(spec: Any, part: str, values: Values) -> Iterator[Row]:
    if isinstance(spec, list):
        title, scheme, measure, *numbers = (_filled(cell, values) for cell in spec)
        yield Row(title, part, scheme, measure, *numbers)
        return
    for further in _each(spec, values):
        for one in spec["rows"]:
            yield from _rows(one, _filled(spec["part"], further) if "part" in spec else part, further)


def _bars(groups: Values, schemes: list[str], **fields: Any) -> Bars:
    by_label = {str(_filled(groups["label"], values)): _filled(groups["part"], values) for values in _each(groups, {})}
    return Bars(groups=by_label, schemes=tuple(schemes), **fields)


def _each(spec: Values, values: Values) -> Iterator[Values]:
    """Yield the values with those of each combination in ``for``."""
    names = [name.split(", ") for name in spec.get("for", {})]
    choices = (_named(choice) for choice in spec.get("for", {}).values())
    for chosen in product(*choices):
        further = dict(values)
        for several, value in zip(names, chosen, strict=True):
            further |= zip(several, value, strict=True) if len(several) > 1 else {several[0]: value}
        yield further


def _named(values: list[Any]) -> tuple[Any, ...]:
    """Return a list's values, with the names that ``for`` makes in the place of it."""
    return tuple(
        one
        for value in values
        for one in ([_filled(value["name"], each) for each in _each(value, {})] if isinstance(value, dict) else [value])
    )


def _filled(value: Any, values: Values) -> Any:
    """Return a value with the names in braces replaced; what is such a name as a whole keeps its type."""
    if isinstance(value, dict):
        return {name: _filled(one, values) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    if value[:1] == "{" and value[1:-1] in values:
        return values[value[1:-1]]
    return value.format_map(values)


def _flat(options: Any) -> tuple[str, ...]:
    return tuple(one for each in options for one in (_flat(each) if isinstance(each, list) else (each,)))


FIGURES: Mapping[str, Figure] = _read(FILE.read_text())
"""All figures by name; those with the longest runs are last."""
