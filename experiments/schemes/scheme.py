"""Schemes: path selection by hosts, forwarding by switches, settings of TCP, and controller applications. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from sopa_ryu.agent.host.tcp_settings import LINUX_MIN_RTT_WINDOW, MAX_MIN_RTT_WINDOW
from sopa_ryu.agent.label.bursts import MAX_SEGMENTS
from sopa_ryu.agent.label.spray import DEFAULT, Spray
from sopa_ryu.channel.mcs import MAX_CHANNELS, MIN_CHANNELS, ChannelKind

LINUX_CONGESTION = "cubic"
"""Default congestion control of Linux."""
CONGESTION_CONTROLS = ("bbr", LINUX_CONGESTION, "dctcp", "reno")
LINUX_THRESHOLD = 3
"""Default fast-retransmit threshold of Linux (net.ipv4.tcp_reordering)."""
MAX_DUPLICATES = 300
MAX_ECN_THRESHOLD = 10_000
MAX_ECN_BYTES = 10_000_000
MAX_SLOT = 64
"""Packets."""
MAX_DELAY_NS = 1_000_000
MAX_GUARD = 50
ORDERS = ("min-max-min", "alternating", "smallest")
PATHS = ("colouring", "next-fit-ga", "next-fit", "first-fit", "first-fit-ga")
DEMANDS = ("flow", "socket", "packet")
_TIME = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ns|us|ms)")
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


class SchemeError(ValueError):
    """A scheme is unknown or impossible. The message says what to ask for instead."""


class Fabric(Enum):
    """The kind of switches that forward."""

    OPENFLOW = "Open vSwitch, programmed by the SOPA controller"
    ROUTERS = "Linux routers that speak BGP"
    SRV6 = "Linux routers with static SRv6 uSIDs, and static multipath routes for what is not encapsulated"
    SIMULATOR = "switches of the simulator only"


@dataclass(frozen=True)
class Slots:
    """Slots of `cfr` and their arbiter.

    Attributes:
        packets: Full packets that a host sends in a slot. None: 1 in the simulator, in the lab what a machine keeps up with.
        delay_ns: Time from a host to the arbiter, and from the arbiter to a host.
        guard_percent: Share of a slot for packets that need none: acknowledgements, and what opens and closes connections.
        order, paths: In which order demands get slots (`ORDERS`), and how paths are found (`PATHS`).
        demand: What the arbiter learns of: the size of a flow when it begins, what an application has passed to its socket, or
            packets that TCP would send now.
    """

    packets: int | None = None
    delay_ns: int = 10_000
    guard_percent: int = 4
    order: str = ORDERS[0]
    paths: str = PATHS[0]
    demand: str = DEMANDS[0]

    @property
    def is_simulated(self) -> bool:
        """True if it has settings that real hosts and the real arbiter do not have."""
        return self != Slots(self.packets)


@dataclass(frozen=True)
class Scheme:
    """A way to spread traffic over the paths of the fabric.

    Attributes:
        summary: One line for ``--help``.
        policy: ``--policy`` of the host agents. None: hosts have no agent, and switches hash each flow.
        policy_options: Further options of ``sopa agent``.
        spray: The flows each of whose packets takes the next path (``sopa agent --spray``); hosts of the simulator send TCP only.
        segments: Packets of a TCP burst that share a label (``sopa agent --segments``).
        weights: Senders use candidate paths in proportion to their weights; if not, each in turn, whatever it carries.
        fr_threshold: Fast-retransmit threshold of TCP on all hosts.
        min_rtt_window: Seconds for which TCP on all hosts remembers the shortest round trip: RACK waits a quarter of it for a
            packet that others have overtaken.
        congestion: Congestion control of TCP of the lab's hosts, by its name in Linux.
        recovery: ``net.ipv4.tcp_recovery``: 1 with RACK (loss detection by time, RFC 8985), 0 without.
        subflows, channels: How many of multipath TCP, or of MCS, at the hosts a connection has; 0: TCP.
        channel_kind: With MCS, what is different between channels.
        ecn: Switch ports mark ECN-capable packets that find a queue longer than a threshold.
        ecn_threshold, ecn_bytes: In packets or in bytes; None of both for the default, which depends on the queue's capacity.
        probes: Hosts probe paths, and leave bad ones by themselves (docs/probes.md); None as the backend does it: the lab's
            agents probe, hosts of the simulator do not.
        applications, controller_options: Ryu applications that run with the SOPA controller; options of ``ryu-manager``.
        sysctls, router_sysctls: Settings under ``/proc/sys/net`` of every host, and of every router, by ``/``-separated name.
    """

    name: str
    summary: str
    policy: str | None = None
    policy_options: tuple[str, ...] = ()
    spray: str = DEFAULT
    segments: int = 1
    weights: bool = True
    fr_threshold: int = LINUX_THRESHOLD
    min_rtt_window: int = LINUX_MIN_RTT_WINDOW
    congestion: str = LINUX_CONGESTION
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
        """Return the scheme with some of `SETTINGS` changed; the name of the variant lists them in their order.

        Raises `SchemeError` for an unknown setting or an invalid value.
        """
        changed = self
        for name, text in settings.items():
            setting = SETTINGS.get(name)
            value = setting.read(text) if setting is not None and setting.applies(self) else None
            if setting is None or value is None:
                known = SETTINGS if setting is None else [name]
                forms = ", ".join(f"+{each}={SETTINGS[each].form}" for each in known)
                raise SchemeError(f"{self.name}: {name}={text} is not a setting: write {forms}")
            changes = dict(zip(setting.fields, value if isinstance(value, tuple) else (value,), strict=False))
            if name in SLOT_SETTINGS:
                assert changed.slots is not None
                changes = {"slots": replace(changed.slots, **changes)}
            changed = replace(changed, **changes)
        sysctls = dict(changed.sysctls)
        if settings.get("adapt") == "off":
            sysctls["ipv4/tcp_max_reordering"] = str(changed.fr_threshold)
        if settings.get("sack") == "off":
            sysctls["ipv4/tcp_sack"] = "0"
        tail = "".join(f"+{name}={settings[name]}" for name in SETTINGS if name in settings)
        return replace(changed, name=self.name + tail, sysctls=sysctls)


class Setting(NamedTuple):
    """A setting of a scheme's variant, and the schemes to which it applies.

    ``form`` is how it is written, and where it applies. ``read`` returns the value of a text for the fields of the scheme, or of
    its slots; a tuple for several, None if invalid.
    """

    form: str
    read: Callable[[str], Any]
    fields: tuple[str, ...] = ()
    applies: Callable[[Scheme], bool] = lambda _scheme: True


def _number(least: int, most: int) -> Callable[[str], int | None]:
    return lambda text: int(text) if text.isdecimal() and least <= int(text) <= most else None


def _short_number(least: int, most: int) -> Callable[[str], int | None]:
    return lambda text: _number(least, most)(text) if text.isascii() and len(text) < 4 else None


def _choice(
    values: tuple[str, ...], where: str, fields: tuple[str, ...], applies: Callable[[Scheme], bool] = lambda _scheme: True
) -> Setting:
    return Setting(f"{'|'.join(values)} {where}", lambda text: text if text in values else None, fields, applies)


def _delay_ns(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    delay = round(float(match[1]) * _UNITS[match[2]]) if match else None
    return delay if delay is not None and delay <= MAX_DELAY_NS else None


def _ecn(text: str) -> tuple[bool, int | None] | None:
    threshold = _number(1, MAX_ECN_THRESHOLD)(text)
    return (text != "off", threshold) if threshold or text in _SWITCH else None


def _spray(text: str) -> str | None:
    try:
        return str(Spray.of(text))
    except ValueError:
        return None


def _labels(scheme: Scheme) -> bool:
    return scheme.policy is not None


def _has_slots(scheme: Scheme) -> bool:
    return scheme.slots is not None


_SWITCH = {"on": True, "off": False}
_IN_SIMULATOR = "with cfr, in the simulator"
SLOT_SETTINGS = {
    "slot": Setting(f"PACKETS (1 to {MAX_SLOT}) with cfr", _short_number(1, MAX_SLOT), ("packets",), _has_slots),
    "delay": Setting(f"TIME (0us to 1ms) {_IN_SIMULATOR}", _delay_ns, ("delay_ns",), _has_slots),
    "guard": Setting(f"PERCENT (0 to {MAX_GUARD}) {_IN_SIMULATOR}", _short_number(0, MAX_GUARD), ("guard_percent",), _has_slots),
    "order": _choice(ORDERS, _IN_SIMULATOR, ("order",), _has_slots),
    "paths": _choice(PATHS, _IN_SIMULATOR, ("paths",), _has_slots),
    "demand": _choice(DEMANDS, _IN_SIMULATOR, ("demand",), _has_slots),
}
"""Of `Slots`."""
_SENDERS = "where senders write labels"
SETTINGS = {
    "channels": Setting(
        f"N ({MIN_CHANNELS} to {MAX_CHANNELS}) with MCS",
        _number(MIN_CHANNELS, MAX_CHANNELS),
        ("channels",),
        lambda scheme: scheme.channels > 1,
    ),
    "ecn": Setting("PACKETS|on|off with MCS", _ecn, ("ecn", "ecn_threshold"), lambda scheme: scheme.channels > 0),
    "ecn-bytes": Setting(
        f"BYTES (1 to {MAX_ECN_BYTES}) with dctcp",
        _number(1, MAX_ECN_BYTES),
        ("ecn_bytes",),
        lambda scheme: scheme.ecn and not scheme.channels,
    ),
    **SLOT_SETTINGS,
    "spray": Setting(f"RULE (all, a protocol, udp:PORT) {_SENDERS}", _spray, ("spray",), _labels),
    "segments": Setting(f"N (1 to {MAX_SEGMENTS}) {_SENDERS}", _number(1, MAX_SEGMENTS), ("segments",), _labels),
    "weights": Setting(f"on|off {_SENDERS}", _SWITCH.get, ("weights",), _labels),
    "probes": Setting(f"on|off {_SENDERS}", _SWITCH.get, ("probes",), _labels),
    "fr": Setting(f"N (1 to {MAX_DUPLICATES})", _number(1, MAX_DUPLICATES), ("fr_threshold",)),
    "minrtt": Setting(f"SECONDS (0 to {MAX_MIN_RTT_WINDOW})", _number(0, MAX_MIN_RTT_WINDOW), ("min_rtt_window",)),
    "congestion": _choice(CONGESTION_CONTROLS, "in the lab", ("congestion",)),
    "rack": Setting("on|off", {"on": 1, "off": 0}.get, ("recovery",)),
    "adapt": Setting("on|off", _SWITCH.get),
    "sack": Setting("on|off", _SWITCH.get),
}
"""In the order of a variant's name. ``adapt=off`` keeps TCP from raising the threshold when it detects reordering; ``sack=off`` is
TCP without selective acknowledgements (RFC 2018), which detects losses by duplicate acknowledgements only."""
