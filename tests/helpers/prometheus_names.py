"""Metric names in PromQL expressions, and the expressions of the dashboard in deploy/grafana."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/sopa.json"

_STRING = re.compile(r""" "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*` """, re.VERBOSE)
_COMMENT = re.compile(r"#.*")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.IGNORECASE)
_NAMED_BY_LABEL = re.compile(r"""\b__name__\s*=\s*(["'`])(sopa_\w+)\1""")
_NAME = re.compile(r"(?<![\w:$])sopa_\w+(?![\w:])")


def bare(expr: str) -> str:
    """A PromQL expression without its strings, comments, label matchers, durations and groupings."""
    without_strings = _COMMENT.sub("", _STRING.sub('""', expr))
    return _GROUPING.sub(" ", re.sub(r"\[[^]]*\]|\{[^}]*\}", " ", without_strings))


def metric_names(expr: str) -> set[str]:
    """The metrics named ``sopa_`` and something for which a PromQL expression asks."""
    return set(_NAME.findall(bare(expr))) | {name for _, name in _NAMED_BY_LABEL.findall(expr)}


def dashboard() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return parsed


def panels() -> Iterator[dict[str, Any]]:
    """The dashboard's panels, rows and what is folded into them included."""
    for panel in dashboard()["panels"]:
        yield panel
        yield from panel.get("panels", ())


def dashboard_expressions() -> list[str]:
    """Every PromQL expression of the dashboard: its panels' and those that the values of its variables come from."""
    variables = [variable["query"] for variable in dashboard()["templating"]["list"] if variable["type"] == "query"]
    queries = [query if isinstance(query, str) else query["query"] for query in variables]
    return queries + [target["expr"] for panel in panels() for target in panel.get("targets", ())]
