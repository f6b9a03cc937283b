"""``sopa fabric``: what it says of a file, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from sopa_ryu.cli import main

EXAMPLES = Path(__file__).parents[3] / "deploy/fabrics"
THREE_RACKS = "pods: 1\nedges: 3\naggregations: 2\ncores: 0\nhosts: 2\n"


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["fabric", "check", *map(str, words)])


def concerns(tmp_path: Path, text: str) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the exit status, and the lines and texts of problems and warnings."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    done = check("--json", file)
    body: dict[str, Any] = json.loads(done.output)
    problems, warnings = ([(its["line"], its["text"]) for its in body[key]] for key in ("problems", "warnings"))
    return done.exit_code, problems, warnings


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "leaf-spine",
            ["32x4 leaf-spine fabric, 36 switches, 1536 hosts", "leaf 3:1", "6.4 Tbit/s", "4 between racks"],
        ),
        ("fat-tree", ["(a k=48 fat-tree), 2880 switches", "edge 1:1, aggregation 1:1", "345.6 Tbit/s, 100%"]),
        (
            "three-tier",
            ["a7_3-c3_15 10 Gbit/s", "1 absent (e7_15-a7_3)", "3:1 to 4:1 (e7_15)", "48 to 64 between pods"],
        ),
    ],
)
def test_the_examples_are_explained(name: str, said: list[str]) -> None:
    done = check(EXAMPLES / f"{name}.yaml")
    assert done.exit_code == 0, done.output
    assert "WRONG" not in done.output
    assert "warning" not in done.output
    assert [text for text in said if text not in done.output] == []
    assert max(map(len, done.output.splitlines())) < 140


def test_json_has_the_numbers(tmp_path: Path) -> None:
    body = json.loads(check("--json", EXAMPLES / "leaf-spine.yaml").output)
    assert (body["k"], body["edges"], body["host_count"]) == (None, 32, 1536)
    assert body["switches"] == {"edge": 32, "aggregation": 4, "core": 0}
    assert body["ports"] == {"edge": {"down": 48, "up": 4}, "aggregation": {"down": 32, "up": 0}}
    assert body["oversubscription"] == {"edge": {"least": 3.0, "most": 3.0, "switch": "e0_0"}}
    assert body["bisection"] == {"mbit": 6_400_000.0, "share": pytest.approx(1 / 3), "exact": True}
    assert body["paths"] == {"inter-rack": [{"paths": 4, "pairs": 496, "example": ["e0_0", "e0_1"]}]}
    assert body["gateways"] == ["h0_0_2", "h0_1_2"]
    assert body["problems"] == body["warnings"] == []


def test_a_wrong_file_has_status_3_and_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(THREE_RACKS + "gateways: [h0_9_2]\n")
    done = check(file)
    assert done.exit_code == 3
    assert done.stderr.startswith(f"{file}:6: gateways.h0_9_2: ")
    body = json.loads(check("--json", file).stdout)
    assert [(its["line"], its["key"]) for its in body["problems"]] == [(6, "gateways.h0_9_2")]


@pytest.mark.parametrize("words", [["/nowhere/a.yaml"], ["/"], []])
def test_without_a_file_it_is_a_usage_error(words: list[str]) -> None:
    assert check(*words).exit_code == 2


def test_racks_without_a_path_are_wrong(tmp_path: Path) -> None:
    text = THREE_RACKS + "links:\n  e0_0-a0_0: absent\n  e0_0-a0_1: absent\n  e0_1-a0_0: absent\n  e0_2-a0_1: absent\n"
    status, problems, warnings = concerns(tmp_path, text)
    assert status == 3
    assert problems == [
        (7, "e0_0 has no uplink: its 2 hosts reach no other rack"),
        (9, "1 pairs of racks have no path, as e0_1 and e0_2 (inter-rack)"),
    ]
    assert [line for line, _ in warnings] == [9, 10]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (THREE_RACKS + "links: {e0_1-a0_0: absent}\n", 6, "e0_1 has a single uplink"),
        (THREE_RACKS.replace("aggregations: 2", "aggregations: 1"), 3, "every edge switch has a single uplink"),
        (THREE_RACKS + "mbit:\n  host: 10\n", 6, "the links above edge switches have no rate"),
        (THREE_RACKS + "mbit: {host: 10, edge: 10, aggregation: 10}\n", 6, "mbit.aggregation has no effect"),
        (THREE_RACKS + "links:\n  e0_0-a0_0: 10000\n", 7, "the links above edge switches have no rate"),
        (THREE_RACKS + "gateways: [h0_0_2, h0_0_3]\n", 6, "all gateways are at e0_0"),
        (THREE_RACKS.replace("cores: 0", "cores: 2"), 4, "one pod needs no core switches"),
        (
            "pods: 2\nedges: 2\naggregations: 2\ncores: 2\nhosts: 2\nlinks:\n  a0_0-c0_0: absent\n",
            7,
            "a0_0 has no uplink (1:0)",
        ),
    ],
)
def test_what_is_seldom_meant_is_a_warning(tmp_path: Path, text: str, line: int, said: str) -> None:
    status, problems, warnings = concerns(tmp_path, text)
    assert (status, problems) == (0, [])
    [(its_line, its_text)] = warnings
    assert its_line == line
    assert said in its_text


def test_a_faster_link_than_its_hosts_need_is_fine(tmp_path: Path) -> None:
    assert concerns(tmp_path, THREE_RACKS + "mbit: {host: 1, edge: 1000}\n") == (0, [], [])


def test_the_schema_is_printed() -> None:
    done = CliRunner().invoke(main, ["fabric", "schema"])
    jsonschema.Draft202012Validator.check_schema(json.loads(done.output))
