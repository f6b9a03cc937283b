"""What names of schemes and workloads and the simulator's options stand for, and what is said of those that are none."""

import re
from dataclasses import asdict

import pytest

from experiments.ns3 import check
from experiments.ns3.simulation_options import OPTIONS, SimulationOptionError, parse
from experiments.paper.figures import FIGURES
from experiments.schemes import SchemeError, named, schemes
from experiments.workloads import Scale, WorkloadError
from experiments.workloads import named as workload
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, FatTree

LEAVES = Clos(1, 3, 2, 0, 3)


def scheme_of(text: str) -> str:
    """Return a variant's name, and what it has otherwise than the scheme itself."""
    its = named(text)
    plain = asdict(schemes()[its.name.partition("+")[0]])
    changed = {key: value for key, value in asdict(its).items() if value != plain[key] and key not in ("name", "summary")}
    return "\n".join([its.name, *(f"    {key} {value}" for key, value in changed.items())])


def plan_of(text: str, k: str) -> str:
    """Return how many transfers a workload has in a fat-tree, or in the leaf-spine fabric ``leaves``."""
    tree = LEAVES if k == "leaves" else Clos(1, 1, 1, 0, 1) if k == "one" else FatTree(int(k))
    return f"{len(workload(text).build(tree, 1, Scale(4.0, 20.0)).transfers)} transfers"


def told_of(text: str, k: str, also: str = "", rate: str = "4", seconds: str = "20", seed: str = "1") -> str:
    """Return what a workload plans; its transfers are those of the workload ``also``, or stand on a line each."""
    tree, scale = LEAVES if k == "leaves" else FatTree(int(k)), Scale(float(rate), float(seconds))
    plan = workload(text).build(tree, int(seed), scale)
    after = "before the start" if plan.fail_after is None else f"after {plan.fail_after:.2f} s"
    lines = [f"{plan.seconds:g} s, traced {', '.join(map(str, plan.traced)) or 'nothing'}"]
    lines += [f"core links of {plan.core_rate:g} of their rate"] if plan.core_rate < 1 else []
    lines += [f"{' '.join(plan.failed)} fails {after}"] if plan.failed else []
    for bad in plan.bad:
        lines.append(f"{bad.link} towards {bad.towards} after {bad.after:g} s: {bad.loss:g} lost, {bad.corruption:g} corrupted, "
                     f"rate {bad.rate:g}, crossed by {' '.join(map(str, bad.transfers))}")  # fmt: skip
    if also:
        assert plan.transfers == workload(also).build(tree, int(seed), scale).transfers
        return "\n".join([*lines, f"transfers of {also}"])
    for one in plan.transfers:
        size = "all the time" if one.bytes is None else f"{one.bytes} bytes"
        when = f" from {one.start:.2f} s" * (one.start > 0) + f" after {' '.join(map(str, one.after))}" * bool(one.after)
        lines.append(f"{tree.name(one.src)} {tree.name(one.dst)} {one.kind} {size}{when}".replace("  ", " "))
    return "\n".join(lines)


def figure_of(name: str) -> str:
    """Return the flows of each part of a paper's figure, and the fabric that they have."""
    lines = []
    for part in FIGURES[name].parts:
        transfers = workload(part.workload).build(part.tree, 1, Scale(part.rate_mbit, part.seconds)).transfers
        sizes = ", ".join(sorted({str(one.bytes or "all the time") for one in transfers}))
        lines.append(f"{part.name}: {len(transfers)} of {sizes} at {part.rate_mbit:g} Mbit/s in {part.tree!r}")
    return "\n".join(lines)


def handle(step: Step) -> str:
    """Return what a scheme, workload, plan, paper's figure or options are, or why the simulator has no such scheme.

    Of an error it is the beginning, and all of it to ``explain``.
    """
    command, *words = ([step.command] if step.command != "explain" else []) + step.words
    k = step.options.pop("k", "4")
    text = [*words, *(f"{key}={value}" for key, value in step.options.items())]
    try:
        if command == "scheme":
            return scheme_of(text[0])
        if command == "fields":
            names = step.options["of"].split()
            return "\n".join(f"{name}: {' '.join(str(getattr(named(name), each)) for each in words)}" for name in names)
        if command == "plan":
            name = words[0] if words else next(f"{key}={step.options.pop(key)}" for key in [*step.options] if "+" in key)
            return told_of(name, k, **step.options)
        if command == "simulator":
            check(named(text[0]))
            return ""
        if command == "figure":
            return figure_of(text[0])
        if command == "workload":
            return plan_of(text[0], k)
        assert command == "set"
        return " ".join(f"{name} {value}" for name, value in parse(text).items())
    except (SchemeError, WorkloadError, SimulationOptionError) as error:
        what_there_is = ": expected one of| expected one of"
        return f"refused: {error if step.command == 'explain' else re.split(what_there_is, str(error))[0]}"


def test_every_default_of_the_simulator_is_a_value_and_none_is_given_twice() -> None:
    for name, option in OPTIONS.items():
        assert option.parse(option.default) is not None, name
        assert option.description
    with pytest.raises(SimulationOptionError, match="twice"):
        parse(("spread=1ms", "spread=2ms"))


@each_script(__file__, "names")
def test_names(script: Script) -> None:
    script.play(handle)
