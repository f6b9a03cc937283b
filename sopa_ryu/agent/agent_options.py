"""The options of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

from flowrules.label import Carrier
from sopa_ryu.agent.host.tcp_settings import DEFAULT_MIN_RTT_WINDOW, DEFAULT_THRESHOLD, MAX_MIN_RTT_WINDOW
from sopa_ryu.agent.label.bursts import AUTO, MAX_SEGMENTS
from sopa_ryu.agent.label.spray import DEFAULT, Spray
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.scatter.mcs import DEFAULT_PATIENCE_US, McsOptions, Without
from sopa_ryu.channel import mcs, protocol, slots
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress
from sopa_ryu.channel.host_tokens import token_of
from sopa_ryu.channel.mcs import ChannelKind
from sopa_ryu.runtime.option_fields import DIRECTORY, FILE, REQUIRED, option, seed_option, urls

CHANNEL = "/sopa/v1/agents/"
TOKEN_FILE = Path("/etc/sopa/agent-token")
POLICIES = (
    "Selects each packet's path: in turn, at random, by a hash of the flow, or the path that carried the fewest bytes. flowlet "
    "takes the next path after a gap in the flow, flowcell after a number of bytes. sopa-skip is round-robin, but a path that "
    "loses more of TCP's packets than others loses turns."
)


class AgentError(RuntimeError):
    """The agent cannot work with its options on this machine; nothing has been changed."""


class Segments(click.IntRange):
    """The packets of a burst that share a label: a number, or ``auto``."""

    name = "N|auto"

    def __init__(self) -> None:
        super().__init__(1, MAX_SEGMENTS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, `AUTO` for ``auto``, or end with a usage error."""
        return AUTO if value == "auto" else int(super().convert(value, param, ctx))


@dataclass(frozen=True)
class AgentOptions:
    """The options of an agent, of all its interfaces. Of `segments`, `bursts.AUTO` lets the speed of each link decide."""

    # fmt: off
    controllers: tuple[str, ...] = option(REQUIRED, "URL of the controller: http://192.0.2.1:8080. May be repeated for a "
        "cluster's relays, or controllers. Each host begins with another one, and goes on with the next when that is away "
        "(docs/cluster.md).",
        name="controller", multiple=True, callback=urls, metavar="URL")
    carrier: Carrier = option(Carrier.MAC, "Where a packet carries its label. mac: in the Ethernet source address. option: in an "
        "IPv4 option. id: in the address once for each burst, whose packets the edge switch's port spreads (sopa parser follow). "
        "srv6: as the uSID list of an outer IPv6 header, for routers.")
    policy: str = option(Policy.ROUND_ROBIN.option_name, f"{POLICIES} cfr sends TCP's data in slots that an arbiter grants, all "
        "else round-robin (docs/cfr.md): no --segments, no --carrier option. mcs scatters each TCP connection over channels and "
        "follows congestion on them (docs/mcs.md). TCP settings and bursts stay as they are then: no --segments, no "
        "--fr-threshold, no --carrier option.",
        type=click.Choice([*(policy.option_name for policy in Policy), mcs.POLICY, slots.POLICY]))
    spray: str = option(DEFAULT, "Flows each of whose packets takes the next path: all, or protocols (tcp, udp, icmp, ... or a "
        "number) and udp:PORT[-PORT]. Every other flow keeps one candidate path, by a hash.", metavar="RULE[,RULE...]")
    forwarded: str = option("hash", "What becomes of packets that the host passes on for containers and virtual machines. hash: "
        "switches hash their flows. spray: --spray applies to them, and their senders have to bear reordering. With --policy mcs: "
        "connections of containers are scattered, whose TCP is this kernel's.",
        type=click.Choice(["hash", "spray"]))
    fr_threshold: int = option(DEFAULT_THRESHOLD, "TCP's fast-retransmit threshold, net.ipv4.tcp_reordering, in packets. From "
        "Linux 6.17 on it has no effect with SACK: --min-rtt-window decides.", type=click.IntRange(1, 300))
    channels: int = option(mcs.DEFAULT_CHANNELS, "With --policy mcs: the channels of a connection.",
        type=click.IntRange(mcs.MIN_CHANNELS, mcs.MAX_CHANNELS))
    channel_kind: ChannelKind = option(ChannelKind.PATHS, "With --policy mcs: what a channel is. paths: a candidate path of the "
        "fabric. ports: a source port of its own, by which any network that hashes spreads packets. Hosts of the same kind "
        "scatter to one another.")
    mcs_patience: float = option(DEFAULT_PATIENCE_US // 1000, "With --policy mcs: data that is missing for so long while later "
        "data arrives counts as lost. It has to be more than the delays of paths differ by. It has to be less than TCP's "
        "retransmission timeout.", type=click.FloatRange(1, 60_000), metavar="MILLISECONDS")
    mcs_without: tuple[str, ...] = option((), "With --policy mcs, for comparison: lower no windows, or send duplicate ACKs.",
        type=click.Choice(["window", "filter"]), multiple=True)
    arbiter: str | None = option(None, f"With --policy cfr: the arbiter (sopa arbiter), port {slots.PORT} if none is named.",
        metavar="ADDRESS:PORT")
    seed: int = seed_option()
    flows: int = option(65536, "Flows per interface whose position is kept. Beyond that the least recently used start "
        "anew.", type=click.IntRange(1, 1 << 24))
    state_dir: Path = option(Path("/run/sopa"), "Directory of the saved host settings, until they are put back.", type=DIRECTORY)
    token_file: Path | None = option(None, "The token of each host, as sopa token prints it. Or the agent token of all hosts, "
        f"agent-token in the controller's --sopa-state-dir. Default: {TOKEN_FILE} if it exists.", type=FILE,
        envvar="SOPA_AGENT_TOKEN_FILE")
    ca_file: Path | None = option(None, "Certificate authorities (PEM) of an https controller. Default: the system's.", type=FILE,
        envvar="SOPA_CA_FILE")
    flowlet_gap: float = option(500, "With --policy flowlet: the pause after which a flow's next packet takes another path.",
        type=click.FloatRange(0.001, 1e9), metavar="MICROSECONDS")
    flowcell: int = option(65536, "With --policy flowcell: the bytes of a flow after which its next packet takes another path.",
        type=click.IntRange(1, 1 << 40), metavar="BYTES")
    segments: int = option(1, "Packets of a TCP burst that share a label, 1 to 44. More take less processor time, and reorder "
        "bursts. auto: 1 up to 25 Gbit/s, 16 up to 50, 44 on faster links.", type=Segments(), metavar="N|auto")
    weights: bool = option(True, "Use candidate paths in proportion to their weights where capacities are uneven, or all alike.")
    min_rtt_window: int = option(DEFAULT_MIN_RTT_WINDOW, "Seconds for which TCP remembers its shortest round trip "
        "(net.ipv4.tcp_min_rtt_wlen). It waits a quarter of that for a packet that others have overtaken. Linux's default "
        "is 300.", type=click.IntRange(0, MAX_MIN_RTT_WINDOW), metavar="SECONDS")
    probes: bool = option(True, "Probe the paths that the controller names, and answer other hosts' probes (docs/probes.md).")
    keep_paths: bool = option(False, "Leave no path that this host finds bad by itself. The log says that it would be left.")
    wait: bool = option(False, "At the start, wait for an interface that is missing or has no address of the fabric.")
    metrics_port: int | None = option(None, "Serve Prometheus metrics of these interfaces at /metrics on this port. Default: off.",
        type=click.IntRange(1, 65535), envvar="SOPA_AGENT_METRICS_PORT", metavar="PORT")
    metrics_host: str = option("127.0.0.1", "Address where metrics are served. A Prometheus on another machine needs a management "
        "address.", envvar="SOPA_AGENT_METRICS_HOST", metavar="ADDRESS")
    # fmt: on

    def __post_init__(self) -> None:
        """Raise `AgentError` for options that contradict each other, `ValueError` for an arbiter that is malformed."""
        if self.arbiter:
            parse_arbiter(self.arbiter)
        try:
            _ = self.sprayed
        except ValueError as error:
            raise AgentError(f"--spray: {error}") from error
        if self.carrier is Carrier.ID and (self.policy != Policy.ROUND_ROBIN.option_name or not self.weights):
            raise AgentError(f"carrier id has the edge switch choose paths in turn: leave out --policy {self.policy}, --no-weights")
        if self.policy in (mcs.POLICY, slots.POLICY) and self.carrier not in (Carrier.MAC, Carrier.SRV6):
            raise AgentError(
                f"{self.policy.upper()} needs carrier mac or srv6, not {self.carrier}: start the controller and all agents with "
                "such a one, or use another policy"
            )
        if self.mcs is not None and self.carrier is Carrier.SRV6 and self.mcs.kind is ChannelKind.PORTS:
            raise AgentError("channels of ports take no paths: leave out --carrier srv6, or --channel-kind ports")

    @property
    def labelling(self) -> Policy:
        """The policy by which packets get their paths where MCS and CFR do not decide."""
        return Policy.ROUND_ROBIN if self.policy in (mcs.POLICY, slots.POLICY) else Policy.named(self.policy)

    @property
    def parameter(self) -> int:
        """Of `labelling`, in nanoseconds or bytes (`PathTable.parameter`); 0 for its default."""
        return {Policy.FLOWLET: round(1000 * self.flowlet_gap), Policy.FLOWCELL: self.flowcell}.get(self.labelling, 0)

    @property
    def sprayed(self) -> Spray:
        """The flows each of whose packets takes the next path; `ValueError` if the rules are none."""
        return Spray.of(self.spray, forwarded=self.forwarded == "spray")

    @property
    def mcs(self) -> McsOptions | None:
        """The options of MCS, which scatters TCP connections instead of labelling packets; None with another policy."""
        if self.policy != mcs.POLICY:
            return None
        left_out = Without(sum(Without[name.upper()] for name in set(self.mcs_without)))
        return McsOptions(self.channels, self.channel_kind, left_out, round(1000 * self.mcs_patience), self.forwarded == "spray")

    @property
    def metrics(self) -> tuple[str, int] | None:
        """The address and port where ``/metrics`` is served, if it is."""
        return None if self.metrics_port is None else (self.metrics_host, self.metrics_port)

    @property
    def is_timed(self) -> bool:
        """Whether TCP's data is sent in slots."""
        return self.policy == slots.POLICY

    @property
    def arbiter_address(self) -> tuple[str, int] | None:
        """Address or name of the arbiter, and UDP port."""
        return parse_arbiter(self.arbiter) if self.arbiter else None

    def controller(self, url: str, address: IPv4Address) -> ControllerAddress:
        """Return one of the controllers, for a host's channel."""
        return ControllerAddress(url, lambda: self.token(address), self.ca_file)

    def token(self, address: IPv4Address) -> str:
        """Return the token of a host, empty without a token file; `ClientOptionError` if it has none, or that cannot be read."""
        if self.token_file is None:
            return ""
        try:
            return token_of(self.token_file.read_text(encoding="ascii"), address)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise ClientOptionError(f"the token cannot be read from {self.token_file}: {error}") from error

    def channel(self, address: IPv4Address, first: str = "") -> str:
        """Return path and query of a host's push channel.

        Args:
            first: The URL that comes first for the host, if it is another one.
        """
        query = f"carrier={self.carrier}&" + mcs.request(self.policy, self.mcs and self.mcs.variant)
        if self.policy != mcs.POLICY:
            query += "&" + urlencode({protocol.SPRAY: str(self.sprayed)})
        if self.probes:
            query += f"&{protocol.PROBES}=1"
        if first:
            query += "&" + urlencode({protocol.FIRST: first})
        return f"{CHANNEL}{address}?{query}"


def parse_arbiter(text: str) -> tuple[str, int]:
    """Return the address and the port of an arbiter.

    Raises:
        ValueError: If it is malformed.

    >>> parse_arbiter("192.0.2.1:9160"), parse_arbiter("arbiter.example"), parse_arbiter("[2001:db8::1]:9161")
    (('192.0.2.1', 9160), ('arbiter.example', 9160), ('2001:db8::1', 9161))
    """
    what = f"{text!r} is no arbiter: write ADDRESS:PORT"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{what} ({error})") from error
    if not parts.hostname or parts.netloc != text or "@" in text or port == 0:
        raise ValueError(what)
    return parts.hostname, slots.PORT if port is None else port
