"""The connections of each client address, and how many it may have. Pure.

A connection counts in its address' share until it is proven, by a token or as a switch of the fabric: whoever has nothing to show
can take the share of one address, and not the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

Network = IPv4Network | IPv6Network

_PORTS = {"http": 80, "https": 443}
_IPV6_CLIENT_BITS = 64
"""One client has a whole IPv6 prefix of this length (RFC 4291, section 2.5.4), and may connect from each of its addresses."""


class ExcessClient(StrEnum):
    """The reason why a connection is rejected."""

    SHARE = "share"
    """Its address has as many connections as one address may have."""
    TOTAL = "total"
    """There are as many connections as there may be in all."""


class Clients:
    """The connections that are not proven.

    Args:
        share: The maximum number of connections of one address; of one prefix of 64 bits with IPv6.
        most: The maximum number of connections in all.
        shared: Addresses that stand for many clients, such as a proxy's: they have no share of their own, only the total.

    >>> clients = Clients(share=1, most=2)
    >>> clients.enter("192.0.2.1"), clients.enter("192.0.2.1"), clients.enter("192.0.2.2"), clients.enter("192.0.2.3")
    (None, <ExcessClient.SHARE: 'share'>, None, <ExcessClient.TOTAL: 'total'>)
    >>> clients.leave("192.0.2.1")
    >>> clients.enter("192.0.2.1")
    """

    def __init__(self, share: int, most: int, shared: Iterable[Network] = ()) -> None:
        self.share = share
        self.most = most
        self.total = 0
        self._shared = tuple(shared)
        self._counts: Counter[str] = Counter()

    def enter(self, address: str) -> ExcessClient | None:
        """Count a connection from an address; return why it has to be rejected, which is then not counted, or None."""
        if self.total >= self.most:
            return ExcessClient.TOTAL
        client = client_of(address)
        if self._counts[client] >= self.share and not self._is_shared(address):
            return ExcessClient.SHARE
        self._counts[client] += 1
        self.total += 1
        return None

    def leave(self, address: str) -> None:
        """Count a connection no longer: it is closed, or proven."""
        client = client_of(address)
        self.total -= 1
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    @property
    def busiest(self) -> str:
        """The client (`client_of`) that has most connections."""
        return max(self._counts, key=self._counts.__getitem__)

    def _is_shared(self, address: str) -> bool:
        if not self._shared:
            return False
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._shared)


def plain(address: str) -> str:
    """Return an address without a zone, and an IPv4 address that an IPv6 socket shows (``::ffff:192.0.2.1``) as IPv4."""
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or parsed)


def client_of(address: str) -> str:
    """Return what stands for the client that an address belongs to.

    >>> client_of("192.0.2.1"), client_of("::ffff:192.0.2.1"), client_of("2001:db8::1")
    ('192.0.2.1', '192.0.2.1', '2001:db8::/64')
    """
    address = plain(address)
    return str(IPv6Network((address, _IPV6_CLIENT_BITS), strict=False)) if ":" in address else address


def network(text: str) -> Network:
    """Return the network of an address or prefix, ``192.0.2.7``, ``192.0.2.0/24``, ``2001:db8::/32``; `ValueError` if malformed."""
    return ip_network(text.strip("[]"), strict=False)


def bracketed(host: str) -> str:
    """Return a host as it is written in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_address(host: str) -> bool:
    """Return whether a host is an address, and not a name."""
    try:
        return isinstance(ip_address(host.partition("%")[0]), IPv4Address | IPv6Address)
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine under whatever name.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("192.0.2.1"), is_loopback("m1.example")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def normal_origin(origin: str) -> str:
    """Return an origin in lower case and without the scheme's own port; `ValueError` if it is not ``http[s]://HOST[:PORT]``.

    >>> normal_origin("HTTP://Controller.example:80"), normal_origin("https://[2001:DB8::1]:8080")
    ('http://controller.example', 'https://[2001:db8::1]:8080')
    """
    parts = urlsplit(origin)
    host = parts.hostname
    if parts.scheme not in _PORTS or not host or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{origin!r} is not an origin: write http://HOST:PORT")
    port = parts.port
    shown = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{bracketed(host)}{shown}"
