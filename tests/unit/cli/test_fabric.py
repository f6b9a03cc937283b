"""``sopa fabric``: what it says of a file, and its exit status."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from sopa_ryu.cli import main
from tests.helpers.golden import Step, play, scripts

EXAMPLES = Path(__file__).parents[3] / "deploy/fabrics"
THREE_RACKS = ["pods: 1", "edges: 3", "aggregations: 2", "cores: 0", "hosts: 2"]


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["fabric", "check", *map(str, words)])


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
    file.write_text("pods: 1\nedges: 3\naggregations: 2\ncores: 0\nhosts: 2\ngateways: [h0_9_2]\n")
    done = check(file)
    assert done.exit_code == 3
    assert done.stderr.startswith(f"{file}:6: gateways.h0_9_2: ")
    body = json.loads(check("--json", file).stdout)
    assert [(its["line"], its["key"]) for its in body["problems"]] == [(6, "gateways.h0_9_2")]


@pytest.mark.parametrize("script", scripts(__file__, "fabric"), ids=lambda path: path.stem)
def test_what_is_wrong_or_seldom_meant(script: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Check a file with these lines; three racks come first but for ``whole``."""
        lines = [*(THREE_RACKS if step.command == "racks" else []), *step.words]
        file = tmp_path / "a.yaml"
        file.write_text("".join(f"{line}\n" for line in lines))
        done = check("--json", file)
        body = json.loads(done.output)
        told = (
            f"{kind[:-1]}, line {its['line']}: {its['text']}" for kind in ("problems", "warnings") for its in body[kind]
        )
        return "\n".join([f"exit {done.exit_code}", *told])

    play(script, handle, record=request.config.option.record)


@pytest.mark.parametrize("words", [["/nowhere/a.yaml"], ["/"], []])
def test_without_a_file_it_is_a_usage_error(words: list[str]) -> None:
    assert check(*words).exit_code == 2


def test_the_schema_is_printed() -> None:
    done = CliRunner().invoke(main, ["fabric", "schema"])
    jsonschema.Draft202012Validator.check_schema(json.loads(done.output))
