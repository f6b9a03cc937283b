"""The agents of a lab's hosts, and the controller that they follow where no switch has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from experiments.emulation.processes import AgentProcess, ControllerProcess
from experiments.schemes import Scheme
from topologies import Clos, Host, Switch

# Per host: hosts of a lab have few flows, and 128 of them share the memory of this machine.
FLOWS = 4096


class Hosts(Protocol):
    """The hosts of a lab, on this machine."""

    def netns(self, host: Host, /) -> str:
        """Return the path of the network namespace of a host."""

    def interface(self, node: Host | Switch, port: int) -> str:
        """Return the name of an interface."""


def agent_process(
    lab: Hosts, hosts: Iterable[Host], controller: ControllerProcess, directory: Path, options: Sequence[str]
) -> AgentProcess:
    """Return an agent process, not started, for some hosts. ``directory`` is that of its state; its log is beside it."""
    interfaces = [f"{lab.interface(host, 0)}@{lab.netns(host)}" for host in hosts]
    every = [f"--flows={FLOWS}", f"--state-dir={directory}", f"--token-file={controller.agent_token_file}", *options]
    return AgentProcess(interfaces, controller.url, directory.with_name(f"{directory.name}.log"), every)


def agent_options(scheme: Scheme, seed: int) -> list[str]:
    """Return the options of ``sopa agent`` for a scheme whose hosts have agents. ``seed`` decides the first path of each flow."""
    return [
        f"--policy={scheme.policy}",
        *([f"--channels={scheme.channels}", f"--channel-kind={scheme.channel_kind}"] if scheme.channels else []),
        *scheme.policy_options,
        f"--segments={scheme.segments}",
        *([] if scheme.weights else ["--no-weights"]),
        f"--fr-threshold={scheme.fr_threshold}",
        f"--min-rtt-window={scheme.min_rtt_window}",
        f"--seed={seed}",
    ]


def lone_controller(
    tree: Clos, log: Path, openflow_port: int, rest_port: int, options: Sequence[str]
) -> ControllerProcess:
    """Return a controller, not started, that no switch connects to: agents learn from it which hosts run one."""
    return ControllerProcess(tree, log, openflow_port, rest_port, options=["--sopa-settle=0", *options])
