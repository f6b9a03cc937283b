"""``sopa agent``."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from sopa_ryu.agent.agent_options import TOKEN_FILE, AgentError, AgentOptions
from sopa_ryu.channel import slots
from sopa_ryu.channel.mcs import POLICY
from sopa_ryu.cli.common import fail, log_to_stderr, need_root
from sopa_ryu.runtime.option_fields import options_of

NOT_WITH = {
    POLICY: ("spray", "segments", "fr_threshold", "min_rtt_window", "flowlet_gap", "flowcell"),
    slots.POLICY: ("segments", "flowlet_gap", "flowcell"),
}
ONLY_WITH = {POLICY: ("channels", "channel_kind", "mcs_patience", "mcs_without"), slots.POLICY: ("arbiter",)}
WHY_NOT = {
    POLICY: "which scatters TCP's connections, and changes neither TCP's settings nor its bursts",
    slots.POLICY: "which limits bursts to its slots, and labels what does not wait for one round-robin",
}


@click.command()
@click.option(
    "--iface",
    "interfaces",
    required=True,
    multiple=True,
    metavar="IF[@NETNS]",
    help="Interface towards the fabric. May be repeated. eth0@/run/netns/NAME is one in another network namespace.",
)
@options_of(AgentOptions)
def agent(interfaces: tuple[str, ...], **values: Any) -> None:
    """Label this host's packets with their path, until SIGTERM or Ctrl-C.

    The agent receives the state of the fabric from the controller, and computes the candidate paths to every destination. It
    attaches a program at the interface's tc egress, which writes the next path into every packet of TCP. Other flows keep one
    candidate path each, also when others fail. --spray names which flows are sprayed.

    The agent makes TCP tolerate that packets overtake each other, by its fast-retransmit threshold and the time for which it
    remembers the shortest round trip. It makes a segmentation device on the interface, which cuts TCP's bursts into packets
    before they are labelled. With --segments 2 or more, bursts are limited to that size (gso_max_segs) and have one label
    each instead. All of it is put back when the agent ends, after SIGKILL at its next start.

    It probes the fabric's paths, and a program at tc ingress answers the probes of other hosts (docs/probes.md). It leaves paths
    that are dead or lose more than others by itself, controller or not, until they are good again. --keep-paths only logs it.
    With --no-probes it does none of this.

    What another program changes there meanwhile is put right and logged. While labels are not written, the agent leaves the
    controller. It waits for an interface that goes, or loses its address. Without a controller it keeps its last path sets.
    Without a path, packets go out unlabelled, and the switches distribute them by a hash per flow. So do packets that the host
    passes on for containers and virtual machines, without --forwarded spray.

    With --policy mcs the TCP connections between hosts that run it are scattered over channels, with an option in their TCP
    headers. All packets of a burst take one path, and neither TCP settings nor bursts are changed. Everything else passes as it
    is, without a label. The controller says which hosts run it.

    With --policy cfr TCP's data waits for slots that the arbiter grants, and takes the paths granted with them. No queue grows in
    the fabric then. Everything else, and everything while no arbiter answers, is sent as with round-robin. Where the interface
    has the qdisc fq, data goes to it up to 1 ms ahead of its slot, and fq keeps it until the slot begins. The agent sets no
    qdisc: tc qdisc replace dev IF root fq.

    With --carrier option the path is an IPv4 option of 4 bytes. The interface's MTU is lowered by 4 until the agent ends, and
    options of received packets are removed. The edge switches' ports towards hosts then need the parser: see sopa parser.

    \b
    Example:
      sopa agent --iface eth1 --controller http://192.0.2.1:8080
      sopa agent --iface eth1 --controller http://192.0.2.1:8080 --metrics-port 9158
      sopa agent --iface eth1 --controller http://192.0.2.31:8080 --controller http://192.0.2.32:8080
      sopa agent --iface eth1 --controller http://192.0.2.1:8080 --policy cfr --arbiter 192.0.2.1:9160
    """
    from sopa_ryu.agent.host_settings import SettingsError
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.netns import Interface, NetnsError
    from sopa_ryu.agent.runner import run_agents
    from sopa_ryu.channel.client import ClientOptionError

    _reject_contradictions(values["policy"])
    if values["policy"] == slots.POLICY and not values["arbiter"]:
        raise click.UsageError(f"--policy {slots.POLICY} needs --arbiter ADDRESS:PORT")
    log_to_stderr()
    need_root("sopa agent")
    if values["token_file"] is None and TOKEN_FILE.exists():
        values["token_file"] = TOKEN_FILE
    try:
        options = AgentOptions(**values)
        status = run_agents([Interface.parse(text) for text in interfaces], options)
    except (AgentError, BpfError, ClientOptionError, NetnsError, SettingsError, ValueError) as error:
        fail(str(error))
    sys.exit(status)


def _reject_contradictions(policy: str) -> None:
    """End with a usage error if an option was given that the policy has no use for; its default says nothing."""
    context = click.get_current_context()
    defaults = {param.name: param.get_default(context) for param in context.command.params}

    def given(name: str) -> bool:
        explicit = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        return explicit and context.params[name] != defaults[name]

    for name in filter(given, NOT_WITH.get(policy, ())):
        raise click.UsageError(f"{_option(name)} has no meaning with --policy {policy}, {WHY_NOT[policy]}: leave it out")
    for other, names in ONLY_WITH.items():
        for name in filter(given, names if other != policy else ()):
            raise click.UsageError(f"{_option(name)} needs --policy {other}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
