"""The choice of a lab's datapath, whatever this machine's kernel has."""

import click
import pytest

from experiments.cli.lab_isolation import AUTO, chosen_datapath
from topologies.lab import datapath
from topologies.lab.datapath import DatapathKind, NoDatapathError, choose


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(datapath, "kernel_has_it", lambda: "openvswitch" in request.param)
    monkeypatch.setattr(datapath, "_has_tun", lambda: "tun" in request.param)


@pytest.mark.parametrize(
    ("kernel", "wanted", "chosen"),
    [
        ("openvswitch tun", None, DatapathKind.KERNEL),
        ("openvswitch", None, DatapathKind.KERNEL),
        ("tun", None, DatapathKind.USER),
        ("openvswitch tun", DatapathKind.USER, DatapathKind.USER),
        ("openvswitch", DatapathKind.KERNEL, DatapathKind.KERNEL),
        ("tun", DatapathKind.KERNEL, "openvswitch"),  # a module that is missing is named, and what to do
        ("openvswitch", DatapathKind.USER, "tun"),
        ("", None, "tun"),
    ],
    indirect=["kernel"],
)
def test_the_kernels_is_taken_unless_another_is_wanted(
    kernel: None, wanted: DatapathKind | None, chosen: DatapathKind | str
) -> None:
    if isinstance(chosen, DatapathKind):
        assert choose(wanted) is chosen
    else:
        with pytest.raises(NoDatapathError, match=f"no module {chosen} .*modprobe {chosen}"):
            choose(wanted)


@pytest.mark.parametrize("kernel", ["tun"], indirect=True)
def test_the_command_says_so_in_a_line(kernel: None) -> None:
    assert chosen_datapath(AUTO) is DatapathKind.USER
    with pytest.raises(click.ClickException, match="use --datapath user"):
        chosen_datapath("kernel")
