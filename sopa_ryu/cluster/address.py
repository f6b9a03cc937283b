"""The engine's address, ``etcd://HOST:PORT[,HOST:PORT...][/NAME]``, and what a client needs to be let in. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DEFAULT_PORT = 2379
DEFAULT_NAME = "sopa"
SCHEME = "etcd://"
EXAMPLE = "etcd://192.0.2.1:2379,192.0.2.2:2379,192.0.2.3:2379"
MAX_NAME = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]")
_PORT = re.compile(r"[0-9]{1,5}")
MAX_PORT = 65535


class AddressError(ValueError):
    """An address of the engine that cannot be used; the text is for the operator."""


class Endpoint(NamedTuple):
    """A node of the engine; of an IPv6 address without the brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EngineAddress(NamedTuple):
    """The nodes of the engine, and the name of the cluster of controllers: all its keys begin with ``/NAME/``."""

    endpoints: tuple[Endpoint, ...]
    name: str = DEFAULT_NAME

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(map(str, self.endpoints))}/{self.name}"


class Access(NamedTuple):
    """How a client is let in by the engine: certificates in PEM, and a user whose password is the first line of a file.

    ``ca`` has signed the nodes' certificates. The password is read anew at each sign-in.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_file: Path | None = None

    @property
    def tls(self) -> bool:
        """True if the nodes are reached by TLS: there is an authority, or a client certificate."""
        return self.ca is not None or self.cert is not None


NO_ACCESS = Access()
"""Neither TLS nor a user."""


def parse(text: str) -> EngineAddress:
    """Return the engine's address; raise `AddressError` if it is malformed.

    >>> address = parse("etcd://192.0.2.1:2379,[2001:db8::2]/fabric-b")
    >>> [str(endpoint) for endpoint in address.endpoints], address.name
    (['192.0.2.1:2379', '[2001:db8::2]:2379'], 'fabric-b')
    """
    if not text.startswith(SCHEME):
        raise AddressError(f"{text!r} is no address of an engine: write {EXAMPLE}")
    nodes, slash, name = text.removeprefix(SCHEME).partition("/")
    if slash and not _NAME.fullmatch(name):
        raise AddressError(
            f"{text!r}: {name!r} cannot be the cluster's name: up to {MAX_NAME} letters, digits, '.', '_' and '-', a letter or "
            "digit first"
        )
    endpoints = tuple(_endpoint(node, text) for node in nodes.split(","))
    twice = sorted({str(endpoint) for endpoint in endpoints if endpoints.count(endpoint) > 1})
    if twice:
        raise AddressError(f"{text!r} names {', '.join(twice)} more than once: name each node of the engine once")
    return EngineAddress(endpoints, name if slash else DEFAULT_NAME)


def check_access(access: Access) -> None:
    """Check that what belongs together is there; `AddressError` if not."""
    if (access.cert is None) != (access.key is None):
        raise AddressError("the engine's client certificate and its key belong together: give both, or neither")
    if (access.user is None) != (access.password_file is None):
        raise AddressError("the engine's user and the file with its password belong together: give both, or neither")


def _endpoint(node: str, text: str) -> Endpoint:
    host, colon, port = node.rpartition(":") if not node.endswith("]") else (node, "", "")
    if not colon:
        host = node
    if not _HOST.fullmatch(host):
        raise AddressError(f"{text!r}: {node!r} is no node of an engine: write {EXAMPLE}, an IPv6 address in brackets")
    if colon and not (_PORT.fullmatch(port) and 0 < int(port) <= MAX_PORT):
        raise AddressError(f"{text!r}: the port of {node!r} must be a number from 1 to {MAX_PORT}")
    return Endpoint(host.strip("[]"), int(port) if colon else DEFAULT_PORT)
