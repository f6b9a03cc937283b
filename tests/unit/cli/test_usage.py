"""Commands as they are typed wrongly: usage errors, before anything is changed or asked."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main
from tests.helpers.golden import Step, play, scripts

AGENT = ["--iface", "nowhere0", "--controller", "http://127.0.0.1:1"]


def handle(step: Step) -> str:
    """Type a command, an agent's with an interface and a controller; return its exit status and its last line."""
    words = [*step.words, *(f"{option}={value}" for option, value in step.options.items())]
    done = CliRunner().invoke(main, [step.command, *(AGENT if step.command == "agent" else []), *words])
    last = done.output.splitlines()[-1].removeprefix("Error: ")
    return f"{done.exit_code}: {re.sub('; there are .*?;', ';', last)}"  # the interfaces of this machine


@pytest.mark.parametrize("script", scripts(__file__, "usage"), ids=lambda path: path.stem)
def test_usage(script: Path, request: pytest.FixtureRequest) -> None:
    play(script, handle, record=request.config.option.record)
