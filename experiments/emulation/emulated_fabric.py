"""The fabric of one scheme in the namespaces of a lab: switches or routers, controller, hosts, agents."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from experiments.emulation.bad_links import BadLinks, Forwarding, PlannedBadLinks
from experiments.emulation.dctcp import DCTCP, dctcp
from experiments.emulation.host_agents import (
    McsMetrics,
    agent_options,
    agent_process,
    logged_at,
    lone_controller,
    paths_left,
    patience_ms,
)
from experiments.emulation.host_sysctls import host_settings
from experiments.emulation.measurement.tcp_statistics import FastRecoveries
from experiments.emulation.phantom_queues import PhantomQueues, default_threshold, port_rates
from experiments.emulation.processes import AgentProcess, ControllerProcess, free_ports
from experiments.emulation.routers.router_lab import RouterLab
from experiments.emulation.routers.srv6_lab import Srv6Lab
from experiments.emulation.slot_arbiter import ADDRESS, ArbiterProcess, slot_ms
from experiments.emulation.sopa_lab import OPENFLOW_PORT, REST_PORT, SopaLab
from experiments.schemes import Fabric, Scheme
from flowrules.label import Carrier
from topologies import Clos, Level, Link, Switch
from topologies.identity import PREFIX6
from topologies.lab.batch_net import run_batch
from topologies.lab.faults import kill_switch, restore_switch, silence_switch
from topologies.lab.links import at_rate, shaper

RUN = Path("/run/sopa")
ROUTERS = RUN / "routers"
_LOGGED = re.compile(r"(\S+ \S+) [A-Z]+ (\S+): (.*)")
HEAL_SECONDS = 150.0
"""More than twice the longest hold-down."""
AGENT_SECONDS = 300.0
"""For all agents of a run to start, on a machine that is busy."""
DRAIN_SECONDS = 1.0
"""Time until packets in queues and at closed ports are gone."""


class EmulatedFabric:
    """The fabric of one scheme for several successive runs, as a context manager.

    Args:
        rate_mbit: Rate of hosts' links in Mbit/s; all others are in proportion.
        queue_packets: Capacity of the queue of a link in full frames.

    Attributes:
        lab, bad_links, controller: Available after entering; the last if switches or agents have one.
        congestion: The congestion control of hosts' TCP, by its name in Linux, from entering on.
        arbiter, fast_recoveries: Available after `prepare`, for that run; the first if hosts send in slots.
        arbiter_at: ADDRESS:PORT where agents look for the arbiter; may be changed to something between them.
    """

    def __init__(
        self, tree: Clos, scheme: Scheme, rate_mbit: float, *, queue_packets: int = 100, carrier: Carrier = Carrier.MAC
    ) -> None:
        if scheme.fabric is Fabric.SRV6 and tree.prefix6 is None:  # routers send errors to hosts' IPv6 addresses only
            tree = Clos(**{**tree.document(), "prefix6": str(PREFIX6)})
        self.tree, self.scheme, self.rate_mbit, self.queue_packets = tree, scheme, rate_mbit, queue_packets
        self.carrier = Carrier.SRV6 if scheme.fabric is Fabric.SRV6 else carrier
        self._rated = at_rate(tree, rate_mbit)
        self.sopa: SopaLab | None = None
        self.controller: ControllerProcess | None = None
        self._labelling = [host for host in tree.hosts() if host not in tree.no_label]
        self._phantom: PhantomQueues | None = None
        self.congestion = scheme.congestion
        self._agents: AgentProcess | None = None
        self._mcs: McsMetrics | None = None
        self.arbiter: ArbiterProcess | None = None
        self.arbiter_at = ADDRESS
        self._stack = ExitStack()
        self._run = ExitStack()
        self.lab: Forwarding
        self.bad_links: PlannedBadLinks
        self.fast_recoveries: FastRecoveries

    def __enter__(self) -> EmulatedFabric:
        with ExitStack() as stack:
            if self.scheme.fabric in (Fabric.ROUTERS, Fabric.SRV6):
                kind = Srv6Lab if self.scheme.fabric is Fabric.SRV6 else RouterLab
                routers = kind(self.tree, self.rate_mbit, self.queue_packets, ROUTERS, self.scheme.router_sysctls)
                self.lab = stack.enter_context(routers)
            else:
                options = [*self.scheme.controller_options, *self.scheme.applications]
                self.sopa = stack.enter_context(
                    SopaLab(
                        self.tree,
                        self.rate_mbit,
                        self.queue_packets,
                        agents=False,
                        controller_options=options,
                        carrier=self.carrier,
                    )
                )
                self.lab, self.controller = self.sopa.lab, self.sopa.controller
            if self.controller is None and self.scheme.policy is not None:
                RUN.mkdir(parents=True, exist_ok=True)
                self.controller = stack.enter_context(
                    lone_controller(
                        self.tree,
                        RUN / "controller.log",
                        OPENFLOW_PORT,
                        REST_PORT,
                        [f"--sopa-carrier={self.carrier}", f"--sopa-link-mbit={self.rate_mbit:g}", *self.scheme.controller_options],
                    )
                )
            if self.ecn_threshold is not None:
                ports = port_rates(self._rated, self.lab.interface, self._switch_netns)
                self._phantom = stack.enter_context(PhantomQueues(ports, self.queue_packets, self.ecn_threshold))
            if self.scheme.congestion == DCTCP:
                self.congestion = stack.enter_context(dctcp())
            bad = stack.enter_context(BadLinks(self.lab, self._switch_netns))
            self.bad_links = PlannedBadLinks(bad, self._rated, self.lab.interface, self._phantom)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._run.close()
        self._stack.close()

    def prepare(self, seed: int, core_rate: float = 1.0) -> None:
        """Configure all hosts for a run, and start agents if the scheme uses any; the seed is that of the first path of each flow.

        ``core_rate`` is the rate of the aggregation-core links as a share of that of the other links.
        """
        self._run.close()
        self._run = ExitStack()
        self.fast_recoveries = self._run.enter_context(FastRecoveries())
        self._run.enter_context(host_settings(self.tree, self.lab.netns, lambda host: self.lab.interface(host, 0), self.scheme))
        if core_rate != 1.0:
            self._shape_core(core_rate)
            self._run.callback(self._shape_core, 1.0)
        if self.scheme.policy is not None:
            assert self.controller is not None
            self._start_agents(self.controller, seed)

    def finish(self) -> None:
        """End the agents of the run, restore the settings of hosts, and wait until the network is empty."""
        self._run.close()
        time.sleep(DRAIN_SECONDS)

    def fail(self, name: str, failed: bool) -> None:
        """Let a link or a switch fail, or restore it."""
        element = self.tree.element(name)
        if isinstance(element, Link):
            self.lab.set_link(name, not failed)
        elif self.sopa is not None:
            if element.level is Level.EDGE:
                (kill_switch if failed else restore_switch)(self.sopa.lab, name)
            else:  # detected by BFD as for routers, not by a closed OpenFlow channel
                silence_switch(self.sopa.lab, name, failed)
        else:
            assert isinstance(self.lab, RouterLab)
            self.lab.set_router(name, not failed)

    def await_settled(self, failed: Sequence[str] = ()) -> None:
        """Wait until the failure of these links and switches, or of none, is in force everywhere.

        Raises `ProcessError` or `LabError` after a time limit.
        """
        if isinstance(self.lab, RouterLab):
            self.lab.await_settled()
        elif self.sopa is not None:
            controller = self.sopa.controller
            agents = len(self._labelling) if self.scheme.policy is not None else 0

            def settled() -> bool:
                known = {failure["name"] for failure in controller.fabric()["failures"]}
                missing = [name for name in failed if name not in known and not self._links(name) <= known]
                return not missing and bool(known) == bool(failed) and controller.agents_know(agents)

            what = f"the failure of {', '.join(failed) or 'nothing'} was in force"
            controller.wait_until(settled, what, HEAL_SECONDS)

    def _links(self, name: str) -> set[str]:
        """Return the links whose failure isolates a switch."""
        element = self.tree.element(name)
        if isinstance(element, Link):
            return {name}
        return {self.tree.name(self.tree.link(element, peer)) for peer in self.tree.ports(element).values()}

    def ports(self) -> dict[str | None, list[str]]:
        """Return the interfaces of all switches by network namespace; None is that of the lab."""
        interfaces: dict[str | None, list[str]] = {}
        for switch in self.tree.switches():
            names = (self.lab.interface(switch, port) for port in self.tree.ports(switch))
            interfaces.setdefault(self._switch_netns(switch), []).extend(names)
        return interfaces

    def _switch_netns(self, switch: Switch) -> str | None:
        return self.lab.netns(switch) if isinstance(self.lab, RouterLab) else None

    @property
    def ecn_threshold(self) -> int | None:
        """The length of a queue in packets above which its port marks; None if no port marks."""
        if not self.scheme.ecn and self.scheme.congestion != DCTCP:
            return None
        threshold = self.scheme.ecn_threshold
        return default_threshold(self.queue_packets) if threshold is None else threshold

    def marked(self) -> dict[str, int]:
        """Return the packets that each port of a switch has marked so far; nothing if none marks."""
        return {} if self._phantom is None else {name: each.marked for name, each in self._phantom.counts().items()}

    def mcs_packets(self) -> Counter[str]:
        """Return the packets of all agents of the run by what MCS has done with them; nothing without MCS."""
        return Counter() if self._mcs is None else self._mcs.packets()

    def version(self) -> int:
        """Return the version of the fabric; 0 without a controller."""
        return int(self.sopa.controller.fabric()["version"]) if self.sopa is not None else 0

    def paths_left_since(self, begin: float) -> list[tuple[float, str]]:
        """Return the paths that hosts have left by themselves or taken again, each with its time in seconds after ``begin``."""
        return [] if self._agents is None else paths_left(self._agents.log, begin)

    def changes_since(self, version: int, begin: float) -> list[tuple[float, str]]:
        """Return the versions after a version as text, each with its time in seconds after ``begin``."""
        if self.sopa is None:
            return []
        seen = []
        for change in self.sopa.controller.get("/changes").json()["changes"]:
            if change["version"] > version:
                failed, healed = change["failed"], change["healed"]
                text = ", ".join([*(f"{name} {why}" for name, why in failed.items()), *(f"{name} healed" for name in healed)])
                seen.append((round(change["at"] - begin, 3), f"version {change['version']}: {text}"))
        return seen + list(self._applications_said(begin))

    def _applications_said(self, begin: float) -> Iterator[tuple[float, str]]:
        """Yield what the applications of the scheme have logged in the controller since ``begin``."""
        assert self.sopa is not None
        if not self.scheme.applications:
            return
        for line in self.sopa.controller.log.read_text(errors="replace").splitlines():
            found = _LOGGED.match(line)
            if found and found[2] in self.scheme.applications:
                seconds = logged_at(found[1]) - begin
                if seconds >= 0:
                    yield round(seconds, 3), found[3]

    def options(self) -> dict[str, object]:
        """Return the settings of the scheme, as in force."""
        scheme = self.scheme
        return {
            "policy": scheme.policy,
            "policy_options": list(scheme.policy_options),
            "fr_threshold": scheme.fr_threshold,
            "segments": scheme.segments,
            "weights": scheme.weights,
            "probes": scheme.probes is not False and scheme.policy is not None,
            "congestion": scheme.congestion,
            "tcp_recovery": scheme.recovery,
            "min_rtt_window": scheme.min_rtt_window,
            "subflows": scheme.subflows,
            "channels": scheme.channels,
            "channel_kind": str(scheme.channel_kind) if scheme.channels else None,
            "ecn_threshold": self.ecn_threshold,
            "slot_ms": slot_ms(scheme.slots, self.rate_mbit) if scheme.slots is not None else None,
            "fabric": scheme.fabric.name.lower(),
            "applications": list(scheme.applications),
            "controller_options": list(scheme.controller_options),
            "carrier": str(self.carrier),
            "queue_packets": self.queue_packets,
        }

    def _start_agents(self, controller: ControllerProcess, seed: int) -> None:
        scheme = self.scheme
        patience = patience_ms(self.rate_mbit, self.ecn_threshold or self.queue_packets)
        options = [f"--carrier={self.carrier}", *agent_options(scheme, seed, patience)]
        count = len(self._labelling)
        # the agents of the next run must not be confused with these
        self._run.callback(controller.wait_until, lambda: controller.agents_know(0), "its agents had disconnected")
        tokens = controller.agent_token_file
        if scheme.slots is not None:
            self.arbiter = ArbiterProcess(
                self.tree, [controller.url], controller.state_dir, scheme.slots, self.rate_mbit, RUN, seed
            )
            self._run.enter_context(self.arbiter)
            options.append(f"--arbiter={self.arbiter_at}")
            tokens = self.arbiter.token_file
        if scheme.channels:
            [port] = free_ports(1)
            options.append(f"--metrics-port={port}")
            self._mcs = McsMetrics(port)
        agents = self._agents = self._run.enter_context(
            agent_process(self.lab, self._labelling, controller.url, tokens, RUN / "agents", options)
        )
        agents.wait_until(lambda: controller.agents_know(count), f"all {count} agents had acknowledged", AGENT_SECONDS)
        if self._mcs is not None:
            scattering = partial(self._mcs.all_scatter, count)
            agents.wait_until(scattering, f"all {count} agents scattered to one another", AGENT_SECONDS)
        if self.arbiter is not None:
            self.arbiter.wait_granting(count)

    def _shape_core(self, share: float) -> None:
        lines: dict[str | None, list[str]] = {}
        for link in self.tree.switch_links():
            if isinstance(link.lower, Switch) and link.upper.level is Level.CORE:
                for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
                    interface = self.lab.interface(node, self.tree.port(node, towards))
                    rate = share * self._rated.capacity(link)
                    line = shaper(interface, rate, self.queue_packets)
                    if self._phantom is not None:
                        self._phantom.set_rate(interface, rate)
                    lines.setdefault(self._switch_netns(node), []).append(line)
        for where, its in lines.items():
            enter = [] if where is None else ["nsenter", f"--net={where}"]
            run_batch([*enter, "tc", "-batch", "-"], its)
