"""What operators call the elements of a fabric: aliases, racks and labels of ports. Pure.

Everything inside uses own names. Aliases are translated at the border: `Aliases.own` where a name comes in, `Aliases.within`
where a text goes out.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MAX_TEXT = 63
"""Characters of an alias, a rack or a label."""
ALIAS = r"[A-Za-z](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_OWN = r"(?:[ace][0-9]{1,3}_[0-9]{1,3}|h[0-9]{1,3}_[0-9]{1,3}_[0-9]{1,3})"
KEYS = ("names", "racks", "ports")
"""Of a fabric file."""
OWN_NAME = re.compile(rf"{_OWN}(?:-{_OWN})?")
_IN_TEXT = re.compile(rf"(?<![\w./-])({_OWN}(?:-{_OWN})?)(?![\w-])(?: port ([0-9]{{1,3}})\b)?")


class Aliases:
    """The aliases of switches and hosts, the racks in which these are, and the labels of switches' ports, by own names."""

    def __init__(
        self,
        names: Mapping[str, str] | None = None,
        racks: Mapping[str, str] | None = None,
        ports: Mapping[str, Mapping[int, str]] | None = None,
    ) -> None:
        self.names, self.racks, self.ports = dict(names or {}), dict(racks or {}), dict(ports or {})
        self._own = {alias: name for name, alias in self.names.items()}

    def __bool__(self) -> bool:
        return bool(self.names or self.racks or self.ports)

    def document(self) -> dict[str, Any]:
        """Return them as plain data, with the keys of a fabric file (docs/fabrics.md)."""
        return {key: its for key, its in (("names", self.names), ("racks", self.racks), ("ports", self.ports)) if its}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Aliases:
        """Return those of plain data with the keys of a fabric file, also after JSON; `TypeError` and the like for others."""
        names, racks, ports = (document.get(key, {}) for key in KEYS)
        return cls(names, racks, {name: {int(port): label for port, label in its.items()} for name, its in ports.items()})

    @cached_property
    def tag(self) -> str:
        """Tells these aliases, racks and labels from others; empty if there are none."""
        return f"{zlib.crc32(repr(self.listed()).encode()):08x}" if self else ""

    def own(self, text: str) -> str:
        """Return the own name of what an alias names, a switch, host or link; any other text as it is.

        A link is named by its ends, each with its alias or own name. Raises `ValueError` if a text can be read in two ways.

        >>> aliases = Aliases({"a0_1": "leaf-12", "c0_0": "spine-3"})
        >>> [aliases.own(text) for text in ("leaf-12", "leaf-12-spine-3", "a0_1-spine-3", "a0_1", "leaf-13")]
        ['a0_1', 'a0_1-c0_0', 'a0_1-c0_0', 'a0_1', 'leaf-13']
        """
        if not self._own or OWN_NAME.fullmatch(text):
            return text
        found = {self._own[text]} if text in self._own else set()
        for dash in re.finditer("-", text[: 2 * MAX_TEXT + 2]):
            ends = [self._end(text[: dash.start()]), self._end(text[dash.end() :])]
            if all(ends):
                found.add("-".join(filter(None, ends)))
        if len(found) > 1:
            raise ValueError(f"it may be {' or '.join(sorted(found))}: write which")
        return found.pop() if found else text

    def _end(self, text: str) -> str | None:
        return text if OWN_NAME.fullmatch(text) and "-" not in text else self._own.get(text)

    def alias(self, name: str) -> str | None:
        """Return the alias of a switch, host or link; that of a link has its ends' aliases, where there are any."""
        ends = name.split("-")
        return "-".join(self.names.get(end, end) for end in ends) if any(end in self.names for end in ends) else None

    def beside(self, name: str) -> dict[str, str]:
        """Return what a JSON object has beside an element's own name; a link is in the racks of its ends."""
        racks = dict.fromkeys(self.racks[end] for end in name.split("-") if end in self.racks)
        its = {"alias": self.alias(name), "rack": " and ".join(racks)}
        return {key: value for key, value in its.items() if value}

    def within(self, text: str) -> str:
        """Return a text with its alias behind each own name, and its label behind each port: the way in which names are shown.

        >>> Aliases({"a0_1": "leaf-12"}, ports={"a0_1": {3: "Eth1/3"}}).within("a0_1 port 3, a0_1-c0_0 and a0_1-eth3")
        'a0_1 (leaf-12) port 3 (Eth1/3), a0_1-c0_0 (leaf-12-c0_0) and a0_1-eth3'
        """
        return _IN_TEXT.sub(self._shown, text) if self else text

    def _shown(self, found: re.Match[str]) -> str:
        name, port = found.groups()
        alias, label = self.alias(name), self.ports.get(name, {}).get(int(port or 0))
        shown = name if alias is None or found.string.startswith(f" ({alias})", found.end(1)) else f"{name} ({alias})"
        return shown + (f" port {port}" if port else "") + (f" ({label})" if label else "")

    def shown(self, value: Any) -> Any:
        """Return plain data with every text in it as of `within`, but for commands that mend something: they are for typing."""
        if isinstance(value, str):
            return self.within(value)
        if isinstance(value, list):
            return [self.shown(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {self.within(key): each if key == "mend" else self.shown(each) for key, each in value.items()}

    def listed(self) -> list[dict[str, Any]]:
        """Return an object for each element that has anything, as ``GET /names`` lists them."""
        found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for key, of in (("alias", self.names), ("rack", self.racks), ("ports", self.ports)):
            for name, its in of.items():
                found[name][key] = its
        return [{"name": name, **found[name]} for name in sorted(found)]

    @classmethod
    def of_listed(cls, items: Iterable[Mapping[str, Any]]) -> Aliases:
        """Return those that `listed` has listed, also after JSON."""
        listed = list(items)
        found = ({item["name"]: item[key] for item in listed if key in item} for key in ("alias", "rack", "ports"))
        return cls.of_document(dict(zip(KEYS, found, strict=True)))


NONE = Aliases()
