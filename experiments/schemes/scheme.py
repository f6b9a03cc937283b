"""Schemes: path selection by hosts, forwarding by switches, settings of TCP, and controller applications. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from experiments.schemes.slots import SLOT_HELP, SLOT_SETTINGS, Slots
from sopa_ryu.agent.host.tcp_settings import LINUX_MIN_RTT_WINDOW, MAX_MIN_RTT_WINDOW
from sopa_ryu.agent.label.bursts import MAX_SEGMENTS
from sopa_ryu.channel.mcs import MAX_CHANNELS, MIN_CHANNELS, ChannelKind

LINUX_THRESHOLD = 3
"""Default fast-retransmit threshold of Linux (net.ipv4.tcp_reordering)."""
MAX_DUPLICATES = 300
MAX_ECN_THRESHOLD = 10_000
MAX_ECN_BYTES = 10_000_000
_SWITCHES = ("rack", "adapt", "sack")


class SchemeError(ValueError):
    """A scheme is unknown or impossible. The message says what to ask for instead."""


class Fabric(Enum):
    """The kind of switches that forward."""

    OPENFLOW = "Open vSwitch, programmed by the SOPA controller"
    ROUTERS = "Linux routers that speak BGP"
    SIMULATOR = "switches of the simulator only"


@dataclass(frozen=True)
class Scheme:
    """A way to spread traffic over the paths of the fabric.

    Attributes:
        summary: One line for ``--help``.
        policy: ``--policy`` of the host agents. None: hosts have no agent, and switches hash each flow.
        policy_options: Further options of ``sopa agent``.
        segments: Packets of a TCP burst that share a label (``sopa agent --segments``).
        weights: Senders use candidate paths in proportion to their weights; if not, each in turn, whatever it carries.
        fr_threshold: Fast-retransmit threshold of TCP on all hosts.
        min_rtt_window: Seconds for which TCP on all hosts remembers the shortest round trip: RACK waits a quarter of it for a
            packet that others have overtaken.
        recovery: ``net.ipv4.tcp_recovery``: 1 with RACK (loss detection by time, RFC 8985), 0 without.
        subflows: 0: TCP. Otherwise the number of subflows of multipath TCP.
        channels: 0: TCP. Otherwise the number of channels over which MCS at the hosts scatters a connection.
        channel_kind: With MCS, what is different between channels.
        ecn: Switch ports mark ECN-capable packets that find a long queue.
        ecn_threshold: Length in packets above which a queue is long; None for the default, which depends on the queue's
            capacity.
        ecn_bytes: Length in bytes above which a queue is long; None for one in packets.
        slots: With congestion-free routing, its slots.
        probes: Hosts probe paths, and leave bad ones by themselves (docs/probes.md); None as the backend does it: the lab's
            agents probe, hosts of the simulator do not.
        applications: Ryu applications that run with the SOPA controller.
        controller_options: Further options of ``ryu-manager``.
        sysctls: Further settings under ``/proc/sys/net`` of every host, by ``/``-separated name.
        router_sysctls: Settings of every router, likewise.
    """

    name: str
    summary: str
    policy: str | None = None
    policy_options: tuple[str, ...] = ()
    segments: int = 1
    weights: bool = True
    fr_threshold: int = LINUX_THRESHOLD
    min_rtt_window: int = LINUX_MIN_RTT_WINDOW
    recovery: int = 1
    subflows: int = 0
    channels: int = 0
    channel_kind: ChannelKind = ChannelKind.PATHS
    ecn: bool = False
    ecn_threshold: int | None = None
    ecn_bytes: int | None = None
    slots: Slots | None = None
    probes: bool | None = None
    fabric: Fabric = Fabric.OPENFLOW
    applications: tuple[str, ...] = ()
    controller_options: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    router_sysctls: Mapping[str, str] = field(default_factory=dict)

    def with_settings(self, settings: Mapping[str, str]) -> Scheme:
        """Return the scheme with different TCP settings.

        ``channels`` is the number of channels of MCS. ``segments`` packets of a burst share a label. ``weights`` is ``off`` for
        senders that use every candidate path alike. ``probes`` is ``on`` or ``off``, see `probes`.
        ``fr`` is the fast-retransmit threshold, ``minrtt`` are the seconds
        of `min_rtt_window`. ``rack`` is ``on`` or ``off``. ``adapt`` is ``off`` to keep TCP from raising the threshold when
        it detects reordering. ``sack`` is ``off`` for TCP without selective acknowledgements (RFC 2018), which detects
        losses by duplicate acknowledgements only. With MCS ``channels`` is their number, and ``ecn`` is ``off`` for switches that
        mark nothing, or the threshold in packets. With ``dctcp`` ``ecn-bytes`` is the threshold in bytes. Those of `Slots` are for
        ``cfr``. The name of the variant lists them in this order:
        ``mcs+channels=4+ecn=10``,
        ``sopa+segments=4+weights=off+fr=6+minrtt=300+rack=off+adapt=off+sack=off``.

        Raises:
            SchemeError: For an unknown setting or an invalid value.
        """
        changed = self
        for name, value in settings.items():
            if name == "fr" and value.isdecimal() and 1 <= int(value) <= MAX_DUPLICATES:
                changed = replace(changed, fr_threshold=int(value))
            elif (
                name == "segments" and self.policy is not None and value.isdecimal() and 1 <= int(value) <= MAX_SEGMENTS
            ):
                changed = replace(changed, segments=int(value))
            elif name == "probes" and self.policy is not None and value in ("on", "off"):
                changed = replace(changed, probes=value == "on")
            elif name == "weights" and self.policy is not None and value in ("on", "off"):
                changed = replace(changed, weights=value == "on")
            elif (
                name == "channels"
                and self.channels > 1
                and value.isdecimal()
                and MIN_CHANNELS <= int(value) <= MAX_CHANNELS
            ):
                changed = replace(changed, channels=int(value))
            elif name == "ecn" and self.channels and value in ("on", "off"):
                changed = replace(changed, ecn=value == "on")
            elif name == "ecn" and self.channels and value.isdecimal() and 1 <= int(value) <= MAX_ECN_THRESHOLD:
                changed = replace(changed, ecn=True, ecn_threshold=int(value))
            elif (
                name == "ecn-bytes"
                and self.ecn
                and not self.channels
                and value.isdecimal()
                and 1 <= int(value) <= MAX_ECN_BYTES
            ):
                changed = replace(changed, ecn_bytes=int(value))
            elif changed.slots is not None and (slots := changed.slots.changed(name, value)):
                changed = replace(changed, slots=slots)
            elif name == "minrtt" and value.isdecimal() and int(value) <= MAX_MIN_RTT_WINDOW:
                changed = replace(changed, min_rtt_window=int(value))
            elif name == "rack" and value in ("on", "off"):
                changed = replace(changed, recovery=int(value == "on"))
            elif name not in _SWITCHES or value not in ("on", "off"):
                raise SchemeError(
                    f"{self.name}: {name}={value} is not a setting: write +fr=N (1 to {MAX_DUPLICATES}), "
                    f"+minrtt=SECONDS (0 to {MAX_MIN_RTT_WINDOW}), "
                    f"+segments=N (1 to {MAX_SEGMENTS}) +weights=on or +weights=off, and +probes=on or +probes=off where senders "
                    "write labels, "
                    f"+channels=N ({MIN_CHANNELS} to {MAX_CHANNELS}) and +ecn=PACKETS, +ecn=on or +ecn=off with MCS, "
                    f"+ecn-bytes=BYTES (1 to {MAX_ECN_BYTES}) with dctcp, {SLOT_HELP}, "
                    + ", ".join(f"+{switch}=on or +{switch}=off" for switch in _SWITCHES)
                )
        if settings.get("adapt") == "off":
            most = {"ipv4/tcp_max_reordering": str(changed.fr_threshold)}
            changed = replace(changed, sysctls={**changed.sysctls, **most})
        if settings.get("sack") == "off":
            changed = replace(changed, sysctls={**changed.sysctls, "ipv4/tcp_sack": "0"})
        tail = "".join(
            f"+{name}={settings[name]}"
            for name in (
                "channels",
                "ecn",
                "ecn-bytes",
                *SLOT_SETTINGS,
                "segments",
                "weights",
                "probes",
                "fr",
                "minrtt",
                *_SWITCHES,
            )
            if name in settings
        )
        return replace(changed, name=self.name + tail)
