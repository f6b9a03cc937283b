"""Log messages and help texts are short sentences without semicolons: the bounds are what was reached, and only fall."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from sopa_ryu import options
from sopa_ryu.cli import main

ROOT = Path(__file__).parents[2]
LOGS = {"debug", "info", "warning", "error", "exception", "critical", "_say", "_warn", "_report"}
"""What logs the texts that it is given, or what says something once."""


def text_of(node: ast.AST | None) -> str:
    """Return a literal's text; nothing for what is computed."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def logged() -> Iterator[str]:
    """Yield the literals that are logged; one with ``%s`` that has a name is, too: everything else is formatted by f-strings."""
    for file in (file for package in ("sopa_ryu", "experiments") for file in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGS:
                yield from (text for each in node.args if " " in (text := text_of(each)))
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.keyword) and isinstance(node.value, ast.Constant):
                yield from (text for text in (text_of(node.value),) if "%s" in text)


def helped(command: click.Command = main) -> Iterator[str]:
    """Yield the help of the controller's options, of each command, by paragraphs, and of its options; no examples."""
    if command is main:
        yield from (its.help or "" for its in options._OPTIONS)  # the group's own table
    yield from (part for part in inspect.cleandoc(command.help or "").split("\n\n") if not part.startswith("\b"))
    yield from (its.help for its in command.params if isinstance(its, click.Option) and its.help)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if below := command.get_command(context, name):
                yield from helped(below)


@pytest.mark.parametrize(("texts", "mean"), [pytest.param(logged, 8.3, id="log"), pytest.param(helped, 10.6, id="help")])
def test_texts_are_short(texts: Callable[[], Iterator[str]], mean: float) -> None:
    found = list(dict.fromkeys(texts()))
    sentences = [each for text in found for each in re.split(r"(?<=[.!?])\s+", text) if each]
    assert len(found) > 200
    assert sum(len(each.split()) for each in sentences) / len(sentences) <= mean
    assert [each for each in sentences if len(each.split()) >= 30] == []
    assert [text for text in found if ";" in text] == []
