"""Recorded values: what of them is masked, how two of them are compared, and how they are stored."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "recorded"
NUMBER, TEXT = "<number>", "<text>"
HEALTHY = "healthy"
WIDTH = 240
"""A row of a list, such as a link or a flow entry, is one line of a file."""
SHOWN = 120

NUMBERS = {"at", "bytes", "epoch", "greenlets", "held_seconds", "lag_seconds", "last_contact_seconds", "packets", "pid", "since"}
NUMBERS |= {"acknowledged_ms", "installed_ms", "down_bits_per_second", "up_bits_per_second"}
NUMBERS |= {"memory_mib", "open_files", "pauses_faults"}
"""Fields whose numbers differ from run to run; that one is null is recorded."""
TEXTS = {"description", "detail", "does", "help", "peer", "short_help", "summary"}
"""Fields that hold prose or a peer's port."""
VERSIONS = {"base", "rules_version", "version"}
_ETAG = re.compile(r'^(W/)?"(\d+-\d+-)?[0-9a-f]{8,16}"$')


def masked(value: Any, version: int = 0, field: str = "") -> Any:
    """Return a field's JSON value without what differs from run to run and without prose; versions are counted from one."""
    if isinstance(value, Mapping):
        if "dpid" in value and "reason" in value:  # a rejected datapath: its reason is a sentence
            value = {**value, "reason": TEXT}
        # Python 3.13 has the phrases of RFC 9110
        if value.get("type") == "about:blank" and value["title"] == HTTPStatus(value["status"]).phrase:
            value = {**value, "title": "<phrase>"}
        if "lag" in value and not value.get("version", 1):  # an agent that has acknowledged nothing yet
            value = {**value, "lag": NUMBER}
        return {name: masked(each, version, name) for name, each in value.items()}
    if isinstance(value, str):
        return TEXT if field in TEXTS else "<etag>" if _ETAG.match(value) else value
    if isinstance(value, list):
        # a list of numbers is one of indices, such as the path of each packet
        return [masked(each, version, field if field in TEXTS else "") for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if field in NUMBERS:
        return NUMBER
    return value - version if field in VERSIONS and value else value


def differences(recorded: Any, now: Any, path: str) -> list[str]:
    """Return a line for each field that differs, is missing or is new, with its path."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        found = []
        for name in (*recorded, *(name for name in now if name not in recorded)):
            where = path + name
            if name not in now:
                found.append(f"{where}: recorded {_shown(recorded[name])}, now missing")
            elif name not in recorded:
                found.append(f"{where}: not recorded, now {_shown(now[name])}")
            else:
                # behind a request's address a space, behind a sentence a colon
                deeper = isinstance(recorded[name], Mapping) and isinstance(now[name], Mapping)
                joint = " " if "/" in name else ": " if " " in name or name == HEALTHY else "."
                found += differences(recorded[name], now[name], where + joint if deeper else where)
        return found
    if isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            places = range(max(len(recorded), len(now)))
            at = next(n for n in places if recorded[n : n + 1] != now[n : n + 1])  # every later item differs, too
            rest = _shown(recorded[at:] or now[at:])
            return [f"{path}: recorded {len(recorded)} items, now {len(now)}; from [{at}] on {rest}"]
        found = []
        for number, (one, other) in enumerate(zip(recorded, now, strict=True)):
            deeper = isinstance(one, Mapping) and isinstance(other, Mapping)
            found += differences(one, other, f"{path}[{number}]{'.' if deeper else ''}")
        return found
    # 1 and 1.0 and true are equal in Python
    if type(recorded) is type(now) and recorded == now:
        return []
    return [f"{path}: recorded {_shown(recorded)}, now {_shown(now)}"]


def summary(found: list[str]) -> list[str]:
    """Return differences with those left out that are like an earlier one, in another item or situation."""
    alike: dict[str, list[str]] = {}
    for line in found:
        alike.setdefault(re.sub(r"\[\d+\]", "[]", re.sub(r"^[^/:]+: ", "", line)), []).append(line)
    return [lines[0] + (f" (and {len(lines) - 1} more like it)" if len(lines) > 1 else "") for lines in alike.values()]


def _shown(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def load(name: str) -> Any:
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str, value: Any) -> Path:
    """Store a value under a name; keys sorted, what fits in one line in one line."""
    DIRECTORY.mkdir(exist_ok=True)
    file = DIRECTORY / f"{name}.json"
    file.write_text(_text(value, 0) + "\n", encoding="utf-8")
    return file


def _text(value: Any, depth: int) -> str:
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(line) + depth <= WIDTH or not isinstance(value, dict | list):
        return line
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        inner = [f"{pad}{json.dumps(key, ensure_ascii=False)}: {_text(value[key], depth + 1)}" for key in sorted(value)]
        return "{\n" + ",\n".join(inner) + f"\n{pad[1:]}}}"
    return "[\n" + ",\n".join(pad + _text(each, depth + 1) for each in value) + f"\n{pad[1:]}]"
