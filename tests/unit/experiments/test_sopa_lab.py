"""What a lab starts, before it starts it."""

from pathlib import Path

from experiments.emulation.sopa_lab import SopaLab
from experiments.schemes.slots import Slots
from topologies import FatTree
from topologies.lab.management import ROOT


def test_the_arbiter_of_a_cluster_runs_beside_the_agents_and_knows_all_controllers(tmp_path: Path) -> None:
    its = SopaLab(FatTree(4), 4.0, slots=Slots(), controllers=3, directory=tmp_path)
    assert its.cluster is not None
    assert its.arbiter is not None
    command = its.arbiter.command
    assert command[:2] == ["nsenter", "--net=/run/netns/agents"]
    urls = [word.partition("=")[2] for word in command if word.startswith("--controller=")]
    assert urls == [its.cluster.url_of(name) for name in ("controller1", "controller2", "controller3")]
    assert f"--metrics-host={its.agents_address}" in command
    assert its.lab.beyond == ROOT.network


def test_a_lab_with_one_controller_has_all_on_the_labs_own_machine(tmp_path: Path) -> None:
    its = SopaLab(FatTree(4), 4.0, slots=Slots(), directory=tmp_path)
    assert its.arbiter is not None
    assert "nsenter" not in its.arbiter.command
    assert [word for word in its.arbiter.command if word.startswith("--controller=")] == [
        f"--controller={its.controller.url}"
    ]
    assert its.lab.beyond is None
