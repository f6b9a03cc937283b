"""The choice of a lab's datapath, whatever this machine's kernel has."""

import click
import pytest

from experiments.cli.lab_isolation import AUTO, chosen_datapath
from tests.helpers.golden import Script, Step, each_script
from topologies.lab import datapath


@each_script(__file__, "datapath")
def test_the_kernels_is_taken_unless_another_is_wanted(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(step: Step) -> str:
        """Say what ``--datapath`` leads to where the kernel has these modules."""
        monkeypatch.setattr(datapath, "kernel_has_it", lambda: "openvswitch" in step.words)
        monkeypatch.setattr(datapath, "_has_tun", lambda: "tun" in step.words)
        try:
            return chosen_datapath(AUTO if step.command == "auto" else step.command)
        except click.ClickException as error:
            return f"refused: {error}"

    script.play(handle)
