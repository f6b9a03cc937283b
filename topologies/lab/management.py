"""The management network of a lab with several controllers: a bridge, and a namespace for each machine on it.

Each machine can be cut off from others, one way or both, without any end seeing a connection close, while its processes and its
other connections go on. It runs inside `isolation.isolated` only: interfaces and namespaces end with that, however it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import NamedTuple

from topologies.lab.batch_net import LabError, run_batch
from topologies.lab.isolation import is_isolated, require
from topologies.lab.startable import Startable

# Classic BPF (linux/filter.h): its instructions, and offsets behind 14 bytes of Ethernet in an IPv4 packet without options.
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_SOURCE, _DESTINATION, _SOURCE_PORT, _DESTINATION_PORT = 26, 30, 34, 36
# A stolen packet counts as sent: a dropped one would be an error for its sender, which a distant loss is not.
_STOLEN, _NEXT_FILTER = 4, 2**32 - 1


class Way(Enum):
    """Which packets of a machine are lost."""

    SENT = "sent"
    RECEIVED = "received"


class Peer(NamedTuple):
    """What a machine is cut off from: all packets of an address, or those of its connections to the machine's own TCP port."""

    address: IPv4Address
    port: int | None = None


def cut_bytecode(peers: Collection[Peer], way: Way) -> str:
    """Return classic BPF, as of ``tc filter ... bpf bytecode``, that loses a machine's packets to or from its peers.

    >>> cut_bytecode([], Way.SENT)
    '1,6 0 0 4294967295'
    >>> cut_bytecode([Peer(IPv4Address("192.0.2.1"))], Way.RECEIVED)
    '4,32 0 0 26,21 0 1 3221225985,6 0 0 4,6 0 0 4294967295'
    """
    address, port = (_DESTINATION, _SOURCE_PORT) if way is Way.SENT else (_SOURCE, _DESTINATION_PORT)
    code: list[tuple[int, int, int, int]] = []
    for peer in sorted(set(peers), key=lambda peer: (peer.address, peer.port or 0)):
        past = 1 if peer.port is None else 3
        code += [(_LOAD_WORD, 0, 0, address), (_JUMP_IF_EQUAL, 0, past, int(peer.address))]
        if peer.port is not None:
            code += [(_LOAD_HALF, 0, 0, port), (_JUMP_IF_EQUAL, 0, 1, peer.port)]
        code.append((_RETURN, 0, 0, _STOLEN))
    code.append((_RETURN, 0, 0, _NEXT_FILTER))
    return ",".join([str(len(code)), *(" ".join(map(str, each)) for each in code)])


ROOT = IPv4Interface("172.31.0.1/24")
"""The lab's root namespace, with its switches, on the management network."""
AGENTS_MACHINE = "agents"
"""The machine from which the agents of all hosts connect."""
INTERFACE = "eth0"
BOTH = (Way.SENT, Way.RECEIVED)
_BRIDGE = "manage"
_PREFIX = "m-"
_MAX_NAME = 15 - len(_PREFIX)  # of an interface's 15 characters
_HOOK = {Way.SENT: "ingress", Way.RECEIVED: "egress"}  # as the bridge's port sees it


class ManagementNetwork(Startable):
    """A bridge in the lab's root namespace, and a network namespace for each named machine, as a context manager.

    Raises `LabError` on entering, outside `isolation.isolated`, or if ``ip`` or ``tc`` fails.
    """

    def __init__(self, names: Sequence[str]) -> None:
        too_long = [name for name in names if len(name) > _MAX_NAME]
        if too_long:
            raise ValueError(f"names of machines have at most {_MAX_NAME} characters, unlike {', '.join(too_long)}")
        self.names = tuple(names)
        self._addresses = {name: ROOT.ip + 10 + index for index, name in enumerate(self.names)}
        self._cut: dict[tuple[str, Way], frozenset[Peer]] = {}
        self._made: list[str] = []

    def start(self) -> None:
        """Make the bridge, and all machines with it (done on entering)."""
        if not is_isolated():
            raise LabError("a management network changes its namespace: run it inside isolation.isolated()")
        require("ip", "tc", "nsenter")
        run_batch(
            ["ip", "-batch", "-"],
            [
                f"link add name {_BRIDGE} type bridge stp_state 0 forward_delay 0",
                f"address add {ROOT} dev {_BRIDGE}",
                f"link set {_BRIDGE} up",
            ],
        )
        for name in self.names:
            run_batch(["ip", "-batch", "-"], [f"netns add {name}", *_wiring(name)])
            self._made.append(name)
            address = f"{self._addresses[name]}/{ROOT.network.prefixlen}"
            inside = [f"address add {address} dev {INTERFACE}", f"link set {INTERFACE} up", "link set lo up"]
            run_batch(["ip", "-n", name, "-batch", "-"], inside)
        run_batch(["tc", "-batch", "-"], [f"qdisc add dev {_port(name)} clsact" for name in self.names])

    def lead_to(self, network: IPv4Network) -> None:
        """Let the machines answer to another network that the lab's root namespace reaches."""
        Path(f"/proc/sys/net/ipv4/conf/{_BRIDGE}/forwarding").write_text("1")
        for name in self._made:
            run_batch(["ip", "-n", name, "-batch", "-"], [f"route add {network} via {ROOT.ip}"])

    def stop(self) -> None:
        """Remove the machines and the bridge; their processes have to be ended before. It can be called again."""
        for name in self._made:
            subprocess.run(["ip", "link", "delete", _port(name)], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, capture_output=True)
        self._made.clear()
        self._cut.clear()

    def address(self, name: str) -> IPv4Address:
        return self._addresses[name]

    def enter(self, name: str) -> list[str]:
        """Return the words before a command that run it on a machine, with the same process id."""
        return ["nsenter", f"--net={self.netns(name)}"]

    def netns(self, name: str) -> str:
        return f"/run/netns/{name}"

    # -- partitions ----------------------------------------------------------------------------------------------------

    def cut(self, name: str, peers: Iterable[Peer], ways: Collection[Way] = BOTH) -> None:
        """Lose all packets between a machine and some peers, or those of one way, besides what is lost already."""
        others = frozenset(peers)
        for way in ways:
            self._set(name, way, self._cut.get((name, way), frozenset()) | others)

    def heal(self, name: str) -> None:
        """Lose no packet of a machine any more, but what other machines are cut off from."""
        for way in BOTH:
            if self._cut.get((name, way)):
                self._set(name, way, frozenset())

    def cut_machines(self) -> list[str]:
        """Return the names of the machines that are cut off from anything."""
        return [name for name in self.names if any(self._cut.get((name, way)) for way in BOTH)]

    def _set(self, name: str, way: Way, peers: frozenset[Peer]) -> None:
        line = f"filter replace dev {_port(name)} {_HOOK[way]} pref 1 handle 1 protocol ip"
        run_batch(["tc", "-batch", "-"], [f"{line} bpf direct-action bytecode '{cut_bytecode(peers, way)}'"])
        self._cut[name, way] = peers


def _wiring(name: str) -> list[str]:
    return [f"link add {_port(name)} type veth peer name {INTERFACE} netns {name}", f"link set {_port(name)} master {_BRIDGE} up"]


def _port(name: str) -> str:
    return f"{_PREFIX}{name}"
