"""``sopa fabric``: what it says of a file, and its exit status."""

import json
from pathlib import Path

import jsonschema
from click.testing import CliRunner, Result

from sopa_ryu.cli import main
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.picked import shown

EXAMPLES = Path(__file__).parents[3] / "deploy/fabrics"
THREE_RACKS = ["pods: 1", "edges: 3", "aggregations: 2", "cores: 0", "hosts: 2"]


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["fabric", "check", *map(str, words)])


@each_script(__file__, "fabric")
def test_what_is_wrong_or_seldom_meant(script: Script, tmp_path: Path) -> None:
    def handle(step: Step) -> str:
        """Check an example, also for its numbers, or a file with these lines; ``racks`` puts three racks before them."""
        if step.command in ("plan", "diff", "srv6"):
            files = [tmp_path / f"{number}.yaml" for number in range(len(step.words))]
            for path, text in zip(files, step.words, strict=True):
                path.write_text(f"{{{text}}}\n")
            options = [f"{name}={value}".removesuffix("=") for name, value in step.options.items()]
            done = CliRunner().invoke(main, ["fabric", step.command, *map(str, files), *options])
            return f"{done.output}exit {done.exit_code}".replace(str(tmp_path), "DIR")
        if step.command == "example":
            done = check(EXAMPLES / f"{step.words[0]}.yaml")
            numbers = shown(json.loads(check("--json", EXAMPLES / f"{step.words[0]}.yaml").output), step.words[1:])
            return f"{done.output}\nexit {done.exit_code}\n{numbers}".replace(str(EXAMPLES), "EXAMPLES")
        lines = [*(THREE_RACKS if step.command == "racks" else []), *step.words]
        file = tmp_path / "a.yaml"
        file.write_text("".join(f"{line}\n" for line in lines))
        done = check(file)
        body = json.loads(check("--json", file).output)
        told = [f"{kind} {json.dumps(its)}" for kind in ("problems", "warnings") for its in body.get(kind, [])]
        return "\n".join([f"exit {done.exit_code}", *told, done.stderr]).replace(str(tmp_path), "DIR")

    script.play(handle)


def test_the_schema_is_printed() -> None:
    done = CliRunner().invoke(main, ["fabric", "schema"])
    jsonschema.Draft202012Validator.check_schema(json.loads(done.output))
