"""What a lab has by default: links' rates and BFD's interval, from what a packet costs a machine, and the datapath."""

import click
import pytest

from experiments.cli.lab_isolation import AUTO, chosen_datapath
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, FatTree
from topologies.lab import datapath
from topologies.lab.links import at_rate, bfd_interval_ms, calibrated_rate, default_rate

UNEVEN = Clos(2, 2, 2, 4, 3, mbit={"host": 10_000, "edge": 25_000, "aggregation": 40_000},
              links={"e0_0-a0_1": 5_000, "h1_1_3-e1_1": 1_000, "a0_0-c0_0": "absent"}, gateways=["h0_0_2"])  # fmt: skip


def handle(step: Step) -> str:
    """Say what links of a fabric of these five numbers have on machines on which a packet costs so many microseconds."""
    tree = Clos(*map(int, step.words), links=dict.fromkeys(step.options.get("absent", "").split(), "absent"))
    processors = int(step.options.get("processors", 2))
    told = [f"{default_rate(tree):.6g} Mbit/s, BFD every {bfd_interval_ms(tree)} ms"]
    for cost in map(float, step.options.get("cost", "").split()):
        user, kernel = (calibrated_rate(tree, cost * 1e-6, is_kernel, processors) for is_kernel in (False, True))
        told.append(f"{cost:g} us: {user:g} Mbit/s, {kernel:g} in the kernel, BFD every {bfd_interval_ms(tree, cost * 1e-6)} ms")
    return "\n".join(told)


@each_script(__file__, "lab_rates")
def test_rates_and_intervals(script: Script) -> None:
    script.play(handle)


@pytest.mark.parametrize("rate", [0.1, 4.0, 333.3])
def test_links_of_a_lab_are_in_proportion_to_those_of_the_fabric(rate: float) -> None:
    lab = at_rate(UNEVEN, rate)
    assert list(lab.links()) == list(UNEVEN.links())
    assert lab.gateways == UNEVEN.gateways
    for link in UNEVEN.links():
        assert lab.capacity(link) == pytest.approx(UNEVEN.capacity(link) * rate / 10_000)
    assert lab.in_mbit


def test_without_rates_all_links_have_the_same_but_those_that_are_named() -> None:
    lab = at_rate(Clos(1, 2, 2, 0, 2, links={"e0_1-a0_1": 0.5, "e0_0-a0_0": "absent"}), 4.0)
    found = {lab.name(link): lab.capacity(link) for link in lab.links()}
    assert found.pop("e0_1-a0_1") == 2.0
    assert set(found.values()) == {4.0}
    assert at_rate(FatTree(4), 4.0).k == 4


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
