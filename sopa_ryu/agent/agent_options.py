"""The options of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from flowrules.label import Carrier
from sopa_ryu.agent.host_settings import DEFAULT_SEGMENTS, STATE_DIR
from sopa_ryu.agent.labeller import DEFAULT_FLOWS
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.tcp_settings import DEFAULT_MIN_RTT_WINDOW, DEFAULT_THRESHOLD
from sopa_ryu.channel import mcs, protocol, slots
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress
from sopa_ryu.channel.host_tokens import token_of

CHANNEL = "/sopa/v1/agents/"


class AgentError(RuntimeError):
    """The agent cannot work with its options on this machine; nothing has been changed."""


@dataclass(frozen=True)
class Options:
    """The options of an agent, of all its interfaces.

    Args:
        controllers: The controller's URL, ``http://192.0.2.1:8080``; of a cluster those of relays, or of the controllers.
        fr_threshold: TCP's fast-retransmit threshold in packets.
        seed: 32 bits that decide every flow's start and every random choice.
        flows: The number of flows whose position is kept for each interface.
        state_dir: The directory of saved host settings.
        carrier: Where the label is written.
        token_file: The token for the controller's channel, or lines of addresses and tokens; read at each connection.
        ca_file: The authorities, in PEM, that may have signed the certificate of a controller with an https URL; the system's
            by default.
        parameter: The policy's, in nanoseconds or bytes (`PathTable.parameter`); 0 for its default.
        wait: At the start, wait for an interface that is away, which is otherwise an error. One that goes later is always
            waited for.
        segments: The packets of a TCP burst that share a label; `bursts.AUTO` lets the speed of each interface's link decide.
        min_rtt_window: The seconds over which TCP remembers the shortest round trip.
        weighted: Whether packets use candidate paths in proportion to their weights; if not, all alike.
        metrics: The address and port where ``/metrics`` is served; nowhere by default.
        mcs: Scatter TCP connections over channels instead of labelling packets by the policy; the host's settings stay as they
            are then.
        arbiter: Address or name, and UDP port: send TCP's data in slots that it grants, and label the rest by the policy.
        probes: Probe paths, and answer other hosts' probes.
        keep_paths: Leave no path that probes find bad; log it only.
    """

    controllers: tuple[str, ...]
    policy: Policy = Policy.ROUND_ROBIN
    fr_threshold: int = DEFAULT_THRESHOLD
    seed: int = 0
    flows: int = DEFAULT_FLOWS
    state_dir: Path = field(default=STATE_DIR)
    carrier: Carrier = Carrier.MAC
    token_file: Path | None = None
    ca_file: Path | None = None
    metrics: tuple[str, int] | None = None
    parameter: int = 0
    wait: bool = False
    segments: int = DEFAULT_SEGMENTS
    min_rtt_window: int = DEFAULT_MIN_RTT_WINDOW
    weighted: bool = True
    mcs: McsOptions | None = None
    arbiter: tuple[str, int] | None = None
    probes: bool = True
    keep_paths: bool = False

    def __post_init__(self) -> None:
        """Raise `AgentError` for options that contradict each other."""
        if self.arbiter is not None:
            self._check_cfr()
        if self.mcs is None:
            return
        if self.carrier is not Carrier.MAC:
            raise AgentError(
                f"MCS needs carrier mac, not {self.carrier}, since it does not make packets longer: start the controller and all "
                "agents with carrier mac, or use another policy"
            )
        if self.segments != DEFAULT_SEGMENTS:
            raise AgentError("MCS does not limit bursts: the packets that a network card makes of one share a label")
        if not mcs.MIN_CHANNELS <= self.mcs.channels <= mcs.MAX_CHANNELS:
            raise AgentError(f"MCS has {mcs.MIN_CHANNELS} to {mcs.MAX_CHANNELS} channels, not {self.mcs.channels}")

    def _check_cfr(self) -> None:
        if self.mcs is not None:
            raise AgentError(
                "MCS and CFR contradict each other: one scatters a connection's packets, the other times them"
            )
        if self.carrier is not Carrier.MAC:
            raise AgentError(
                f"CFR needs carrier mac, not {self.carrier}: start the controller and all agents with carrier mac"
            )
        if self.segments != DEFAULT_SEGMENTS:
            raise AgentError("CFR limits bursts to its slots: --segments cannot be given with it")

    @property
    def policy_name(self) -> str:
        """The policy as on the command line."""
        if self.arbiter is not None:
            return slots.POLICY
        return self.policy.option_name if self.mcs is None else mcs.POLICY

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
        query = f"carrier={self.carrier}&" + mcs.request(self.policy_name, self.mcs and self.mcs.variant)
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
