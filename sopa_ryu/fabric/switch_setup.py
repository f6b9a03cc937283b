"""What a switch's configuration must be, and the commands that mend what is wrong. Pure.

The same checks run in the controller, over the switch's database, and in ``sopa doctor switch`` on the switch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topologies import Clos, Host, Switch, TopologyError
from topologies.fabric_plan import PREFIXES, track_prefixes
from topologies.structure import BFD_MAC

OPENFLOW = "OpenFlow13"
CHECKS = (
    *("datapath-id", "in-band", "fail-mode", "protocols", "controllers", "tls", "ports", "spanning-tree", "cfm", "bfd"),
    "prefixes",
)
"""Every value of `SetupProblem.check`."""
MAX_LISTED = 6
_BFD_KEYS = ("bfd_local_dst_mac", "bfd_remote_dst_mac")


class Target(NamedTuple):
    """A controller that a bridge is configured with."""

    address: str
    connected: bool

    @property
    def is_passive(self) -> bool:
        """Whether the bridge listens there for whoever connects, as for ovs-ofctl, instead of connecting to a controller."""
        return self.address.startswith(("ptcp:", "pssl:", "punix:"))


@dataclass(frozen=True)
class SwitchSetup:
    """A bridge of Open vSwitch as its database describes it."""

    uuid: str
    bridge: str
    """Its row and its name."""
    dpid: int | None
    """None while no datapath exists."""
    fail_mode: str = ""
    """Empty if it is not set, which means standalone."""
    protocols: frozenset[str] = frozenset()
    """The OpenFlow versions that it accepts; none if that is not set: then all that Open vSwitch knows."""
    other_config: Mapping[str, str] = field(default_factory=dict)
    controllers: tuple[Target, ...] = ()
    interfaces: Mapping[int, str] = field(default_factory=dict)
    """Its interfaces by OpenFlow port; the bridge's own is not among them."""
    bfd: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """The settings of BFD of each of these ports."""
    cfm: frozenset[int] = frozenset()
    """Ports with connectivity fault management."""
    spanning_tree: bool = False
    prefixes: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """What flow tables track, by their numbers; none for Open vSwitch's default."""
    ca: str = ""
    bootstraps: bool = False
    """The file of the authority by which a controller's certificate is checked, and whether any is accepted at first."""


class SetupProblem(NamedTuple):
    """Something that is wrong with a switch.

    ``check`` is one of `CHECKS`, ``problem`` says what is wrong and what follows, ``mend`` is the command to run on the switch.
    """

    switch: str
    check: str
    problem: str
    mend: str


def switch_of(tree: Clos, setup: SwitchSetup) -> Switch | None:
    """Return the switch of the plan that a bridge is by its datapath id, or None."""
    try:
        return None if setup.dpid is None else tree.switch_by_dpid(setup.dpid)
    except TopologyError:
        return None


def in_band_is_on(setup: SwitchSetup) -> bool:
    """Tell whether hidden entries above all others may forward packets for the controller's address."""
    return setup.other_config.get("disable-in-band", "").lower() != "true"


def problems(tree: Clos, setup: SwitchSetup, cluster: bool = False) -> Iterator[SetupProblem]:
    """Yield what is wrong with a bridge; ``cluster``: several controllers share the fabric."""
    switch, bridge = switch_of(tree, setup), shlex.quote(setup.bridge)
    name = setup.bridge if switch is None else tree.name(switch)
    set_bridge = f"ovs-vsctl set bridge {bridge}"
    if switch is None:
        shown = "none" if setup.dpid is None else f"{setup.dpid:016x}"
        yield SetupProblem(
            name,
            "datapath-id",
            f"its datapath id is {shown}, no switch of a {tree.title}: the controller ignores it",
            f"{set_bridge} other-config:datapath-id=ID, with the plan's id in 16 hexadecimal digits",
        )
    if in_band_is_on(setup):
        yield SetupProblem(
            name,
            "in-band",
            "in-band control is on: hidden entries flood packets for the controller, and one packet of a host may storm",
            f"{set_bridge} other-config:disable-in-band=true",
        )
    if setup.fail_mode != "secure":
        yield SetupProblem(
            name,
            "fail-mode",
            f"its fail mode is {setup.fail_mode or 'not set'}: without a controller it floods, and the fabric has loops",
            f"{set_bridge} fail_mode=secure",
        )
    if setup.protocols and OPENFLOW not in setup.protocols:
        accepted = _listed(sorted(setup.protocols))
        yield SetupProblem(
            name, "protocols", f"its OpenFlow versions are {accepted}: it needs {OPENFLOW}", f"{set_bridge} protocols={OPENFLOW}"
        )
    yield from _controllers(name, bridge, setup, cluster)
    if setup.spanning_tree:
        yield SetupProblem(
            name,
            "spanning-tree",
            "it runs a spanning tree, which blocks links and takes hosts' frames for its own",
            f"{set_bridge} stp_enable=false rstp_enable=false",
        )
    wanted = ((setup.prefixes.get(table, frozenset()), fields) for fields, tables in PREFIXES.values() for table in tables)
    if not all(tracked.issuperset(fields) for tracked, fields in wanted):
        yield SetupProblem(
            name,
            "prefixes",
            "its tables do not track prefixes of IPv6: it caches a decision for each address, and may have no room for all",
            track_prefixes(setup.bridge),
        )
    if switch is not None:
        yield from _ports(tree, switch, setup)


def _controllers(name: str, bridge: str, setup: SwitchSetup, cluster: bool) -> Iterator[SetupProblem]:
    active = [target for target in setup.controllers if not target.is_passive]
    targets = [target.address for target in active]
    # A mend names only what must be this fabric's controller, and keeps listeners: set-controller replaces all, in one transaction,
    # since a switch without a controller in between would lose its entries.
    serving = [target.address for target in active if target.connected or len(active) == 1]
    wanted = shlex.quote(serving[0]) if len(serving) == 1 else "TARGET"
    kept = "".join(f" {shlex.quote(target.address)}" for target in setup.controllers if target.is_passive)
    if cluster and len(targets) == 1:
        found = f"it has one controller of a cluster only ({targets[0]}): when that is away, no other one reaches it"
        yield SetupProblem(name, "controllers", found, f"ovs-vsctl set-controller {bridge} {wanted} TARGET TARGET{kept}")
    elif len(targets) != 1 and not (cluster and targets):
        several = f"{len(targets)} controllers ({_listed(targets)}): another one can change its rules"
        found = several if targets else "no controller"
        which = "" if wanted != "TARGET" else ", with SOPA's controller for TARGET, as tcp:ADDRESS:6653"
        yield SetupProblem(name, "controllers", f"it has {found}", f"ovs-vsctl set-controller {bridge} {wanted}{kept}{which}")
    if any(target.startswith("ssl:") for target in targets) and (not setup.ca or setup.bootstraps):
        yield SetupProblem(
            name,
            "tls",
            "it accepts any controller's certificate" if setup.bootstraps else "no authority is set: TLS cannot come up",
            "ovs-vsctl set-ssl KEY CERTIFICATE CA",
        )


def _listed(texts: Sequence[str]) -> str:
    """List the first of what a switch says, which may be much."""
    return ", ".join(texts[:MAX_LISTED]) + f" and {len(texts) - MAX_LISTED} more" * (len(texts) > MAX_LISTED)


def _ports(tree: Clos, switch: Switch, setup: SwitchSetup) -> Iterator[SetupProblem]:
    name, planned = tree.name(switch), tree.ports(switch)
    missing = sorted(planned.keys() - setup.interfaces.keys())
    # the port of an absent link may be there, too
    more = sorted(port for port in setup.interfaces if not 1 <= port <= tree.port_count(switch.level))
    if missing:
        numbers = ", ".join(map(str, missing))
        mend = f"ovs-vsctl set interface IF ofport_request={missing[0]}"
        yield SetupProblem(name, "ports", f"it has no port {numbers}", mend)
    for port in more:
        interface = setup.interfaces[port]
        mend = f"ovs-vsctl del-port {shlex.quote(setup.bridge)} {shlex.quote(interface)}"
        yield SetupProblem(name, "ports", f"its port {port} ({interface}) is not in the plan", mend)
    for port, neighbour in planned.items():
        if port not in setup.interfaces:
            continue
        interface, bfd = shlex.quote(setup.interfaces[port]), setup.bfd.get(port, {})
        on = bfd.get("enable", "").lower() == "true"
        if port in setup.cfm:
            yield SetupProblem(
                name,
                "cfm",
                f"port {port} runs connectivity fault management, which takes frames that a host can forge",
                f"ovs-vsctl clear interface {interface} cfm_mpid",
            )
        if neighbour in tree.gateways:
            continue  # it may speak BFD: forged, it moves its own flows only
        if isinstance(neighbour, Host) and on:
            yield SetupProblem(
                name,
                "bfd",
                f"port {port} runs BFD towards a host, which can forge it",
                f"ovs-vsctl clear interface {interface} bfd",
            )
        elif on and any(bfd.get(key, "").lower() != BFD_MAC for key in _BFD_KEYS):
            keys = " ".join(f"bfd:{key}={BFD_MAC}" for key in _BFD_KEYS)
            yield SetupProblem(
                name,
                "bfd",
                f"port {port} has BFD without the fabric's address {BFD_MAC}: others' packets count, too",
                f"ovs-vsctl set interface {interface} {keys}, at both ends of the link",
            )
