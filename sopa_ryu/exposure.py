"""What the options leave open to whoever reaches a port, each with the options that close it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sopa_ryu.options import ClusterSettings, Settings
from sopa_ryu.runtime.clients import is_loopback


class Exposure(NamedTuple):
    """What somebody may do who has no secret, and the options that end it."""

    what: str
    mend: str


class Doors(NamedTuple):
    """Ryu's own options: where OpenFlow and REST listen, and the certificates of OpenFlow."""

    openflow_host: str
    rest_host: str
    openflow_tls: bool
    ca_certs: str | None


def is_local(host: str) -> bool:
    """Tell whether only this machine reaches a host: loopback, or the path of a socket."""
    return is_loopback(host.strip("[]")) or host.startswith("/")


def exposures(settings: Settings, doors: Doors) -> Iterator[Exposure]:
    """Yield what is open, what is worst first."""
    if not doors.openflow_tls and not is_local(doors.openflow_host):
        where = doors.openflow_host or "all addresses"
        yield Exposure(
            f"OpenFlow without TLS on {where}: who reaches it can connect as a switch that is away",
            "ctl_privkey, ctl_cert and ca_certs, or ofp_listen_host",
        )
    elif doors.openflow_tls and doors.ca_certs and not settings.bind_certificates:
        yield Exposure(
            "OpenFlow takes any certificate of the authority for any switch: root of one switch can connect as another",
            "bind_certificates",
        )
    if settings.tls is None and not is_local(doors.rest_host):
        yield Exposure(
            f"REST and the agents' channel without TLS on {doors.rest_host}: who sees the packets has the tokens",
            "tls_cert and tls_key",
        )
    if settings.cluster is not None:
        yield from _of_engine(settings.cluster)
    plain = [address for address in settings.ovsdb if address.startswith("tcp:") and not is_local(address.split(":")[1])]
    if plain:
        yield Exposure(
            f"the switches' databases without TLS ({', '.join(plain)}): who is between can set BFD and read them", "ovsdb = ssl:..."
        )
    if not settings.host_tokens_only:
        yield Exposure("agent-token opens the channel of every host: one host that has it can speak for all", "host_tokens_only")


def _of_engine(cluster: ClusterSettings) -> Iterator[Exposure]:
    hosts = [node.rpartition(":")[0] or node for node in cluster.engine.partition("//")[2].partition("/")[0].split(",")]
    if cluster.user is None and cluster.cert is None and not all(map(is_local, hosts)):
        yield Exposure(
            "etcd without user and certificate: who reaches it can make itself the leader, and drain links",
            "cluster_user and cluster_password_file, cluster_ca",
        )
    elif cluster.ca is None and not all(map(is_local, hosts)):
        yield Exposure("etcd without TLS: who sees the packets has its password", "cluster_ca")
