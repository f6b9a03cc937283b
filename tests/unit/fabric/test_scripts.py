"""The controller's core with switches in memory, a script for each rule; `tests.models.scripted_fabric` says what the words do."""

import logging

import pytest

from tests.helpers.golden import Script, each_script
from tests.models.scripted_fabric import World


@each_script(__file__, "coordinator", "channels", "probes")
def test_script(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sopa"):
        script.play(World(lambda: caplog.messages).handle)
