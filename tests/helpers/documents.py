"""The code blocks of the documents, and which tests run their commands.

A block of ``sh`` runs as it is typed: what asks a controller in tests/lab/test_commands.py, all else in tests/unit/test_docs.py.
Words behind ``sh`` say what does not: ``elsewhere`` is typed on other machines, or after a change of the reader's own, and ``long``
takes minutes or hours: tests only read it.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from sopa_ryu.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "experiments/RESULTS.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PROMPTS = ("mininet> ", "$ ")


class Block(NamedTuple):
    """A code block: the words behind its fence, and its text."""

    info: list[str]
    text: str

    def commands(self) -> Iterator[str]:
        """Yield its lines without comments; those that end in a backslash are joined, and are not shown to end there."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if command := re.sub(r"(^|\s+)#.*", "", line).strip():
                yield command


def blocks(document: Path) -> Iterator[Block]:
    for info, text in re.findall(r"^ *```([^\n]*)\n(.*?)^ *```", document.read_text(), re.M | re.S):
        yield Block(info.split(), text)


def typed() -> Iterator[str]:
    """Yield every command of the documents that runs as it is typed, but those at the prompt of the lab."""
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.info == ["sh"] and not block.text.startswith("sudo sopa lab"):
                yield from block.commands()


def transcript(document: str, command: str) -> str:
    """Return what a document shows that a command says."""
    [text] = [
        block.text.partition("\n")[2]
        for block in blocks(ROOT / document)
        if re.split(r"\s+#", block.text.partition("\n")[0])[0] == f"$ {command}"
    ]
    return text


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command of ``sopa`` that words name, and the words behind its name."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


def asks(line: str) -> bool:
    """Tell whether a line is a command of ``sopa`` that asks a controller."""
    words = shlex.split(line)
    return words[0] == "sopa" and any(its.name == "url" for its in command_of(words[1:])[0].params)
