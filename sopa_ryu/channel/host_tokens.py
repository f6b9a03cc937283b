"""The token of each host's agent, derived from a secret of the fabric: good for the channel of that host only. Pure.

The arbiter's and the relays' are derived in the same way, and good for their channels only.
It is HMAC-SHA256 (RFC 2104) of the host's address under the secret, so the controller keeps no list, and a host's token tells
nothing about another's. A token file has either one token, or lines of a host's address and its token.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from ipaddress import IPv4Address

_PURPOSE = b"sopa agent "
_ARBITERS_PURPOSE = b"sopa arbiter"
_RELAYS_PURPOSE = b"sopa relay"
_LEADERS_PURPOSE = b"sopa leader "


def host_token(secret: str, address: IPv4Address) -> str:
    """Return the token of a host.

    Args:
        secret: The fabric's.
        address: The host's, in the fabric.

    >>> host_token("a secret", IPv4Address("10.0.0.2"))
    'SKeih29xjgYKixWvyVZ5EDRjjWrzhhwU8LsT2vmZ6N4'
    """
    return _derived(secret, _PURPOSE + str(address).encode())


def arbiter_token(secret: str) -> str:
    """Return the token of the fabric's arbiter."""
    return _derived(secret, _ARBITERS_PURPOSE)


def relay_token(secret: str) -> str:
    """Return the token of the fabric's relays."""
    return _derived(secret, _RELAYS_PURPOSE)


def leader_seal(secret: str, *said: object) -> str:
    """Return the seal of a leader's record, an HMAC: write access to the engine alone is not enough to forge it."""
    return _derived(secret, _LEADERS_PURPOSE + repr(said).encode())


def _derived(secret: str, purpose: bytes) -> str:
    digest = hmac.digest(secret.encode(), purpose, "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def token_line(secret: str, address: IPv4Address) -> str:
    """Return the line of a token file for a host."""
    return f"{address} {host_token(secret, address)}"


def token_of(text: str, address: IPv4Address) -> str:
    """Return the token for a host in the text of a token file.

    Raises:
        ValueError: If the file has none for that host, or is of another form.

    >>> token_of("abc", IPv4Address("10.0.0.2"))
    'abc'
    >>> token_of("10.0.0.2 abc\\n10.0.0.3 def", IPv4Address("10.0.0.3"))
    'def'
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0]
    if any(len(line) != 2 for line in lines):
        raise ValueError("it has neither one token, nor lines of an address and a token")
    tokens = dict(lines)
    if str(address) not in tokens:
        raise ValueError(f"it has no token for {address}")
    return str(tokens[str(address)])
