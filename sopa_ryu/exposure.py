"""What the options leave open to whoever reaches a port, each with the options that close it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sopa_ryu.cluster.address import Access, AddressError, parse
from sopa_ryu.options import ClusterSettings, Settings
from sopa_ryu.runtime.clients import is_loopback
from topologies.ovsdb import host_and_port


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


def exposures(settings: Settings, doors: Doors) -> Iterator[Exposure]:
    """Yield what is open, what is worst first."""
    is_socket = doors.openflow_host.startswith("/")
    if not doors.openflow_tls and not is_socket and not is_loopback(doors.openflow_host):
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
    if settings.tls is None and not is_loopback(doors.rest_host):
        yield Exposure(
            f"REST and the agents' channel without TLS on {doors.rest_host}: who sees the packets has the tokens",
            "tls_cert and tls_key",
        )
    if settings.cluster is not None:
        yield from _of_engine(settings.cluster)
    plain = [address for address in settings.ovsdb if address.startswith("tcp:") and not is_loopback(_host_of(address))]
    if plain:
        yield Exposure(
            f"the switches' databases without TLS ({', '.join(plain)}): who is between can set BFD and read them", "ovsdb = ssl:..."
        )
    if not settings.host_tokens_only:
        yield Exposure("agent-token opens the channel of every host: one host that has it can speak for all", "host_tokens_only")


def _host_of(database: str) -> str:
    try:
        return host_and_port(database.partition(":")[2])[0]
    except ValueError:
        return ""  # `*`, or malformed, which is said elsewhere


def _of_engine(cluster: ClusterSettings) -> Iterator[Exposure]:
    access = Access(cluster.ca, cluster.cert, cluster.key, cluster.user, cluster.password_file)
    try:
        elsewhere = any(not is_loopback(node.host) for node in parse(cluster.engine).endpoints)
    except AddressError:
        return  # said by who joins the cluster
    if elsewhere and access.user is None and access.cert is None:
        yield Exposure(
            "etcd without user and certificate: who reaches it can make itself the leader, and drain links",
            "cluster_user and cluster_password_file, cluster_ca",
        )
    elif elsewhere and not access.tls:
        yield Exposure("etcd without TLS: who sees the packets has its password", "cluster_ca")
