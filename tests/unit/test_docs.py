"""The documents: links, files, commands, options and messages that they name exist, and examples in docstrings run."""

import ast
import doctest
import importlib.util
import json
import math
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import experiments
import flowrules
import sopa_ryu
import tests.helpers
import topologies
from sopa_ryu.manager import make_ryu_importable
from tests.helpers.documents import DOCUMENTS, PROMPTS, ROOT, asks, blocks, command_of, typed

PACKAGES = ("topologies", "flowrules", "sopa_ryu", "experiments")
MIN_LITERAL = 12  # characters that a message and its source must have in common to be the same one
VARIABLE = 0.4  # of a word: what a variable part of a message counts for

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def quoted(text: str) -> list[str]:
    """Return what stands between backticks on one line, outside code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def shell_lines(document: Path) -> Iterator[str]:
    for block in blocks(document):
        if block.info[:1] == ["sh"] or block.text.startswith("$ "):
            yield from block.commands()


@every_document
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith("https:"):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@every_document
def test_named_files_exist(document: Path) -> None:
    roots = [ROOT, ROOT / "sopa_ryu", *(ROOT / package for package in PACKAGES), ROOT / "tests/faults"]
    for name in quoted(document.read_text()):
        inside = name.split("/")[0] in (*PACKAGES, "tests", "docs", "deploy", "scripts") and "/" in name
        if (inside or re.fullmatch(r"[\w/]+\.(py|c|h|cc)", name)) and re.fullmatch(r"[\w./@-]+", name):
            found = any((root / name).exists() for root in roots) or any(each.endswith(f"/{name}") for each in files())
            assert found, name


@cache
def files() -> list[str]:
    folders = (*PACKAGES, "tests", "docs", "deploy", "scripts")
    return [str(path) for folder in folders for path in (ROOT / folder).rglob("*")]


@every_document
def test_commands_of_sopa_have_the_options_that_are_shown(document: Path) -> None:
    text = document.read_text()
    inline = [line for line in quoted(text) if line.startswith("sopa ")]
    for line in [*shell_lines(document), *inline]:
        for match in re.finditer(r"(?:^|&& |[(;] ?|sudo |sh |> )(?:\.venv/bin/)?sopa ([a-z][^|&;>)]*)", line):
            words = shlex.split(re.sub(r"[\[\]]", " ", match[1].replace("'", "").replace('"', "")).replace("...", ""))
            if words[0] in ("COMMAND", "lab|demo|experiment"):
                continue
            command, rest = command_of(words)
            options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
            each = (name for its in command.params for name in (*its.opts, *its.secondary_opts))
            known = {"--help", *each}
            assert set(options) <= known, line


@every_document
def test_targets_of_make_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line in [*shell_lines(document), *quoted(document.read_text())]:
        for target in re.findall(r"(?:^|&& )make (?:-C \S+ )?([a-z0-9-]+)", line):
            assert target in targets, line


COMMANDS = ("sopa", "make", "tc", "apt-get", "systemctl", "ovs-vsctl", "etcdctl", "ip", "mn", "pip", "ryu-manager")


@every_document
def test_every_block_of_commands_says_what_runs_it(document: Path) -> None:
    for block in blocks(document):
        if block.info[:1] == ["sh"]:
            assert block.info[1:] in ([], ["elsewhere"], ["long"]), block
        elif not block.text.startswith(PROMPTS):
            first = block.text.removeprefix("sudo ").split(maxsplit=1)[0]
            assert first not in COMMANDS, block.text


def test_commands_run_as_they_are_typed(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "fabric.yaml").write_text("{pods: 4, edges: 2, aggregations: 2, cores: 4, hosts: 2, srv6: {}}\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    lines = [line for line in typed() if not asks(line) and not line.startswith("mn ")]  # tests/lab/test_mn_custom.py has these
    assert len(lines) > 8
    for line in lines:
        here = line.partition(" | ssh ")[0].replace("/root/", f"{tmp_path}/")
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["sh", "-c", here], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert [line for line in typed() if line.startswith("mn ")] == [
        f"mn --custom topologies/fattree.py --topo {topo} --controller remote --switch ovs,datapath=user"
        for topo in ("clos,fabric.yaml", "fattree,4")
    ]


def program(line: str) -> str:
    """Return what a line runs: of make its last command, with what ARGS adds."""
    words = shlex.split(line)
    if words[0] != "make":
        return line
    done = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@every_document
def test_commands_that_take_long_are_understood(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ryu_importable()
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    Path("tests").symlink_to(ROOT / "tests")
    for line in (line for block in blocks(document) if block.info[1:] == ["long"] for line in block.commands()):
        words = shlex.split(program(line.removeprefix("sudo ")).replace("/tmp/steps.txt", "/dev/null"))
        assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
        if words[0].endswith("sopa"):
            command, rest = command_of(words[1:])
        elif words[1:2] == ["-m"] and words[2] != "tests.mutants":  # which has no command of click
            spec = importlib.util.find_spec(words[2])
            assert spec is not None, line
            name = f"{words[2]}.__main__" if spec.submodule_search_locations else words[2]
            command, rest = importlib.import_module(name).main, words[3:]
        else:
            continue
        with command.make_context(line, rest):
            pass  # it closes the files that it has opened


@cache
def messages() -> list[str]:
    """Return every string of the source, its variable parts as ``\\0``."""
    found = set()
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"%[-.\d]*[sdgfrx]", "\0", node.value))
    return sorted(text for text in found if len(text.replace("\0", "")) >= MIN_LITERAL and "\n\n" not in text)


def words(text: str) -> list[str]:
    return [stripped for word in text.split() if (stripped := word.strip("`'\".,;:()"))]


@cache
def reads(word: str, shown: str) -> bool:
    """Tell whether a word of a message, which may have variable parts, can read like another."""
    return word == shown or ("\0" in word and bool(re.fullmatch(".*".join(map(re.escape, word.split("\0"))), shown)))


def likeness(message: list[str], shown: list[str]) -> float:
    """Return how many words of ``shown`` are those of a message, whose beginning it is; a variable part counts less.

    The last variable part may be another message. Minus infinity if ``shown`` is not the message's beginning.
    """
    total = 0.0
    for at, word in enumerate(shown):
        if at >= len(message) or not reads(message[at], word):
            return -math.inf
        if message[at] == "\0" and at + 1 == len(message):
            nested = total > VARIABLE * at and len(shown) - at > 3
            return total + max([VARIABLE, *(likeness(other, shown[at:]) for other in sentences() if nested)])
        total += VARIABLE if "\0" in message[at] else 1
    return total


@cache
def sentences() -> list[list[str]]:
    return [words(message) for message in messages()]


@cache
def begun_by() -> dict[str, list[list[str]]]:
    """Return the messages from each word on, by that word."""
    found: dict[str, list[list[str]]] = {}
    for message in sentences():
        for at, word in enumerate(message):
            found.setdefault(word, []).append(message[at:])
    return found


def endings(first: str) -> Iterator[list[str]]:
    """Yield the messages from each word on that can read like another; first those in which it is the same."""
    yield from begun_by().get(first, ())
    for word, found in begun_by().items():
        if word != first and reads(word, first):
            yield from found


def is_message(text: str) -> bool:
    """Tell whether the source has a message that reads like ``text``, in which ``...`` stands for anything."""
    pieces = [words(piece) for piece in text.split("...") if len(piece.strip()) >= 6]
    return all(any(likeness(ending, piece) > VARIABLE * len(piece) for ending in endings(piece[0])) for piece in pieces)


def rows(document: Path, heading: str) -> list[list[str]]:
    section = document.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("heading", ["Log messages", "Symptoms"])
def test_messages_of_the_guide_are_in_the_source(heading: str) -> None:
    cells = [row[0] for row in rows(ROOT / "docs/troubleshooting.md", heading)[1:]]
    shown = [text for cell in cells for text in quoted(cell)]
    if heading == "Symptoms":  # its symptoms name commands, too
        shown = [text for text in shown if " " in text and not text.startswith("sopa ")]
    assert len(shown) > 8
    assert [text for text in shown if not is_message(text)] == []


def test_the_map_of_the_architecture_names_what_is_there() -> None:
    for question, files, names in rows(ROOT / "docs/architecture.md", "12. Where to look")[1:]:
        paths = [ROOT / name for name in quoted(files) if "/" in name]
        text = "".join(path.read_text() for path in paths if path.is_file())
        assert all(path.exists() for path in paths), question
        assert [name for name in quoted(names) if name not in text] == [], question


def names(schema: Any) -> Iterator[str]:
    """Yield the names of fields, parameters and fixed strings of a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for its in (schema.get("enum", ()), schema.get("examples", ()), [schema.get("name"), schema.get("const")]):
            yield from (each for each in its if isinstance(each, str))
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from names(each)


def test_fields_of_rest_that_the_architecture_names_are_in_the_recorded_contract() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text[text.index("**REST**") : text.index("And everywhere:")]
    known = {"admin", *names(json.loads((ROOT / "tests/contract/recorded/openapi.json").read_text()))}  # a role of tokens
    assert known > {"no_channel", "weight"}
    assert [name for name in quoted(section) if re.fullmatch(r"[a-z_]+", name) and name not in known] == []


def test_sections_that_code_refers_to_exist() -> None:
    for package in (*PACKAGES, "tests"):
        for file in (path for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".c", ".h", ".cc")):
            text = re.sub(r"\n[ #*/]*", " ", file.read_text(errors="replace"))
            for document, section in re.findall(r"docs/([\w-]+\.md), section (\d+)", text):
                assert re.search(rf"^## {section}\. ", (ROOT / "docs" / document).read_text(), re.M), file


def test_the_glossary_is_in_alphabetical_order() -> None:
    lines = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    terms = [line.split("|")[1].strip().lower() for line in lines[1:]]
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def test_the_site_has_every_document_and_the_codes_own_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ryu_importable()
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    monkeypatch.setattr(reference, "OUT", tmp_path)
    reference.make()
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")}
    assert set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())) == set(pages)
    for page, shown in (
        ("commands", "## sopa drain\n"),
        ("options", "| `--sopa-hold-down` | `hold_down` |"),
        ("rest", "`PUT /sopa/v1/drains/{name}`"),
        ("rest", '"a0_0-c0_1": "down"'),
        ("metrics", "| `sopa_switch_up` | dp_name, level"),
        ("messages", "has lost its OpenFlow channel"),
    ):
        assert shown in pages[f"reference/{page}.md"]


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def prose(document: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the sentences, table cells and other lines of a document, without its code blocks; cells have sentences, too."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.M | re.S)
    lines = text.splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [cell.strip() for line in table if set(line) - set("|-: ") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    other = [re.sub(r"^#.*", "", line) for line in lines if not line.startswith("|")]
    items = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", "\n".join(other), flags=re.M)
    found = []
    for part in [*re.split(r"\n\s*\n", items), *cells]:
        read = re.sub(r"`[^`]*`", "CODE", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split())))
        found += [each for each in re.split(r"(?<=[.!?:])\s+(?=[A-Z*(])", read) if len(each.split()) > SHORT]
    return found, cells, other


SHORT = 3  # words: a label, not a sentence


@every_document
def test_prose_is_short(document: Path) -> None:
    sentences, cells, lines = prose(document)
    lengths = sorted(len(sentence.split()) for sentence in sentences)
    assert len(lengths) > 5
    assert sum(lengths) / len(lengths) <= 18
    assert lengths[int(0.9 * len(lengths))] < 30
    assert [sentence for sentence in sentences if ";" in sentence][int(0.03 * len(lengths)) :] == []
    assert [cell for cell in cells if len(cell) > 200] == []
    assert max(map(len, lines)) <= 120


def test_documents_have_at_most_45000_words() -> None:
    """As many as somebody reads in three hours; what is measured is in experiments/RESULTS.md."""
    assert sum(len(document.read_text().split()) for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]) <= 45_000


def modules_with_examples() -> Iterator[str]:
    for package in (topologies, flowrules, sopa_ryu, experiments, tests.helpers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            path = Path(module.module_finder.path) / module.name.rpartition(".")[2]  # type: ignore[union-attr]
            source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
            if ">>> " in source.read_text():
                yield module.name


@pytest.mark.parametrize("name", [*modules_with_examples()])
def test_docstring_examples_run(name: str) -> None:
    make_ryu_importable()
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
