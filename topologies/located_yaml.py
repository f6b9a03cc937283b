"""YAML with line numbers: one document of mappings, lists and texts, and all that is wrong with its form. Pure.

A file from elsewhere must not cost more than its length: it is read event by event, so that neither aliases nor depth multiply
anything, and no tag makes an object of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Union

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 3
"""Mappings and lists inside one another; a fabric file has labels by port by switch."""
_HOPELESS = 20
"""Depth at which reading ends: PyYAML looks at every open bracket for each token."""


class YamlProblem(NamedTuple):
    """Something that is wrong with a file: at a line from 1, a key as ``links.a0_0-c0_1`` (empty for the file's form), a remedy."""

    line: int
    key: str
    text: str
    mend: str

    def __str__(self) -> str:
        said = f"{self.line}: {f'{self.key}: ' if self.key else ''}{self.text}: {self.mend}"
        # what a file contains is shown on terminals and in logs
        return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in said)


class Text(NamedTuple):
    """A scalar as it is written; ``plain`` is false for one in quotes, which is no number."""

    value: str
    line: int
    plain: bool = True


class Items(NamedTuple):
    """A list."""

    values: tuple[Tree, ...]
    line: int


class Entries(NamedTuple):
    """A mapping; each key occurs once."""

    values: tuple[tuple[Text, Tree], ...]
    line: int


Tree = Union[Text, Items, Entries]  # noqa: UP007 - evaluated when the module is loaded, by whichever Python Mininet runs on


def read(text: str, problems: list[YamlProblem]) -> Tree | None:
    """Return the document, and add what is wrong with its form to ``problems``; None if the text is no YAML, or empty.

    Parts that cannot be read are left out of the document.
    """
    import yaml  # not everywhere where the package is: Mininet's own Python may lack it

    try:
        return _Reader(yaml.parse(text, Loader=yaml.BaseLoader), problems).document()
    except _TooDeepError:
        pass
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(YamlProblem(line, "", f"the character {error.character:#x} is no text", "remove it"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        mend = "indent with spaces" if "'\\t'" in said else "docs/fabrics.md has the form, with examples"
        problems.append(YamlProblem(mark.line + 1 if mark else 1, "", f"is no YAML: {said}", mend))
    return None


class _TooDeepError(Exception):
    """A part is nested so deep that the rest of the document is not read; the problem is noted."""


class _Reader:
    """The events of a YAML parser, and what they make up."""

    def __init__(self, events: Iterator[Any], problems: list[YamlProblem]) -> None:
        self._events = events
        self._problems = problems

    def document(self) -> Tree | None:
        found: Tree | None = None
        seen = False
        for event in self._events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                if seen:
                    self._add(event, "", "a second document starts here", "a fabric file has one: write another file")
                    return found
                seen = True
                found = self._tree(next(self._events), 0, "")
        return found

    def _add(self, event: Any, key: str, text: str, mend: str) -> None:
        self._problems.append(YamlProblem(event.start_mark.line + 1, f"{key:.80}", text, mend))

    def _tree(self, event: Any, depth: int, where: str) -> Tree | None:
        kind, line = type(event).__name__, event.start_mark.line + 1
        if kind == "AliasEvent":
            self._add(event, where, f"*{event.anchor:.40} is an alias", "write out what it stands for")
            return None
        if event.anchor is not None:
            mend = "leave it out, and write out what refers to it"
            self._add(event, where, f"&{event.anchor:.40} is an anchor", mend)
        if event.tag is not None:
            self._add(event, where, f"{event.tag:.40} is a tag", "leave it out")
        if kind == "ScalarEvent":
            return Text(event.value, line, event.style is None)
        if depth == MAX_DEPTH:
            self._add(event, where, "is nested too deep", "docs/fabrics.md has the form, with examples")
            self._skip()
            return None
        if kind == "SequenceStartEvent":
            items = (self._tree(item, depth + 1, where) for item in self._until("SequenceEndEvent"))
            return Items(tuple(item for item in items if item is not None), line)
        return Entries(tuple(self._entries(depth + 1, where)), line)

    def _entries(self, depth: int, where: str) -> Iterator[tuple[Text, Tree]]:
        seen: dict[str, int] = {}
        for event in self._until("MappingEndEvent"):
            key = self._tree(event, MAX_DEPTH, where)
            inside = ".".join(part for part in (where, key.value if isinstance(key, Text) else "") if part)
            value = self._tree(next(self._events), depth, inside)
            if not isinstance(key, Text):
                continue
            if key.value in seen:
                self._add(event, inside, f"is there twice, first in line {seen[key.value]}", "remove one of them")
            elif value is not None:
                yield key, value
            seen.setdefault(key.value, key.line)

    def _until(self, kind: str) -> Iterator[Any]:
        for event in self._events:
            if type(event).__name__ == kind:
                return
            yield event

    def _skip(self) -> None:
        """Pass over the rest of a mapping or list that has begun."""
        unfinished = 1
        while unfinished:
            if unfinished > _HOPELESS:
                raise _TooDeepError
            kind = type(next(self._events)).__name__
            unfinished += {"MappingStartEvent": 1, "SequenceStartEvent": 1}.get(kind, 0)
            unfinished -= {"MappingEndEvent": 1, "SequenceEndEvent": 1}.get(kind, 0)
