"""The contracts that need neither root nor a running controller: commands, options, names, rules, path tables, messages."""

import hashlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from oslo_config import cfg

import topologies
from flowrules.switch_rules import fabric_rules
from sopa_ryu import options
from sopa_ryu.agent.agent_metrics import AgentMetrics
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel import messages as wire
from sopa_ryu.channel import protocol
from sopa_ryu.cli import main
from sopa_ryu.fabric.rule_changes import cookie
from sopa_ryu.fabric.view import View
from tests.contract.values import TEXT, masked
from topologies import Failures, FatTree
from topologies.identity import PREFIX6

SIZES = (2, 4, 6, 8)


def commands() -> Any:
    """Return every command of ``sopa`` with its arguments and options."""
    return _described(main, click.Context(main, info_name="sopa", **main.context_settings))


def _described(command: click.Command, context: click.Context) -> dict[str, Any]:
    described: dict[str, Any] = {
        "usage": command.get_usage(context),
        "help": TEXT if command.help else "",
        # the order of arguments is part of how the command is used; that of options is not
        "arguments": [{"name": its.name, **_param(its)} for its in command.params if isinstance(its, click.Argument)],
        "options": {
            " ".join([*its.opts, *its.secondary_opts]): _param(its)
            for its in command.get_params(context)
            if isinstance(its, click.Option)
        },
    }
    if isinstance(command, click.Group):
        found = {name: command.get_command(context, name) for name in command.list_commands(context)}
        described["commands"] = {
            name: _described(its, click.Context(its, context, info_name=name, **its.context_settings))
            for name, its in found.items()
            if its
        }
    return described


def _param(param: click.Parameter) -> dict[str, Any]:
    """Return everything that click knows of a parameter, as far as it is not empty or the same for all."""
    same = {"name", "opts", "param_type_name", "secondary_opts"}
    info = {**param.to_info_dict(), "metavar": param.metavar}
    info["type"] = {name: value for name, value in info["type"].items() if value not in (None, False)}
    kept = {name: str(value) if isinstance(value, Path) else value for name, value in info.items() if name not in same}
    described: dict[str, Any] = masked({name: value for name, value in kept.items() if value not in (None, False)})
    return described


def listed() -> Any:
    """Return what ``sopa experiment list`` and ``sopa experiment paper --list`` name, with the defaults of options."""
    return {
        " ".join(words): re.findall(r"^ (\S+)  +\S", CliRunner().invoke(main, words).stdout, re.MULTILINE)
        for words in (["experiment", "list"], ["experiment", "paper", "--list"])
    }


def controller() -> Any:
    """Return the options of ``ryu-manager``'s group ``sopa``; how it ends if one is wrong, tests/unit/test_manager.py says."""
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    manager = str(Path(sys.executable).with_name("ryu-manager"))
    shown = subprocess.run([manager, "--help"], capture_output=True, text=True, timeout=120, check=True).stdout
    return {
        "defaults": {name: _plain(value) for name, value in conf.sopa.items()},
        "help": dict(re.findall(r"^  (--sopa-[\w-]+)(?: (\S+))?", shown, re.MULTILINE)),
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else [str(each) for each in value]


def names() -> Any:
    """Return the console scripts, and what ``mn --topo fattree,4`` builds: nodes, addresses, datapath ids, interfaces."""
    scripts = sorted(point.name for point in distribution("sopa-ryu").entry_points if point.group == "console_scripts")
    file = Path(topologies.__file__).with_name("fattree.py")
    topo = runpy.run_path(str(file))["topos"]["fattree"](4)
    nodes = {node: topo.nodeInfo(node) for node in topo.nodes()}
    kept = ("ip", "mac", "defaultRoute", "dpid")
    return {
        "console scripts": scripts,
        "nodes": {node: {name: info[name] for name in kept if name in info} for node, info in nodes.items()},
        "links": [
            f"{info['node1']}-eth{info['port1']} {info['node2']}-eth{info['port2']}" for _, _, info in topo.links(withInfo=True)
        ],
    }


def failed(k: int) -> dict[str, dict[str, str]]:
    """Return the failures, by situation, under which rules and labels are recorded."""
    if k == 2:
        return {"healthy": {}, "link": {"a0_0-c0_0": "down"}, "switch": {"a1_0": "down"}}
    several = {"a0_0-c0_0": "down", "a1_1-c1_1": "miswired", "c0_1": "down", "e2_0-a2_1": "drained"}
    return {
        "healthy": {},
        "uplink of an edge switch": {"e0_0-a0_1": "down"},
        "uplink of an aggregation switch": {"a1_0-c0_1": "silent"},
        "core switch": {"c1_0": "drained"},
        "aggregation switch": {"a0_0": "down"},
        "edge switch": {"e1_1": "not connected"},
        "several": several,
    }


def rules() -> Any:
    """Return the rules as computed: entry by entry at k=4, as a digest for every size and situation."""
    digests: dict[str, str] = {}
    for k in SIZES:
        for situation, failures in failed(k).items():
            digests[f"k={k}, {situation}"] = _digest(_rules(k, failures))
        digests[f"k={k}, no label"] = _digest(_rules(k, {}, "h0_0_2"))
    healthy = _rules(4, {})
    several = added_and_removed(healthy, _rules(4, failed(4)["several"]))
    return {"digests": digests, "k=4": shared(healthy), "k=4, several": several}


def _rules(k: int, failures: dict[str, str], *no_label: str) -> dict[str, list[str]]:
    """Return each switch's entries and groups, a line each."""
    tree = FatTree(k, str(PREFIX6))
    plain = [tree.host(name) for name in no_label]
    return {
        tree.name(switch): [*map(_entry, its.flows), *map(_group, its.groups)]
        for switch, its in fabric_rules(tree, Failures(tree, failures), plain)
    }


def _entry(flow: Any) -> str:
    match = ", ".join(f"{field}={'/'.join(map(str, v)) if isinstance(v, tuple) else v}" for field, v in flow.match)
    done = [f"apply {_each(flow.apply)}"] if flow.apply else []
    done += [f"write {_each(flow.write)}"] if flow.write else []
    done += [] if flow.metadata is None else [f"metadata {flow.metadata}"]
    done += [] if flow.goto is None else [f"goto {int(flow.goto)}"]
    its = f"table {int(flow.table)}, priority {flow.priority}, {match or 'any'}: {'; '.join(done)} # {flow.purpose}"
    return f"{cookie(flow, 0) >> 32:x} {its}"


def _each(actions: Iterable[Any]) -> str:
    return " ".join(map(repr, actions))


def _group(group: Any) -> str:
    return f"group {group.id}: ports {' '.join(str(bucket.port) for bucket in group.buckets)}"


def shared(switches: dict[str, list[str]]) -> dict[str, str]:
    """Return a mapping from each line to the switches that have it."""
    having: dict[str, list[str]] = {}
    for name, lines in switches.items():
        for line in lines:
            having.setdefault(line, []).append(name)
    return {line: " ".join(found) for line, found in having.items()}


def added_and_removed(healthy: dict[str, list[str]], now: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """Return the lines that switches have now and not when healthy, and the reverse, each with the switches."""
    added = {name: [line for line in lines if line not in healthy.get(name, [])] for name, lines in now.items()}
    removed = {name: [line for line in lines if line not in now.get(name, [])] for name, lines in healthy.items()}
    return {"added": shared(added), "removed": shared(removed)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def paths() -> Any:
    """Return the labels of a flow's first packets, by policy and seed: what one version answers, another one's agent does."""
    tree = FatTree(4)
    source = tree.host("h0_0_2")
    labels = {}
    for policy in Policy:
        for situation in ("healthy", "several"):
            for seed in (1, 2, 3):
                table = path_table(tree, source, Failures(tree, failed(4)[situation]), seed, policy)
                for destination in ("10.0.0.3", "10.0.1.2", "10.2.1.3", "192.0.2.1"):
                    key = FlowKey.of("10.0.0.2", destination, 6, 40000, 5201)
                    chosen = (table.choose(key, packet) for packet in range(6))
                    its = " ".join("none" if label is None else bytes(label).hex() for label in chosen)
                    labels[f"{policy.name}, {situation}, seed {seed}, to {destination}"] = its
    return {"labels": labels}


def messages() -> Any:
    """Return what an agent sends, and what it is asked of traces; what it takes is in ``tests/unit/scripts/formats``."""
    stream, flow = wire.Stream(IPv4Address("10.2.1.3"), 0, 1), wire.FlowOf(6, 40000, 5201)
    labels = wire.FlowLabels("round-robin", True, 2, ((0, 1), (1, 1)))
    asked = {
        "trace": wire.TraceRequest(3, count=20, interval_ms=10.0, streams=(stream,)),
        "trace of a flow": wire.TraceRequest(3, destination=IPv4Address("10.0.0.2"), flow=flow),
        "trace of an IPv6 flow": wire.TraceRequest(3, destination6=IPv6Address("fd53:4f50:4100::2"), flow=flow),
        "end of a trace": wire.TraceRequest(3, cancel=True),
    }
    texts = {name: wire.encode(request) for name, request in asked.items()} | {
        "ack": protocol.ack(View(5, 7, Failures(FatTree(4))), 2),
        "ack without a snapshot": protocol.ack(None, 0),
        "resync": protocol.RESYNC,
        "traced": wire.encode(*wire.trace_answers(3, (wire.Outcome(0, 0, 81_000),), done=True)),
        "traced flow": wire.encode(*wire.trace_answers(3, (), done=True, flow=labels)),
    }
    return {name: json.loads(text) for name, text in texts.items()}


def agent_metrics() -> Any:
    """Return the metrics of ``sopa agent --metrics-port``: names and types."""
    return {
        family.name: {"type": family.type, "help": TEXT if family.documentation else ""} for family in AgentMetrics([]).collect()
    }


PARTS: dict[str, Callable[[], Any]] = {
    part.__name__.replace("_", "-"): part for part in (commands, listed, controller, names, rules, paths, messages, agent_metrics)
}
