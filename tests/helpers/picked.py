"""Parts of JSON documents, as golden scripts show them."""

import json
from typing import Any


def pick(body: Any, part: str) -> Any:
    """Return a part: ``paths.2`` or ``links.a0_0-c0_1.failure`` of an entry, ``paths.*.up`` of all, ``paths.#`` their number."""
    first, _, rest = part.partition(".")
    if not first:
        return body
    if first == "#":
        return len(body)
    if first == "*":
        return [pick(each, rest) for each in body]
    if isinstance(body, dict):
        return pick(body.get(first), rest)
    return pick(body[int(first)] if first.isdigit() else next(each for each in body if each["name"] == first), rest)


def shown(body: Any, parts: list[str]) -> str:
    """Return a line for each part, all of a document's for ``.``; many equal entries of a list stand once."""
    if parts == ["."]:
        parts = list(body)
    return "\n".join(f"{part}: {_text(pick(body, part))}" for part in parts)


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) > 2 and all(each == value[0] for each in value):
        return f"{len(value)} x {_text(value[0])}"
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "".join(f"\n    {_text(each)}" for each in value)
    return json.dumps(json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 6)))
