"""Fabric files: a Clos fabric described in YAML (docs/fabrics.md), and all that is wrong with one, by its lines.

``fabric.schema.json`` beside this module describes the form for editors. This module checks it itself, because agents and Mininet's
own Python load it, too; it says more than a schema can, and what would mend it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies import aliases
from topologies.aliases import ALIAS, MAX_TEXT, OWN_NAME, Aliases
from topologies.cabling import ABSENT, LINK_LEVELS, Rate, network6
from topologies.identity import PREFIX6, RANGES, Host, Level, Shape, Switch, TopologyError
from topologies.located_yaml import Entries, Items, Text, Tree, YamlProblem, read
from topologies.structure import Clos
from topologies.usids import BLOCK, block_of, problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SCHEMA = Path(__file__).with_name("fabric.schema.json")
MAX_BYTES = 1 << 20
MIN_MBIT, MAX_MBIT = 1e-3, 1e9
SHOWN = 20
"""Problems of a file that its error message lists."""

KEYS = (*Shape._fields, "mbit", "links", "gateways", "no_label", "prefix6", "srv6", *aliases.KEYS)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_RATE = re.compile(r"[0-9]{1,17}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?")
_ALIAS = re.compile(ALIAS)
_PRINTABLE = re.compile(rf"[!-~](?:[ -~]{{0,{MAX_TEXT - 2}}}[!-~])?")
_NOTHING = {"", "~", "null"}
_ALL_FABRIC = f"a fabric has {', '.join(KEYS)}"
_MENDS = {
    "pods": "addresses are 10.POD.EDGE.HOST, so 255 is all there are; 1 with cores: 0 is a leaf-spine fabric",
    "edges": "edge switches of one pod; more of them need more pods",
    "aggregations": "aggregation switches of one pod, or spines",
    "cores": "give each aggregation switch of a pod as many core switches; 0 is for one pod only, a leaf-spine fabric",
    "hosts": "hosts of one edge switch, .2 to .253 of its /24; more of them need more edge switches",
}


class FabricFileError(TopologyError):
    """A fabric file that cannot be used; ``problems`` are in the order of the lines."""

    def __init__(self, path: Path | str, problems: list[YamlProblem]) -> None:
        self.problems = tuple(sorted(problems))
        lines = [f"{path}:{problem}" for problem in self.problems[:SHOWN]]
        if len(problems) > SHOWN:
            lines.append(f"{path}: and {len(problems) - SHOWN} more")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class FabricDocument:
    """A fabric, and the line of each key of its file: ``pods``, ``mbit.host``, ``links.a0_0-c0_1``, ``gateways.h3_0_2``."""

    fabric: Clos
    lines: Mapping[str, int]


def load(path: Path, prefix6: str | None = None) -> Clos:
    """Return the fabric that a file describes; `TopologyError` if it cannot be read, `FabricFileError` with all that is wrong.

    ``prefix6`` is the fabric's if the file does not say what its is.
    """
    return read_file(path, prefix6).fabric


def read_file(path: Path, prefix6: str | None = None) -> FabricDocument:
    """Read a fabric file; raises as `load` does."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise TopologyError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAX_BYTES:
        problem = YamlProblem(1, "", f"has more than {MAX_BYTES >> 20} MiB", "give a fabric file; links lists exceptions only")
        raise FabricFileError(path, [problem])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = YamlProblem(line, "", f"the byte {content[error.start]:#x} is no UTF-8", "save the file in UTF-8")
        raise FabricFileError(path, [problem]) from None
    return parse(text, path, prefix6)


def parse(text: str, path: Path | str = "fabric file", prefix6: str | None = None) -> FabricDocument:
    """Return the fabric that the text of a file describes, or raise `FabricFileError`; ``path`` is for messages.

    >>> parse("{pods: 1, edges: 3, aggregations: 2, cores: 0, hosts: 48}").fabric.title
    '3x2 leaf-spine fabric'
    """
    problems: list[YamlProblem] = []
    try:
        tree = read(text, problems)
    except ModuleNotFoundError:
        raise TopologyError(f"{path}: this Python has no PyYAML to read fabric files: apt-get install python3-yaml") from None
    if tree is None and not problems:
        problems.append(YamlProblem(1, "", "is empty", _ALL_FABRIC))
    checker = _Checker(problems, prefix6)
    fabric = checker.fabric(tree) if tree is not None else None
    if problems or fabric is None:
        raise FabricFileError(path, problems)
    return FabricDocument(fabric, checker.lines)


def dump(fabric: Clos) -> str:
    """Return the text of a file that describes a fabric."""
    import yaml

    text: str = yaml.safe_dump({**fabric.document(), **fabric.aliases.document()}, sort_keys=False)
    return text


class _Checker:
    """The checks of one document. All are made, so that an operator sees all that is wrong."""

    def __init__(self, problems: list[YamlProblem], prefix6: str | None) -> None:
        self.lines: dict[str, int] = {}
        self._problems = problems
        self._usual6 = prefix6

    def _add(self, line: int, key: str, text: str, mend: str) -> None:
        self._problems.append(YamlProblem(line, key, text, mend))

    def fabric(self, tree: Tree) -> Clos | None:
        if not isinstance(tree, Entries):
            self._add(tree.line, "", "is no mapping of keys to values", _ALL_FABRIC)
            return None
        found = {key.value: value for key, value in tree.values}
        for key, _ in tree.values:
            self.lines[key.value] = key.line
            if key.value not in KEYS:
                self._add(key.line, f"{key.value:.80}", "is no key of a fabric file", _meant(key.value, KEYS, _ALL_FABRIC))
        shape = self._shape(tree.line, found)
        base = None if shape is None else Clos(*shape)
        mbit = self._mbit(found.get("mbit"))
        links = self._links(found.get("links"), base)
        gateways, no_label = (self._hosts(key, found.get(key), base) for key in ("gateways", "no_label"))
        names = self._aliases(found.get("names"), base)
        racks = self._texts("racks", self._nodes("racks", found.get("racks"), base, "{e0_0: B12}"))
        ports = self._ports(found.get("ports"), base)
        prefix6 = self._prefix6(found.get("prefix6"))
        srv6 = self._srv6(found.get("srv6"), shape, prefix6)
        if shape is None or self._problems:
            return None
        fabric = Clos(*shape, mbit=mbit, links=links, gateways=gateways, no_label=no_label, prefix6=prefix6, srv6=srv6)
        fabric.aliases = Aliases(names, racks, ports)
        return fabric

    # -- numbers ------------------------------------------------------------------------------------------------------

    def _shape(self, line: int, found: Mapping[str, Tree]) -> Shape | None:
        before = len(self._problems)
        numbers: dict[str, Any] = {}
        for key in Shape._fields:
            value = found.get(key)
            least, most = RANGES[key]
            if value is None:
                if not any(problem.key == key for problem in self._problems):
                    self._add(line, key, "is missing", f"add {key}: with a number from {least} to {most}")
            elif isinstance(value, Text) and value.plain and _NUMBER.fullmatch(value.value):
                numbers[key] = int(value.value)
            else:
                written = _shown(value)
                mend = "write it in decimal digits, without quotes"
                self._add(self.lines[key], key, f"must be a number from {least} to {most}, not {written}", mend)
        whole = len(numbers) == len(RANGES)
        shape = Shape(**{**{key: least for key, (least, _) in RANGES.items()}, **numbers})
        for key, text in shape.problems():
            if whole or key in numbers:
                self._add(self.lines[key], key, text, _MENDS[key])
        return shape if whole and len(self._problems) == before else None

    # -- links --------------------------------------------------------------------------------------------------------

    def _entries(self, key: str, value: Tree | None, of: str) -> Iterator[tuple[Text, Tree]]:
        """Yield the entries of a mapping; none for a key without a value, as when all its lines are comments."""
        if value is None or (isinstance(value, Text) and value.plain and value.value in _NOTHING):
            return
        if not isinstance(value, Entries):
            self._add(value.line, key, f"must be a mapping, not {_shown(value)}", f"{key} has {of}")
            return
        for name, its in value.values:
            self.lines[f"{key}.{name.value}"] = name.line
            yield name, its

    def _mbit(self, value: Tree | None) -> dict[str, float]:
        found: dict[str, float] = {}
        levels = f"the links above {', '.join(LINK_LEVELS)}"
        for level, rate in self._entries("mbit", value, f"{levels}, as {{host: 10000, edge: 40000}}"):
            key = f"mbit.{level.value:.80}"
            if level.value not in LINK_LEVELS:
                self._add(level.line, key, "is no level", _meant(level.value, LINK_LEVELS, f"mbit has {levels}"))
            elif (mbit := self._rate(rate)) is not None:
                found[level.value] = mbit
            else:
                self._add(rate.line, key, f"must be {_RATES}, not {_shown(rate)}", "give the rate of these links")
        return found

    def _links(self, value: Tree | None, base: Clos | None) -> dict[str, Rate]:
        found: dict[str, Rate] = {}
        for name, rate in self._entries("links", value, "single links, as {a0_0-c0_1: 10000, e1_0-a1_1: absent}"):
            key = f"links.{name.value:.80}"
            is_absent = isinstance(rate, Text) and rate.value == ABSENT
            if base is not None and (wrong := _wrong_link(base, name.value)):
                self._add(name.line, key, *wrong)
            elif is_absent and name.value.startswith("h"):
                self._add(rate.line, key, "a host's link cannot be absent", "remove it: a host's port may stay unused")
            elif is_absent:
                found[name.value] = ABSENT
            elif (mbit := self._rate(rate)) is not None:
                found[name.value] = mbit
            else:
                mend = f"give its rate, or {ABSENT} if the cable is not there"
                self._add(rate.line, key, f"must be {_RATES}, or {ABSENT}, not {_shown(rate)}", mend)
        return found

    @staticmethod
    def _rate(value: Tree) -> float | None:
        if isinstance(value, Text) and value.plain and _RATE.fullmatch(value.value):
            rate = float(value.value)
            if MIN_MBIT <= rate <= MAX_MBIT:
                return int(rate) if rate.is_integer() else rate
        return None

    # -- hosts --------------------------------------------------------------------------------------------------------

    def _hosts(self, key: str, value: Tree | None, base: Clos | None) -> list[str]:
        if value is None or (isinstance(value, Text) and value.plain and value.value in _NOTHING):
            return []
        if not isinstance(value, Items):
            self._add(value.line, key, f"must be a list, not {_shown(value)}", f"{key}: [h0_0_2] lists names of hosts")
            return []
        found: list[str] = []
        for item in value.values:
            if not isinstance(item, Text):
                self._add(item.line, key, f"must list names of hosts, not {_shown(item)}", "a host is named as h0_0_2")
                continue
            name, where = item.value, f"{key}.{item.value}"
            if where in self.lines:
                again = f"is there twice, first in line {self.lines[where]}"
                self._add(item.line, f"{where:.80}", again, "remove one of them: a host has one port")
            elif base is not None and (wrong := _wrong_host(base, name)):
                self._add(item.line, f"{where:.80}", *wrong)
            else:
                found.append(name)
            self.lines.setdefault(where, item.line)
        return found

    def _prefix6(self, value: Tree | None) -> str | None:
        if value is None or (isinstance(value, Text) and value.plain and value.value in _NOTHING):
            return self._usual6
        if isinstance(value, Text) and value.plain and value.value == "none":
            return None
        try:
            return str(network6(_value(value)))
        except TopologyError as error:
            self._add(
                value.line,
                "prefix6",
                str(error).removeprefix("prefix6 "),
                f"the hosts' IPv6 addresses need one, as {PREFIX6}; none for IPv4 only",
            )
        return None

    def _srv6(self, value: Tree | None, shape: Shape | None, prefix6: str | None) -> dict[str, str] | None:
        example = f"srv6: {{block: {BLOCK}}}"
        written = {name.value: _value(its) for name, its in self._entries("srv6", value, f"the block of uSIDs, as {example}")}
        if not written:
            return None
        try:
            block = block_of(written)
        except TopologyError as error:
            assert value is not None
            line = self.lines.get("srv6.block", value.line)
            self._add(line, "srv6", str(error).removeprefix("srv6 "), f"switches' uSIDs need one, as {example}")
            return None
        for text in problems(shape, block, network6(prefix6) if prefix6 else None) if shape else ():
            self._add(self.lines["srv6"], "srv6", text, "leave srv6 out, or give the fabric fewer switches or another block")
        return written

    # -- aliases, racks and labels of ports ---------------------------------------------------------------------------

    def _nodes(self, key: str, value: Tree | None, base: Clos | None, example: str) -> Iterator[tuple[Text, Tree]]:
        """Yield the entries of switches and hosts."""
        for name, its in self._entries(key, value, f"own names of switches and hosts, as {example}"):
            if base is not None and not _is(base.node, name.value):
                text = f"{name.value!r:.40} is no switch or host of a {base.title}"
                self._add(name.line, f"{key}.{name.value:.80}", text, _names_like(base, name.value))
            else:
                yield name, its

    def _texts(self, key: str, entries: Iterator[tuple[Text, Tree]]) -> dict[str, str]:
        found = {}
        for name, text in entries:
            if isinstance(text, Text) and _PRINTABLE.fullmatch(text.value):
                found[name.value] = text.value
            else:
                what = f"must be printable ASCII of 1 to {MAX_TEXT} characters, not {_shown(text)}"
                self._add(text.line, f"{key}.{name.value:.80}", what, "write the text that is at the place")
        return found

    def _aliases(self, value: Tree | None, base: Clos | None) -> dict[str, str]:
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name, alias in self._nodes("names", value, base, "{a0_1: leaf-12}"):
            key, text = f"names.{name.value}", alias.value if isinstance(alias, Text) else ""
            if not _ALIAS.fullmatch(text):
                what = f"must be letters, digits, dots, dashes and underscores, {MAX_TEXT} at most, not {_shown(alias)}"
                self._add(alias.line, key, what, "begin it with a letter, and end it with a letter or digit, as leaf-12")
            elif OWN_NAME.fullmatch(text):
                self._add(alias.line, key, f"{text} is an own name, of this or another element", "choose another alias")
            elif text in taken:
                self._add(alias.line, key, f"{text} is the alias of {taken[text]} already", "give each element its own")
            else:
                found[name.value] = text
                taken[text] = name.value
        return found

    def _ports(self, value: Tree | None, base: Clos | None) -> dict[str, dict[int, str]]:
        found: dict[str, dict[int, str]] = {}
        for name, labels in self._nodes("ports", value, base, "{a0_1: {3: Ethernet1/3}}"):
            key, switch = f"ports.{name.value}", base and base.node(name.value)
            entries = list(self._entries(key, labels, "labels by port, as {3: Ethernet1/3}"))
            most = base.port_count(switch.level) if base is not None and isinstance(switch, Switch) else 0
            for port, _ in entries if base is not None else ():
                if not (_NUMBER.fullmatch(port.value) and 1 <= int(port.value) <= most):
                    mend = f"{name.value} has ports 1 to {most}" if most else "a host's port has no number"
                    self._add(port.line, key, f"{port.value:.40} is no port", mend)
            found[name.value] = {int(port): text for port, text in self._texts(key, iter(entries)).items() if port.isdecimal()}
        return found


_RATES = f"a number of Mbit/s from {MIN_MBIT:g} to {MAX_MBIT:,.0f}"


def _value(value: Tree) -> str:
    """Return a text as it is meant, in quotes or not; of anything else what to call it."""
    return value.value if isinstance(value, Text) else _shown(value)


def _shown(value: Tree) -> str:
    if isinstance(value, Text):
        return f"{value.value:.40}" if value.plain and value.value else f"{value.value!r:.40}"
    return "a list" if isinstance(value, Items) else "a mapping"


def _meant(name: str, known: tuple[str, ...], otherwise: str) -> str:
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}? {otherwise}" if close else otherwise


# -- names of links and hosts, and what would be right -------------------------------------------------------------------


def _wrong_link(base: Clos, name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a link, and what would mend it."""
    lower, dash, upper = name.partition("-")
    if not dash:
        return "is no link", "name both ends, the lower one first, as e0_0-a0_0"
    for end in (lower, upper):
        try:
            base.node(end)
        except TopologyError as error:
            return str(error), _names_like(base, end)
    try:
        base.link_by_name(name)
    except TopologyError as error:
        turned = f"{upper}-{lower}"
        if _is(base.link_by_name, turned):
            return "is named from its upper end", f"call it {turned}"
        node = base.node(lower)
        if isinstance(node, Host):
            return str(error), f"{lower} is at {base.name(base.edge_of(node))}"
        above = [base.name(link.upper) for link in base.links_above(node)]
        return str(error), f"above {lower} are {_range(above)}" if above else f"nothing is above {lower}"
    return None


def _wrong_host(base: Clos, name: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a host, and what would mend it."""
    try:
        base.host(name)
    except TopologyError as error:
        if _is(base.host_by_ip, name):
            return "is an address", f"call it {base.name(base.host_by_ip(name))}"
        return str(error), _names_like(base, f"h{name[1:]}")
    return None


def _is(look_up: Callable[[str], object], name: str) -> bool:
    try:
        look_up(name)
    except ValueError:
        return False
    return True


def _names_like(base: Clos, name: str) -> str:
    """Return the range of the names that begin as this one."""
    last = base.pods - 1
    if name.startswith("h"):
        return f"hosts are h0_0_2 to {base.name(Host(last, base.edges - 1, base.hosts_per_edge + 1))}"
    for level in Level:
        size = base.group_size(level)
        if base.name(Switch(level, 0, 0))[0] == name[:1]:
            kind = f"{level.name.lower()} switches"
            ends = [base.name(Switch(level, *place)) for place in ((0, 0), (base.groups(level) - 1, size - 1))]
            return f"{kind} are {' to '.join(ends)}" if size else f"this fabric has no {kind}"
    return "names are h0_0_2 for hosts, e0_0, a0_0 and c0_0 for edge, aggregation and core switches"


def _range(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
