"""``sopa fabric``: fabric files explained, checked, compared and turned into commands, without a controller."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from sopa_ryu.cli.common import FabricFile, FatTreeSize, fail
from sopa_ryu.cli.fabric.concerns import concerns
from sopa_ryu.cli.fabric.drawing import drawing, rate
from sopa_ryu.cli.output import NOT_RIGHT
from sopa_ryu.fabric.state_directory import differences
from topologies import Clos, FatTree, Host, Level, Switch, TopologyError, fabric_plan, srv6_plan
from topologies.cabling import LINK_LEVELS
from topologies.fabric_file import SCHEMA, FabricFileError, read_file
from topologies.fabric_summary import Fewer, Ratio, Summary
from topologies.identity import PREFIX6

LABEL = 25
LISTED = 12
_NAMES = {"inter-rack": "between racks of a pod", "inter-pod": "between pods"}


@click.group()
def fabric() -> None:
    """Explain, check, compare and carry out fabric files, which describe fabrics that are no fat-trees of equal links.

    \b
    Examples:
      sopa fabric check leaf-spine.yaml
      sopa fabric schema > fabric.schema.json     for an editor
      sopa fabric plan leaf-spine.yaml --switch e0_0 --controller ssl:192.0.2.1:6653
      sopa fabric plan leaf-spine.yaml --cables > cables.csv
      sopa fabric srv6 leaf-spine.yaml --switch e0_0 --format frr
      sopa fabric diff old.yaml new.yaml          what is to be done at switches, hosts and cables

    docs/fabrics.md describes every key. The controller takes the file by --sopa-fabric. sopa lab, demo, experiment run and doctor
    switch take it by --fabric.
    """


@fabric.command()
def schema() -> None:
    """Print the JSON Schema of fabric files, for editors that complete and check them."""
    click.echo(SCHEMA.read_text(), nl=False)


@fabric.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def check(file: Path, as_json: bool) -> None:
    """Say in words and numbers what the fabric file FILE describes, draw it, and say what is wrong, by lines.

    \b
    Exit status:
      0   nothing is wrong; there may be warnings
      1   the file cannot be read
      2   wrong usage
      3   the file is wrong, or racks have no path to each other
    """
    try:
        found = read_file(file)
    except FabricFileError as error:
        if as_json:
            click.echo(json.dumps({"file": str(file), "problems": [problem._asdict() for problem in error.problems]}, indent=1))
        else:
            click.echo(str(error), err=True)
        sys.exit(NOT_RIGHT)
    except TopologyError as error:
        fail(str(error))
    summary = Summary(found.fabric)
    seen = list(concerns(found, summary))
    if as_json:
        its = {"file": str(file), **_numbers(summary)}
        for name, wrong in (("problems", True), ("warnings", False)):
            its[name] = [{"line": one.line, "text": one.text, "mend": one.mend} for one in seen if one.wrong is wrong]
        click.echo(json.dumps(its, indent=1))
    else:
        for line in _lines(file, summary):
            click.echo(line)
        for one in seen:
            click.echo(f"{'WRONG' if one.wrong else 'warning'}  {file}:{one.line}: {one.text}: {one.mend}")
    sys.exit(NOT_RIGHT if any(one.wrong for one in seen) else 0)


def _of_switches(command: Callable[..., None]) -> Callable[..., None]:
    for parameter in (
        click.option("--all", "every", is_flag=True, help="Every switch."),
        click.option("--switch", "names", multiple=True, metavar="NAME", help="A switch, such as e0_0. May be repeated."),
        click.option("--k", type=FatTreeSize(), help="A fat-tree of switches with so many ports, instead of FILE."),
        click.argument("file", type=FabricFile(), metavar="[FILE]", required=False),
    ):
        command = parameter(command)
    return command


_interface = click.option("--interface", default="eth{port}", show_default=True, help="Name of a port's interface, with {port}.")


@fabric.command()
@_of_switches
@click.option(
    "--cables", "as_cables", is_flag=True, help="The cables instead, as CSV: ends, ports, Mbit/s, aliases, racks, labels."
)
@click.option("--controller", "controllers", multiple=True, metavar="TARGET", help="ssl:192.0.2.1:6653. May be repeated.")
@click.option("--manager", metavar="TARGET", help="Where the database listens: pssl:6640:ADDRESS, the switch's own.")
@click.option("--bridge", default="br0", show_default=True, help="Name of the bridge.")
@_interface
def plan(
    file: Clos | None,
    k: int | None,
    names: tuple[str, ...],
    every: bool,
    as_cables: bool,
    controllers: tuple[str, ...],
    manager: str | None,
    bridge: str,
    interface: str,
) -> None:
    """Print the Open vSwitch commands of switches, or the cables, of a fabric.

    The commands make a bridge the switch of the plan, with its datapath id and port numbers. They may be repeated. Afterwards
    sopa doctor switch finds nothing wrong. With ssl: targets, the files of sopa pki are in /etc/openvswitch/tls. Where the
    switch's key is not among them, the commands make one, which never leaves the switch. They also make a request, which sopa pki
    --sign signs.
    """
    tree = _tree(file, k, interface)
    if as_cables is bool(names or every):
        raise click.UsageError("name a switch (--switch), or all (--all), or --cables")
    if as_cables:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(fabric_plan.Cable._fields)
        rows.writerows(fabric_plan.cables(tree))
        return
    for switch in _switches(tree, names, every):
        click.echo(f"# {tree.aliases.within(tree.name(switch))}")
        for line in fabric_plan.commands(tree, switch, bridge, interface, controllers, manager):
            click.echo(line)


@fabric.command()
@_of_switches
@click.option(
    "--format", "form", type=click.Choice(srv6_plan.FORMS), default="iproute2", show_default=True, help="For what the routers run."
)
@_interface
def srv6(file: Clos | None, k: int | None, names: tuple[str, ...], every: bool, form: str, interface: str) -> None:
    """Print what makes routers the switches of a fabric that forward by SRv6 uSIDs: docs/srv6.md.

    iproute2 prints commands, which may be repeated. frr (10.3 or later) prints a configuration, and after "! $" the commands that
    come before it. sonic (202505 or later) prints tables of config_db.json, of several switches by their names. In sonic a port
    is named by its label in the fabric file, where it has one. Without srv6 in the file, or with --k, the block is
    fcbb:bb00::/32.
    """
    tree = _tree(file, k, interface)
    if not names and not every:
        raise click.UsageError("name a switch (--switch), or all (--all)")
    switches = _switches(tree, names, every)
    try:
        for line in srv6_plan.text(tree, switches, form, interface):
            click.echo(line)
    except TopologyError as error:
        fail(str(error))


def _tree(file: Clos | None, k: int | None, interface: str) -> Clos:
    if (file is None) is (k is None):
        raise click.UsageError("give a fabric file, or --k")
    if "{port}" not in interface:
        raise click.BadParameter(f"{interface!r} has no {{port}} in it", param_hint="--interface")
    if file is not None:
        return file
    assert k is not None
    return FatTree(k, str(PREFIX6))  # as a controller has it


def _switches(tree: Clos, names: tuple[str, ...], every: bool) -> list[Switch]:
    try:
        return list(tree.switches()) if every else [tree.switch(tree.aliases.own(name)) for name in names]
    except ValueError as error:
        fail(str(error))


@fabric.command()
@click.argument("old", type=FabricFile(), metavar="OLD")
@click.argument("new", type=FabricFile(), metavar="NEW")
def diff(old: Clos, new: Clos) -> None:
    """Say what is to be done at switches, hosts and cables to make the fabric of OLD that of NEW.

    \b
    Exit status:
      0   nothing
      2   wrong usage, or a file that is wrong
      3   the fabrics differ
    """
    documents = ({**fabric.document(), **fabric.aliases.document()} for fabric in (old, new))
    found = [*differences(*documents), *fabric_plan.changes(old, new)]
    for line in found:
        click.echo(line)
    sys.exit(NOT_RIGHT if found else 0)


# -- in numbers -------------------------------------------------------------------------------------------------------


def _numbers(summary: Summary) -> dict[str, Any]:
    """Return the numbers of a fabric, as ``--json`` prints them."""
    tree = summary.tree
    bisection, paths = summary.bisection(), summary.paths()
    return {
        "title": tree.title,
        "k": tree.k,
        **tree.shape._asdict(),
        "switches": {level.name.lower(): _count(tree, level) for level in Level},
        "host_count": tree.host_count,
        "ports": {
            level.name.lower(): {"down": tree.downlink_count(level), "up": tree.uplink_count(level)}
            for level in Level
            if _count(tree, level)
        },
        "links": {
            level: {
                "count": summary.link_count(level),
                "mbit": tree.mbit.get(level),
                "absent": sum(not mbit for mbit in own.values()),
                "other": {name: mbit for name, mbit in own.items() if mbit},
            }
            for level in LINK_LEVELS
            if summary.link_count(level)
            for own in [_own(summary, level)]
        },
        "oversubscription": {
            level.name.lower(): {
                name: None if value == float("inf") else value  # JSON has no infinity
                for name, value in summary.oversubscription(level)._asdict().items()
            }
            for level in _uplinked(tree)
        },
        "bisection": bisection and bisection._asdict(),
        "paths": paths and {kind: [fewer._asdict() for fewer in counts] for kind, counts in paths.items()},
        "addresses": dict(zip(("first", "last"), map(str, _addresses(tree)), strict=True)),
        "gateways": [tree.name(host) for host in tree.gateways],
        "no_label": [tree.name(host) for host in sorted(tree.no_label)],
    }


def _count(tree: Clos, level: Level) -> int:
    return tree.groups(level) * tree.group_size(level)


def _uplinked(tree: Clos) -> list[Level]:
    return [Level.EDGE, Level.AGGREGATION] if tree.cores else [Level.EDGE]


def _own(summary: Summary, level: str) -> dict[str, float]:
    """Return the links above a level that have a rate of their own, by name; 0 for absent ones."""
    return {Clos.name(link): mbit for link, mbit in sorted(summary.exceptions.items()) if Clos.link_level(link) == level}


def _addresses(tree: Clos) -> tuple[object, object]:
    first, last = Host(0, 0, 2), Host(tree.pods - 1, tree.edges - 1, tree.hosts_per_edge + 1)
    return tree.ip(first), tree.ip(last)


# -- in words ---------------------------------------------------------------------------------------------------------


def _lines(file: Path, summary: Summary) -> Iterator[str]:
    tree = summary.tree
    names = {Level.EDGE: "edge", Level.AGGREGATION: "aggregation", Level.CORE: "core"}
    if not tree.cores:
        names |= {Level.EDGE: "leaf", Level.AGGREGATION: "spine"}
    levels = [level for level in Level if _count(tree, level)]
    what = tree.title if tree.k is None or tree.is_plain else f"{tree.title} (a k={tree.k} fat-tree)"
    yield f"{file}: {what}, {tree.switch_count} switches, {tree.host_count} hosts"
    yield ""
    yield from drawing(summary)
    yield ""
    yield _row("switches", ", ".join(f"{_count(tree, level)} {names[level]}" for level in levels))
    yield _row("ports", "; ".join(_ports(tree, level, names[level]) for level in levels))
    for level in LINK_LEVELS:
        if summary.link_count(level):
            yield _row(f"links above {level}", _links(summary, level))
    ratios = (f"{names[level]} {_ratio(summary.oversubscription(level))}" for level in _uplinked(tree))
    yield _row("oversubscription", ", ".join(ratios))
    if bisection := summary.bisection():
        most = "" if bisection.exact else "at most "
        carried = rate(bisection.mbit) if tree.mbit else f"{bisection.mbit:g} links"
        yield _row("bisection", f"{most}{carried}, {bisection.share:.0%} of what half of the hosts send")
    paths = summary.paths()
    if paths is None:
        yield _row("candidate paths", "not counted: too many racks differ")
    for kind, counts in (paths or {}).items():
        yield _row("candidate paths", f"{_paths(counts)} {_NAMES[kind] if tree.cores else 'between racks'}")
        for fewer in [one for one in counts if one.paths < counts[-1].paths][:LISTED]:
            yield _row("", f"{fewer.paths}: {fewer.pairs} pairs of racks, as {' and '.join(fewer.example)}")
    first, last = _addresses(tree)
    yield _row("addresses", f"{first} to {last}; 10.POD.EDGE.0/24 for each rack, .1 is its gateway")
    for family in tree.families[1:]:
        first, last = (family.text(host) for host in (next(tree.hosts()), max(tree.hosts())))
        yield _row("", f"{first} to {last}; a /64 for each rack, ::1 is its gateway")
    if tree.srv6 is not None:
        yield _row("SRv6", f"block {tree.srv6}; sopa fabric srv6 prints what each router needs")
    yield _row("gateways", _hosts(tree, list(tree.gateways)))
    yield _row("without labels", _hosts(tree, sorted(tree.no_label)))


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _ports(tree: Clos, level: Level, name: str) -> str:
    down, up = tree.downlink_count(level), tree.uplink_count(level)
    return f"{name} {down + up} ({down} down, {up} up)" if up else f"{name} {down} (down)"


def _links(summary: Summary, level: str) -> str:
    own = _own(summary, level)
    absent = [name for name, mbit in own.items() if not mbit]
    mbit = summary.tree.mbit.get(level)
    text = f"{summary.link_count(level) - len(absent)}{f' of {rate(mbit)}' if mbit else ''}"
    other = [f"{name} {rate(mbit)}" for name, mbit in own.items() if mbit]
    text += f", of them {len(other)} with another rate ({_some(other)})" if other else ""
    return text + (f"; {len(absent)} absent ({_some(absent)})" if absent else "")


def _ratio(ratio: Ratio) -> str:
    most = "1:0" if ratio.most == float("inf") else f"{ratio.most:.4g}:1"
    return most if ratio.least == ratio.most else f"{ratio.least:.4g}:1 to {most} ({ratio.switch})"


def _paths(counts: list[Fewer]) -> str:
    least, most = counts[0].paths, counts[-1].paths
    return str(most) if least == most else f"{least} to {most}"


def _hosts(tree: Clos, hosts: list[Host]) -> str:
    return _some([f"{tree.name(host)} ({tree.ip(host)})" for host in hosts]) or "none"


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:LISTED]) + (f" and {len(texts) - LISTED} more" if len(texts) > LISTED else "")
