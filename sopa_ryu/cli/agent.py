"""``sopa agent``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.tcp_settings import DEFAULT_MIN_RTT_WINDOW, MAX_MIN_RTT_WINDOW
from sopa_ryu.channel import slots
from sopa_ryu.channel.mcs import DEFAULT_CHANNELS, MAX_CHANNELS, MIN_CHANNELS, POLICY, ChannelKind
from sopa_ryu.cli.common import (
    Segments,
    carrier_option,
    fail,
    need_root,
    policy_option,
    seed_option,
    threshold_option,
    urls,
)

TOKEN_FILE = Path("/etc/sopa/agent-token")
NOT_WITH = {
    POLICY: ("segments", "fr_threshold", "min_rtt_window", "flowlet_gap", "flowcell"),
    slots.POLICY: ("segments", "flowlet_gap", "flowcell"),
}
ONLY_WITH = {
    POLICY: ("channels", "channel_kind", "mcs_patience", "mcs_without"),
    slots.POLICY: ("arbiter",),
}
WHY_NOT = {
    POLICY: "which changes neither TCP's settings nor its bursts",
    slots.POLICY: "which limits bursts to its slots, and labels what does not wait for one round-robin",
}


@click.command()
@click.option(
    "--iface",
    "interfaces",
    required=True,
    multiple=True,
    metavar="IF[@NETNS]",
    help="Interface towards the fabric; may be repeated. eth0@/run/netns/NAME is one in another network namespace.",
)
@click.option("--controller", "controllers", required=True, multiple=True, callback=urls, metavar="URL",
              help="URL of the controller: http://192.0.2.1:8080. May be repeated for a cluster's relays, or controllers: each "
              "host begins with another one, and goes on with the next when that is away (docs/cluster.md).")  # fmt: skip
@carrier_option
@policy_option(
    [policy.option_name for policy in Policy] + [POLICY, slots.POLICY],
    " cfr sends TCP's data in slots that an arbiter grants, all else round-robin (docs/cfr.md): no --segments, no --carrier. "
    "mcs scatters each TCP connection over channels and follows congestion on them (docs/mcs.md); TCP settings and bursts stay as "
    "they are then: no --segments, no --fr-threshold, no --carrier option.",
)
@threshold_option
@click.option("--channels", type=click.IntRange(MIN_CHANNELS, MAX_CHANNELS), default=DEFAULT_CHANNELS, show_default=True,
              help="With --policy mcs: the channels of a connection.")  # fmt: skip
@click.option("--channel-kind", type=click.Choice([str(kind) for kind in ChannelKind]), default=str(ChannelKind.PATHS),
              show_default=True,
              help="With --policy mcs: a channel is a candidate path of the fabric, or a source port of its own, by which any "
              "network that hashes spreads them. Hosts of the same kind scatter to one another.")  # fmt: skip
@click.option("--mcs-patience", type=click.FloatRange(1, 60_000), default=20, show_default=True, metavar="MILLISECONDS",
              help="With --policy mcs: data that is missing for so long while later data arrives counts as lost. It has to be more "
              "than the delays of paths differ by, and less than TCP's retransmission timeout.")  # fmt: skip
@click.option("--mcs-without", type=click.Choice(["window", "filter"]), multiple=True,
              help="With --policy mcs, for comparison: lower no windows, or send duplicate ACKs.")  # fmt: skip
@click.option("--arbiter", metavar="ADDRESS:PORT",
              help=f"With --policy cfr: the arbiter (sopa arbiter), port {slots.PORT} if none is named.")  # fmt: skip
@seed_option
@click.option("--flows", type=click.IntRange(1, 1 << 24), default=65536, show_default=True,
              help="Flows per interface whose position is kept; beyond that the least recently used start anew.")  # fmt: skip
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), default="/run/sopa", show_default=True,
              help="Directory of the saved host settings, until they are put back.")  # fmt: skip
@click.option(
    "--token-file",
    envvar="SOPA_AGENT_TOKEN_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The token of each host, as sopa token prints it; or the agent token of all hosts, agent-token in the controller's "
    f"--sopa-state-dir. Default: {TOKEN_FILE} if it exists.",
)
@click.option(
    "--ca-file",
    envvar="SOPA_CA_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificate authorities (PEM) of an https controller. Default: the system's.",
)
@click.option("--flowlet-gap", type=click.FloatRange(0.001, 1e9), default=500, show_default=True, metavar="MICROSECONDS",
              help="With --policy flowlet: the pause after which a flow's next packet takes another path.")  # fmt: skip
@click.option("--flowcell", type=click.IntRange(1, 1 << 40), default=65536, show_default=True, metavar="BYTES",
              help="With --policy flowcell: the bytes of a flow after which its next packet takes another path.")  # fmt: skip
@click.option("--segments", type=Segments(), default=1, show_default=True, metavar="N|auto",
              help="Packets of a TCP burst that share a label, 1 to 44; more take less processor time, and reorder bursts. "
              "auto: 1 up to 25 Gbit/s, 16 up to 50, 44 on faster links.")  # fmt: skip
@click.option("--weights/--no-weights", default=True, show_default=True,
              help="Use candidate paths in proportion to their weights where capacities are uneven, or all alike.")  # fmt: skip
@click.option("--min-rtt-window", type=click.IntRange(0, MAX_MIN_RTT_WINDOW), default=DEFAULT_MIN_RTT_WINDOW,
              show_default=True, metavar="SECONDS",
              help="Seconds for which TCP remembers its shortest round trip (net.ipv4.tcp_min_rtt_wlen); it waits a quarter "
              "of that round trip for a packet that others have overtaken. Linux's default is 300.")  # fmt: skip
@click.option("--probes/--no-probes", default=True, show_default=True,
              help="Probe the paths that the controller names, and answer other hosts' probes (docs/probes.md).")  # fmt: skip
@click.option("--keep-paths", is_flag=True,
              help="Leave no path that this host finds bad by itself; log only that it would be left.")  # fmt: skip
@click.option("--wait", is_flag=True,
              help="At the start, wait for an interface that is missing or has no address of the fabric.")  # fmt: skip
@click.option("--metrics-port", envvar="SOPA_AGENT_METRICS_PORT", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve Prometheus metrics of these interfaces at /metrics on this port. Default: off.")  # fmt: skip
@click.option("--metrics-host", envvar="SOPA_AGENT_METRICS_HOST", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Address where metrics are served; a management address for a Prometheus on another machine.")  # fmt: skip
def agent(
    interfaces: tuple[str, ...],
    controllers: tuple[str, ...],
    carrier: str,
    policy: str,
    fr_threshold: int,
    channels: int,
    channel_kind: str,
    mcs_patience: float,
    mcs_without: tuple[str, ...],
    arbiter: str | None,
    seed: int,
    flows: int,
    state_dir: Path,
    token_file: Path | None,
    ca_file: Path | None,
    flowlet_gap: float,
    flowcell: int,
    segments: int,
    weights: bool,
    min_rtt_window: int,
    probes: bool,
    keep_paths: bool,
    wait: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Label this host's packets with their path, until SIGTERM or Ctrl-C.

    The agent receives the state of the fabric from the controller, computes the candidate paths to every destination, and
    attaches a program at the interface's tc egress that writes the next path into every packet. It makes TCP tolerate
    that packets overtake each other (its fast-retransmit threshold, and the time for which it remembers the shortest
    round trip), and makes a segmentation device on the interface, which cuts TCP's bursts into packets
    before they are labelled. With --segments 2 or more, bursts are limited to that size (gso_max_segs) and have one
    label each instead. All of it is put back when the agent ends, after SIGKILL at its next start.

    It probes the paths that the controller names, and a program at tc ingress answers the probes of other hosts; see
    docs/probes.md. With --no-probes it does neither.

    What another program changes there meanwhile is put right and logged; while labels are not written, the agent
    leaves the controller. An interface that goes, or loses its address, is waited for. Without a controller the agent
    keeps its last path sets. Without a path, packets go out unlabelled, and the switches distribute them by a hash per
    flow; so do packets that the host passes on for containers and virtual machines.

    Unless --no-probes is given, it probes the fabric's paths, and leaves those that are dead or lose more than others by
    itself, controller or not, until they are good again; --keep-paths only logs it.

    With --policy mcs the TCP connections between hosts that run it are scattered over channels, with an option in their TCP
    headers, and neither TCP settings nor bursts are changed: all packets of a burst take one path. Everything else passes
    as it is, without a label. The controller says which hosts run it.

    With --policy cfr TCP's data waits for slots that the arbiter grants, so that no queue grows in the fabric, and takes the
    paths granted with them. Everything else, and everything while no arbiter answers, is sent as with round-robin. Where the
    interface has the qdisc fq, data goes to it up to 1 ms ahead of its slot, and fq keeps it until the slot begins. The agent
    sets no qdisc: tc qdisc replace dev IF root fq.

    With --carrier option the path is an IPv4 option of 4 bytes: the interface's MTU is lowered by 4 until the agent ends, and
    options of received packets are removed. The edge switches' ports towards hosts then need the parser: see sopa parser.

    \b
    Example:
      sopa agent --iface eth1 --controller http://192.0.2.1:8080
      sopa agent --iface eth1 --controller http://192.0.2.1:8080 --metrics-port 9158
      sopa agent --iface eth1 --controller http://192.0.2.31:8080 --controller http://192.0.2.32:8080
      sopa agent --iface eth1 --controller http://192.0.2.1:8080 --policy cfr --arbiter 192.0.2.1:9160
    """
    from flowrules.label import Carrier
    from sopa_ryu.agent.agent_options import AgentError, Options, parse_arbiter
    from sopa_ryu.agent.host_settings import SettingsError
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.netns import Interface, NetnsError
    from sopa_ryu.agent.mcs import McsOptions, Without
    from sopa_ryu.agent.runner import run_agents
    from sopa_ryu.channel.client import ClientOptionError

    scatters, is_timed = policy == POLICY, policy == slots.POLICY
    _reject_contradictions(policy)
    if is_timed and not arbiter:
        raise click.UsageError(f"--policy {slots.POLICY} needs --arbiter ADDRESS:PORT")
    log_to_stderr()
    need_root("sopa agent")
    if token_file is None and TOKEN_FILE.exists():
        token_file = TOKEN_FILE
    left_out = Without(sum(Without[name.upper()] for name in set(mcs_without)))
    chosen = Policy.ROUND_ROBIN if scatters or is_timed else Policy.named(policy)
    parameters = {Policy.FLOWLET: round(1000 * flowlet_gap), Policy.FLOWCELL: flowcell}
    try:
        options = Options(
            controllers,
            chosen,
            fr_threshold,
            seed,
            flows,
            state_dir,
            Carrier(carrier),
            token_file,
            ca_file,
            (metrics_host, metrics_port) if metrics_port is not None else None,
            parameters.get(chosen, 0),
            wait,
            segments,
            min_rtt_window,
            weights,
            McsOptions(channels, ChannelKind(channel_kind), left_out, round(1000 * mcs_patience)) if scatters else None,
            parse_arbiter(arbiter) if arbiter else None,
            probes,
            keep_paths,
        )
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
        raise click.UsageError(
            f"{_option(name)} has no meaning with --policy {policy}, {WHY_NOT[policy]}: leave it out"
        )
    for other, names in ONLY_WITH.items():
        for name in filter(given, names if other != policy else ()):
            raise click.UsageError(f"{_option(name)} needs --policy {other}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def log_to_stderr() -> None:
    """Write log lines with their time to standard error, for a terminal or the journal."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for library in ("websockets", "httpx"):  # a line for each connection, and for each request
        logging.getLogger(library).setLevel(logging.WARNING)
