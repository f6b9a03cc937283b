"""The prompt of ``sopa lab --controllers``: with commands that kill, stop and cut off the parts of the cluster."""

from __future__ import annotations

import os
from collections.abc import Callable

import httpx
from mininet.log import error, output

from experiments.cli.lab_prompt import Prompt
from experiments.emulation.bad_links import BadLinks
from experiments.emulation.cluster_parts import ClusterParts, PartError, PartGroup, PartKind
from experiments.emulation.processes import ProcessError
from topologies.lab.management import BOTH, Way
from topologies.lab.network import Lab

_GROUPS = "/".join(group.value for group in PartGroup)
_WAYS = "/".join(way.value for way in Way)
_DOES = {
    "kill": "Kill {a} by SIGKILL",
    "start": "Start {a} that has ended again",
    "stop": "Let {a} stand still, by SIGSTOP",
    "continue": "Let {a} that stands still go on",
}


class ClusterPrompt(Prompt):
    """The lab's prompt, with commands for controllers, etcd's nodes and relays."""

    def __init__(self, lab: Lab, bad: BadLinks, seed: int, cluster: ClusterParts, script: str | None = None) -> None:
        self._cluster = cluster
        super().__init__(lab, bad, seed, script)

    def onecmd(self, line: str) -> bool:
        """Have ``sh sopa ...`` ask the leader, or another part that runs."""
        os.environ["SOPA_CONTROLLER"] = " ".join([self._cluster.reader_url(), *self._cluster.controller_urls])
        return bool(super().onecmd(line))

    def do_partition(self, line: str) -> None:
        words = line.split()
        try:
            name, groups, ways = self._partition(words)
            self._cluster.partition(name, groups, ways)
        except PartError as problem:
            error(f"{problem}\n")
        except ValueError:
            error(f"usage: partition NAME from {_GROUPS}/all [{_WAYS}]\n")

    do_partition.__doc__ = f"""Lose all packets between a part and others, or only those that it has sent or would receive.
        Usage: partition leader from {_GROUPS}/all [{_WAYS}]"""

    def do_heal(self, line: str) -> None:
        """Undo what partition has cut a part off from; without a name, of all parts.
        Usage: heal [controller1]"""
        try:
            names = [self._cluster.named(name) for name in line.split()] or self._cluster.network.cut_machines()
        except PartError as problem:
            error(f"{problem}\n")
            return
        for name in names:
            self._cluster.heal(name)

    def do_cluster(self, _line: str) -> None:
        """Show GET /cluster of a part that answers, and what is done to the parts."""
        for name in [*self._cluster.names(PartKind.CONTROLLER), *self._cluster.names(PartKind.RELAY)]:
            if self._cluster.running(name) and self._show(name):
                break
        else:
            output("no part answers\n")
        states = {name: self._cluster.state(name) for name in self._cluster.parts}
        unusual = [f"{name} {state}" for name, state in states.items() if state != "running"]
        unusual += [f"{name} is cut off" for name in self._cluster.network.cut_machines()]
        output(f"in this lab   {', '.join(unusual) or 'all parts run'}\n")

    def _show(self, name: str) -> bool:
        try:
            answer = httpx.get(f"{self._cluster.url_of(name)}/sopa/v1/cluster", timeout=2.0)
            body = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return False
        output(f"asked         {name}\nterm          {body['term']}\nleader        {body['leader'] or 'none'}\n")
        for each in body["members"]:
            output(f"{each['name']:13} {each['role']}, lag {each['lag']}, {each['switches']} switches\n")
        for each in body["relays"]:
            told = f"version {each['version']}, {each['waiting']} waiting"
            output(f"{each['name']:13} relay, {each['agents']} agents, {told}\n")
        problem = body["engine"]["problem"]
        output(f"engine        {'reachable' if body['engine']['reachable'] else f'not reachable: {problem}'}\n")
        return True

    def _partition(self, words: list[str]) -> tuple[str, list[PartGroup] | None, tuple[Way, ...]]:
        """Return what the words mean; raise `ValueError` if they mean nothing, of which `PartError` is one."""
        name, between, what, *rest = words
        if between != "from" or len(rest) > 1:
            raise ValueError
        groups = None if what == "all" else [PartGroup(what)]
        return self._cluster.named(name), groups, (Way(rest[0]),) if rest else BOTH


def _command(verb: str, kind: PartKind) -> Callable[[ClusterPrompt, str], None]:
    """Return the prompt's command for a verb and the parts of a kind."""

    def do(prompt: ClusterPrompt, line: str) -> None:
        cluster = prompt._cluster
        acts = {"kill": cluster.kill, "start": cluster.restart, "stop": cluster.pause, "continue": cluster.resume}
        try:
            [word] = line.split() or [""]
            name = cluster.named(word, kind)
            acts[verb](name)
            output(f"{name} {cluster.state(name)}\n")
        except (PartError, ProcessError) as problem:
            error(f"{problem}\n")
        except ValueError:
            error(f"usage: {verb}_{kind.value} NAME\n")

    example = "leader" if kind is PartKind.CONTROLLER and verb in ("kill", "stop") else f"{kind.value}1"
    do.__doc__ = f"{_DOES[verb].format(a=_A[kind])}.\n        Usage: {verb}_{kind.value} {example}"
    return do


_A = {PartKind.CONTROLLER: "a controller", PartKind.ETCD: "a node of etcd", PartKind.RELAY: "a relay"}
for _kind in PartKind:
    for _verb in _DOES:
        setattr(ClusterPrompt, f"do_{_verb}_{_kind.value}", _command(_verb, _kind))
