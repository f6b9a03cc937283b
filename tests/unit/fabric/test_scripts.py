"""The controller's core with switches in memory, a script for each rule; `tests.models.scripted_fabric` says what the words do."""

import logging
from pathlib import Path

import pytest

from tests.helpers.golden import play, scripts
from tests.models.scripted_fabric import World


@pytest.mark.parametrize(
    "script",
    [script for subject in ("coordinator", "channels", "probes") for script in scripts(__file__, subject)],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_script(script: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sopa"):
        play(script, World(lambda: caplog.messages).handle, record=request.config.option.record)
