"""Make the site's sources in build/docs: the documents, and a reference from the code's own tables (``make docs``)."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from oslo_config import cfg

from sopa_ryu import options
from sopa_ryu.cli import main
from sopa_ryu.rest.interface import operations
from sopa_ryu.rest.openapi import document
from sopa_ryu.runtime.metrics import Row

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/docs"
ELSEWHERE = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "experiments/RESULTS.md": "results.md",
}
ANSWERS = {
    "a link is down": ("GET /fabric", "GET /failures", "GET /paths?src=10.0.0.2&dst=10.2.1.3", "GET /changes?limit=1"),
    "a switch and a link are drained": ("GET /drains",),
    "cables lead elsewhere": ("GET /wiring",),
}
LEVELS = ("info", "warning", "error", "critical", "exception")


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(map(cell, row)) + " |\n" for row in lines) + "\n"


def linked(text: str, folder: Path) -> str:
    """Return a document with links that fit the site; of a file that is not on it only the name is left."""

    def one(found: re.Match[str]) -> str:
        name, _, anchor = found[2].partition("#")
        if found[2].startswith("https:") or not name:
            return found[0]
        path = (folder / name).resolve().relative_to(ROOT)
        if path.parts[0] == "docs":
            on_site: str | None = str(path.relative_to("docs"))
        else:
            on_site = ELSEWHERE.get(str(path))
        return f"[{found[1]}]({on_site}{'#' if anchor else ''}{anchor})" if on_site else found[1]

    fences = re.sub(r"^( *```sh) \w+$", r"\1", text, flags=re.M)  # the site's Markdown takes no second word
    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", one, fences)


def commands(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a command of ``sopa`` and those below it."""
    yield f"## {context.command_path}\n\n```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n\n"
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        text = part.replace("\f", "")
        yield f"```\n{text[2:]}\n```\n\n" if text.startswith("\b\n") else f"{cell(text)}\n\n"
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if records:
        yield table(("option", "meaning"), [(f"`{name}`", text) for name, text in records])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if below := command.get_command(context, name):
                yield from commands(below, click.Context(below, context, name))


def controller() -> str:
    conf = cfg.ConfigOpts()
    options.register(conf)
    found = sorted(options._OPTIONS, key=lambda its: its.name)  # the group's own table
    return table(("option", "in sopa.conf", "meaning"), [(f"`--sopa-{its.name}`", f"`{its.dest}`", its.help) for its in found])


class Unasked:
    """Stands for a fabric and its traces: the document has the names of what answers, and asks nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def answer(*_: object) -> None:
            """Answer nothing."""

        answer.__name__ = name
        return answer


def rest() -> str:
    nobody: Any = Unasked()
    described: dict[str, Any] = document(operations(nobody, nobody))
    rows = [
        (f"`{method.upper()} {path}`", its.get("summary", ""), " ".join(f"`{name}`" for name in its["responses"]))
        for path, methods in described["paths"].items()
        for method, its in methods.items()
        if "responses" in its
    ]
    return table(("request", "what it does", "status"), rows)


def answers() -> Iterator[str]:
    """Yield the answers of a k=4 fabric, as the contract's test has recorded and compares them."""
    recorded = json.loads((ROOT / "tests/contract/recorded/rest.json").read_text())
    for situation, asked in ANSWERS.items():
        yield f"## When {situation}\n\n"
        for request in asked:
            body = json.dumps(recorded[situation][request]["body"], indent=2)
            yield f"`{request.replace(' /', ' /sopa/v1/')}`\n\n```json\n{body}\n```\n\n"


def metric_rows(module: object) -> Iterator[Row[Any]]:
    for value in vars(module).values():
        if isinstance(value, list | tuple) and not isinstance(value, Row):
            yield from (its for its in value if isinstance(its, Row))


def metrics() -> Iterator[str]:
    for file in sorted((ROOT / "sopa_ryu").rglob("*.py")):
        if "Row(" not in file.read_text():
            continue
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        rows = {its.name: its for its in metric_rows(importlib.import_module(name))}
        if rows:
            of_counters = [(its.name + ("_total" if "Counter" in its.kind.__name__ else ""), its) for its in rows.values()]
            yield f"## {name}\n\n"
            yield table(
                ("metric", "labels", "meaning"), [(f"`{full}`", ", ".join(its.labels), its.text) for full, its in of_counters]
            )


def log_messages() -> list[tuple[str, str, str]]:
    """Return level, text and module of each call of a logger whose text stands in it."""
    found = set()
    for file in sorted((ROOT / "sopa_ryu").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and node.args:
                text = node.args[0]
                if isinstance(text, ast.Constant) and isinstance(text.value, str) and " " in text.value:
                    name = str(file.relative_to(ROOT / "sopa_ryu").with_suffix(""))
                    found.add((re.sub(r"%[-.\d]*[sdgfrx]", "...", text.value), node.func.attr, name))
    return sorted(found)


def write(name: str, title: str, text: str) -> None:
    (OUT / "reference" / name).write_text(f"# {title}\n\n{text}")


def make() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "reference").mkdir(parents=True)
    for file in sorted((ROOT / "docs").iterdir()):
        if file.suffix == ".md":
            (OUT / file.name).write_text(linked(file.read_text(), file.parent))
        else:
            shutil.copy(file, OUT)
    for name, to in ELSEWHERE.items():
        file = ROOT / name
        (OUT / to).write_text(linked(file.read_text(), file.parent))
    statuses = "Exit status: 0 all is well, 1 no answer or a failure, 2 wrong usage, 3 something is not well.\n\n"
    context = click.Context(main, info_name="sopa")
    write("commands.md", "Commands", statuses + "".join(commands(main, context)))
    write("options.md", "Options of the controller", controller())
    recorded = "A test compares these answers. `<number>` and `<text>` stand for what varies.\n\n" + "".join(answers())
    write("rest.md", "REST", "All paths are below the controller's URL. `/openapi.json` has the schemas.\n\n" + rest() + recorded)
    write("metrics.md", "Metrics", "".join(metrics()))
    said = [(f"`{text.replace('`', '')}`", level, module) for text, level, module in log_messages()]
    more = "[Troubleshooting](../troubleshooting.md#log-messages) says what to do. `...` stands for what varies.\n\n"
    write("messages.md", "Log messages", more + table(("message", "level", "module"), said))
    write("configuration.md", "Configuration file", f"```ini\n{(ROOT / 'deploy/sopa.conf').read_text()}```\n")


if __name__ == "__main__":
    make()
