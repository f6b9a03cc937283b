"""``sopa lab``: a fabric at a Mininet prompt."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from experiments.cli.lab_isolation import (
    chosen_datapath,
    controllers_option,
    datapath_option,
    fabric_options,
    in_isolation,
    policy_option,
    publish_option,
    publish_socket,
    published,
    seed_option,
    spray_option,
    threshold_option,
)
from flowrules.label import Carrier
from sopa_ryu.channel.mcs import POLICY as MCS
from sopa_ryu.channel.slots import POLICY as CFR
from sopa_ryu.cli.common import chosen_fabric, fail, need_root, need_switches
from topologies import Clos, TopologyError

QUEUE_PACKETS = 100
OVS, SRV6 = "ovs", Carrier.SRV6.value
NOT_WITH_ROUTERS = {
    "carrier": "routers forward uSID lists only",
    "datapath": "it is of Open vSwitch, which does not run",
    "controllers": "a cluster's versions follow from what switches say, and the controller knows none of the routers",
    "ecn": "the outer header is Not-ECT, so that no port would mark",
    "tutorial": "its steps are those of Open vSwitch",
}
"""Options that have no meaning with ``--switches srv6``, and why."""


@click.command()
@fabric_options
@click.option("--no-limit", is_flag=True, help="Do not limit the rate of the links.")
@click.option(
    "--switches",
    type=click.Choice([OVS, SRV6]),
    default=OVS,
    show_default=True,
    help="Open vSwitch, or Linux routers that run what sopa fabric srv6 prints and forward uSID lists (docs/srv6.md).",
)
@datapath_option
@policy_option(
    MCS,
    CFR,
    more=" mcs scatters each TCP connection over channels (docs/mcs.md). --ecn lets it follow congestion. cfr starts an arbiter, "
    "in whose slots TCP's data is sent (docs/cfr.md).",
)
@spray_option
@threshold_option
@seed_option
@click.option("--no-agents", is_flag=True, help="Start no agents: packets are unlabelled, and switches hash them per flow.")
@click.option(
    "--ecn",
    type=click.IntRange(1, QUEUE_PACKETS - 1),
    metavar="PACKETS",
    help=f"Let switch ports mark ECN-capable packets that find more than so many in the queue, which has room for {QUEUE_PACKETS}. "
    "Without this option no port marks.",
)
@controllers_option
@publish_option
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="Run the Mininet commands in FILE instead of opening a prompt.",
)
@click.option("--tutorial", is_flag=True, help="Tell step by step what an operator does: fifteen minutes of failures and drains.")
def lab(
    k: int,
    fabric: Clos | None,
    carrier: str,
    rate: float | None,
    no_limit: bool,
    switches: str,
    datapath: str,
    policy: str,
    spray: str,
    fr_threshold: int,
    seed: int,
    no_agents: bool,
    ecn: int | None,
    controllers: int,
    publish: int | None,
    script: Path | None,
    tutorial: bool,
) -> None:
    """Start a fabric with controller and agents on this machine, and open a Mininet prompt.

    It runs in network, mount and process namespaces of its own, with its own Open vSwitch. The interfaces of the machine are not
    touched, and several labs can run at the same time. Nothing remains when the command ends. Its page is at
    http://127.0.0.1:8080/ of this machine meanwhile (--publish).

    \b
    At the prompt:
      h0_0_2 ping -c 3 h2_0_2                       traffic (hosts are hPOD_EDGE_NUMBER, 10.POD.EDGE.NUMBER)
      h0_0_2 ping -6 -c 3 fd53:4f50:4100:200::2     the same by IPv6
      h0_0_2 nstat IpExtInCEPkts                    packets with a congestion mark that a host has received (--ecn)
      h0_0_2 tcpdump -c 8 -ne -Q out -i h0_0_2-eth0 tcp &      the labels 02:53:9e:04:UP1:UP2 of what it sends next
      sh sopa parser status --iface e0_0-eth1       with --carrier option: packets parsed at that port
      link a0_0 c0_1 down                           take a link down; up again: link a0_0 c0_1 up
      loss a0_0 c0_1 1                              lose 1% of what a0_0 sends to c0_1; undo: loss a0_0 c0_1 0
      corrupt a0_0 c0_1 1                           flip a bit in 1% of it
      slow a0_0 c0_1 25                             let it have a quarter of the link's rate; undo: slow a0_0 c0_1 100
      silent a0_0 c0_1 on                           lose all of it, with both ports up; undo: silent a0_0 c0_1 off
      bad                                           packets that loss and corrupt have hit so far
      sh sopa status                                state of the fabric
      sh sopa paths h0_0_2 h2_0_2                   the candidate paths of a pair
      sh sopa drain c0_0                            take a switch out for maintenance; undo: sh sopa restore c0_0
      sh sopa rules e0_0                            planned and installed rules of a switch
      sh ovs-ofctl -O OpenFlow13 dump-flows e0_0    flow entries of a switch
      a0_0 tcpdump -c 8 -nv ip6 &                   with --switches srv6: the uSID lists that reach a router

    \b
    With --controllers 3, controllers, etcd's nodes and relays are controller1, etcd1, relay1 and so on:
      cluster                                       who leads, who stands by, what has been done to them
      sh sopa cluster                               the same, as an operator asks for it
      kill_controller leader                        by SIGKILL; also kill_etcd, kill_relay; undo: start_controller NAME
      stop_controller leader                        let it stand still; also stop_etcd, stop_relay; undo: continue_controller NAME
      partition leader from etcd                    lose all packets between them; also from switches, agents, relays,
                                                    controllers, all
      partition leader from switches sent           lose what it sends only; the other way: received
      heal                                          undo all partitions; those of one: heal NAME
    """
    from experiments.cli.lab_isolation import default_links, given_rate, measured_rate
    from experiments.cli.lab_prompt import Prompt
    from experiments.cli.lab_tutorial import Tutorial
    from experiments.emulation.bad_links import BadLinks
    from experiments.emulation.host_agents import McsMetrics, patience_ms
    from experiments.emulation.phantom_queues import PhantomQueues, port_rates
    from experiments.emulation.processes import free_ports
    from experiments.emulation.sopa_lab import SopaLab
    from experiments.schemes.scheme import Slots
    from topologies.lab.datapath import DatapathKind
    from topologies.lab.links import at_rate
    from topologies.srv6 import router

    need_root("sopa lab")
    routed = switches == SRV6
    if routed:
        _refuse_what_routers_have_not(carrier)
        carrier = SRV6
    else:
        need_switches(carrier)
    if no_limit and ecn is not None:
        raise click.UsageError("--no-limit and --ecn exclude each other: without a rate no queue gets long")
    if tutorial and (k < 4 or fabric is not None or no_agents or controllers > 1):
        raise click.UsageError("--tutorial needs a fat-tree of k=4 or more, agents and one controller: leave out the other options")
    tree, forwarding = chosen_fabric(k, fabric), DatapathKind.KERNEL if routed else chosen_datapath(datapath)
    if routed:
        try:
            router(tree, next(iter(tree.switches())))
        except TopologyError as error:
            fail(str(error))
    console = Console(stderr=True, highlight=False)
    options = [f"--policy={policy}", f"--seed={seed}"]
    if policy != MCS:
        options += [f"--spray={spray}", f"--fr-threshold={fr_threshold}"]
    if policy in (MCS, CFR) and carrier not in (Carrier.MAC, Carrier.SRV6):
        raise click.UsageError(f"--policy {policy} has no labels of carrier {carrier}: leave out --carrier")
    if policy == CFR and (no_limit or no_agents):
        raise click.UsageError("--policy cfr needs links with a rate, and agents: leave out --no-limit and --no-agents")

    listener = publish_socket(publish)

    def inside() -> int:
        links = None
        if not no_limit:
            if rate is not None:
                links = given_rate(tree, rate)
            else:
                links = default_links(tree) if routed else measured_rate(tree, forwarding)
            console.print(f"{links.mbit:g} Mbit/s links: {links.why}", soft_wrap=True)
        mbit = links and links.mbit
        [port] = free_ports(1)
        if policy == MCS:
            options.append(f"--metrics-port={port}")
            if controllers > 1:
                options.append("--metrics-host=0.0.0.0")
        if policy == MCS and mbit is not None:
            options.append(f"--mcs-patience={patience_ms(mbit, ecn or QUEUE_PACKETS):g}")
        sopa_lab = SopaLab(
            tree,
            mbit,
            QUEUE_PACKETS,
            say=console.print,
            agents=not no_agents,
            agent_options=options,
            carrier=Carrier(carrier),
            datapath=forwarding,
            slots=Slots() if policy == CFR else None,
            controllers=controllers,
        )
        if links is not None:
            sopa_lab.lab.bfd_ms = links.bfd_ms
        # for sopa commands at the prompt: sh sopa drain c0_0, or h0_0_2 sopa status (where Mininet replaces names by addresses)
        os.environ |= {"SOPA_CONTROLLER": sopa_lab.url, "SOPA_TOKEN_FILE": str(sopa_lab.rest.token_file)}
        # those of this checkout, whichever `make install` has linked
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with sopa_lab, ExitStack() as marking:
            if mbit is not None and ecn is not None:
                ports = port_rates(at_rate(tree, mbit), sopa_lab.lab.interface, lambda _switch: None)
                marking.enter_context(PhantomQueues(ports, QUEUE_PACKETS, ecn))
            if policy == MCS and sopa_lab.agent is not None:
                console.print("waiting until the hosts scatter to one another: connections that begin before are not scattered")
                scattering = partial(McsMetrics(port, sopa_lab.agents_address).all_scatter, len(sopa_lab.labelling))
                sopa_lab.agent.wait_until(scattering, "all agents scattered to one another")
            console.print(
                f"{tree.title if fabric else f'k={k}'}: {tree.switch_count} {'routers' if routed else 'switches'} and "
                f"{tree.host_count} hosts at {f'{mbit:g} Mbit/s' if mbit else 'full speed'}, carrier {carrier}"
                f"{'' if routed else f', {forwarding} datapath'}; "
                f"{f'{controllers} controllers, sopa asks' if sopa_lab.cluster else 'controller at'} {sopa_lab.url}; "
                f"logs in {sopa_lab.directory}"
            )
            say = partial(console.print, soft_wrap=True)
            marking.enter_context(published(listener, lambda: sopa_lab.url, sopa_lab.rest.token_file, say))
            bad = marking.enter_context(BadLinks(sopa_lab.lab, sopa_lab.lab.namespace))
            given = str(script.resolve()) if script else None
            if sopa_lab.cluster is None:
                told = Tutorial(sopa_lab.rest.answer, partial(print, flush=True)) if tutorial else None
                Prompt(sopa_lab.lab, bad, seed, given, told)
            else:
                # here, so that without a cluster nothing of it is loaded
                from experiments.cli.cluster_prompt import ClusterPrompt

                ClusterPrompt(sopa_lab.lab, bad, seed, sopa_lab.cluster, given)
        return 0

    sys.exit(in_isolation(inside))


def _refuse_what_routers_have_not(carrier: str) -> None:
    context = click.get_current_context()
    for name, why in NOT_WITH_ROUTERS.items():
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and not (name == "carrier" and carrier == SRV6):
            raise click.UsageError(f"--{name} and --switches srv6 exclude each other: {why}")
