"""BFD between edge switches and gateways: a gateway that answers it is away as soon as it falls silent, though its port is up.

Enabling it at a switch's port to a host that does not answer costs nothing: such a port is not LIVE, but packets to hosts are sent
by plain outputs, which do not ask for that. So it is enabled at the port of every gateway, and counts where it has been up.

The packets are those of RFC 5881 with the addresses of the rack's gateway address and of the host, so that any BFD daemon on the
host can answer: in FRR ``bfd`` / ``peer 10.0.1.1 local-address 10.0.1.2 interface eth1``.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from sopa_ryu.southbound import bfd
from topologies.ovsdb import OvsdbError, entries, transact
from topologies.structure import GATEWAY_MAC, Clos, Host

UP, ADMIN_DOWN = "up", "admin_down"


@dataclass
class Found:
    """The outcome of `enable`.

    Attributes:
        enabled: The number of gateways at whose ports BFD was enabled now.
        on: The number of gateways at whose ports it is enabled.
        answers: The gateways whose session is up, with True, and those that have shut it down deliberately, with False.
        problems: From the address of a database that failed to its error.
    """

    enabled: int = 0
    on: int = 0
    answers: dict[Host, bool] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def enable(
    addresses: Iterable[str],
    tree: Clos,
    interval_ms: int,
    timeout: float = 5.0,
    tls: ssl.SSLContext | None = None,
    *,
    change: bool = True,
) -> Found:
    """Enable BFD at the edge switches' ports to gateways where it is not enabled, and read which gateways answer.

    Args:
        addresses: The switches' databases; one that fails does not affect the others.
        interval_ms: The transmit interval in ms.
        timeout: Seconds for each request to a database.
        tls: For ``ssl:`` addresses.
        change: False to read only.
    """
    found = Found()
    for address in dict.fromkeys(addresses):
        changes = []
        try:
            for switch, ports in bfd.bridges(bfd.rows(address, timeout, tls), tree):
                for number, neighbour in tree.ports(switch).items():
                    if number not in ports or not isinstance(neighbour, Host) or neighbour not in tree.gateways:
                        continue
                    interface, wanted = ports[number], _settings(tree, neighbour, interval_ms)
                    settings, status = entries(interface["bfd"]), entries(interface["bfd_status"])
                    if settings.get("enable", "").lower() != "true":
                        if not change:
                            continue
                        changes.append(bfd.setting(interface["_uuid"][1], wanted))
                    found.on += 1
                    if status.get("remote_state") == ADMIN_DOWN:
                        found.answers[neighbour] = False
                    elif status.get("state") == UP:
                        found.answers[neighbour] = True
            if changes:
                transact(address, changes, timeout, tls)
                found.enabled += len(changes)
        except OvsdbError as error:
            found.problems[address] = str(error)
    return found


def _settings(tree: Clos, gateway: Host, interval_ms: int) -> dict[str, str]:
    return {
        "enable": "true",
        "min_tx": str(interval_ms),
        "min_rx": str(interval_ms),
        "bfd_src_ip": str(tree.gateway(gateway)),
        "bfd_dst_ip": str(tree.ip(gateway)),
        "bfd_local_src_mac": GATEWAY_MAC,
        bfd.SENDS_TO: tree.mac(gateway),
        bfd.REQUIRES: GATEWAY_MAC,
    }
