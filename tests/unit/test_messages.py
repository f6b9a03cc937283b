"""Log messages and help texts are short: a count of what is still too long, which may only fall."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def text_of(node: ast.AST) -> str:
    """Return a literal's text; nothing for what is computed."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls() -> Iterator[ast.Call]:
    for package in ("sopa_ryu", "experiments"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield from (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))


def logged() -> list[str]:
    found = (call for call in calls() if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS and call.args)
    return [text for call in found if (text := text_of(call.args[0]))]


def helped() -> list[str]:
    return [text for call in calls() for each in call.keywords if each.arg == "help" and (text := text_of(each.value))]


@pytest.mark.parametrize(
    ("texts", "mean", "too_long", "semicolons"),
    [pytest.param(logged, 12.1, 4, 70, id="log"), pytest.param(helped, 9, 0, 23, id="help")],
)
def test_texts_are_short(texts: Callable[[], list[str]], mean: float, too_long: int, semicolons: int) -> None:
    found = texts()
    lengths = [len(each.split()) for text in found for each in re.split(r"(?<=[.!?])\s+", text) if each]
    assert len(found) > 100
    assert sum(lengths) / len(lengths) <= mean
    assert sum(length > 30 for length in lengths) <= too_long
    assert sum(";" in text for text in found) <= semicolons
