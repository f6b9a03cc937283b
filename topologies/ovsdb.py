"""A client of the Open vSwitch database (RFC 7047): one transaction per short connection.

It blocks on plain sockets only, so that under eventlet's monkey patching other green threads run meanwhile. A connection is
closed before the server sends its first inactivity probe.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

DATABASE = "Open_vSwitch"
DEFAULT_PORT = 6640  # IANA's for OVSDB
TIMEOUT_SECONDS = 10.0

_REPLY = 0  # this request's id


class OvsdbError(RuntimeError):
    """The database cannot be reached, does not answer in time, or refuses a transaction; the text has its answer."""


def transact(
    address: str,
    operations: Iterable[Mapping[str, Any]],
    timeout: float = TIMEOUT_SECONDS,
    tls: ssl.SSLContext | None = None,
) -> list[dict[str, Any]]:
    """Run operations (RFC 7047, section 5.2) in one transaction: all of them take effect, or none.

    Parameters
    ----------
    address : str
        ``unix:PATH``, ``tcp:HOST[:PORT]`` or ``ssl:HOST[:PORT]``; an IPv6 address is in brackets.
    operations : iterable of dict
        As `insert` returns them, or written out.
    timeout : float
        Seconds for the whole transaction.
    tls : SSLContext, optional
        Certificates for ``ssl:``; by default the system's authorities and no client certificate.

    Returns
    -------
    list of dict
        The result of each operation: ``{"rows": [...]}``, ``{"count": n}`` or ``{"uuid": [...]}``.

    Raises
    ------
    OvsdbError
        If it did not take effect, or its outcome is unknown because the answer did not arrive in time.
    """
    request = {"method": "transact", "id": _REPLY, "params": [DATABASE, *operations]}
    deadline = time.monotonic() + timeout
    try:
        with _connected(address, timeout, tls) as connection:
            connection.sendall(json.dumps(request).encode())
            answer = _answer(connection, deadline)
    except TimeoutError as error:
        raise OvsdbError(f"{address}: no answer within {timeout:g} s") from error
    except (OSError, ValueError) as error:
        raise OvsdbError(f"{address}: {error}") from error
    problems = [result for result in answer.get("result") or [answer] if result and result.get("error")]
    if problems:
        raise OvsdbError(f"{address}: the database refused a transaction: {problems[0]}")
    results: list[dict[str, Any]] = answer["result"]
    return results


def insert(table: str, uuid_name: str, /, **row: object) -> dict[str, Any]:
    """Return the operation that adds a row; others of the same transaction refer to the row by its ``uuid_name``."""
    return {"op": "insert", "table": table, "uuid-name": uuid_name, "row": row}


def named(names: Iterable[str]) -> list[Any]:
    """Return a set of references to rows that the same transaction adds."""
    return ["set", [["named-uuid", name] for name in names]]


def mapping(values: Mapping[str, str]) -> list[Any]:
    """Return a map in the database's notation."""
    return ["map", [list(item) for item in values.items()]]


def elements(value: Any) -> list[Any]:
    """Return the elements of a set from the database, which sends a set of one as its only element."""
    return list(value[1]) if isinstance(value, list) and value[:1] == ["set"] else [value]


def entries(value: list[Any]) -> dict[str, str]:
    """Return a map from the database as a dictionary."""
    return dict(value[1])


def _answer(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Read messages until the reply; others, such as an echo request, need no answer on so short a connection."""
    decoder, received = json.JSONDecoder(), b""
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError("the database closed the connection in the middle of a transaction")
        received += data
        if not received.rstrip().endswith(b"}"):  # a message is an object: parse when one may be complete
            continue
        text = received.decode().strip()
        while text:
            try:
                message, end = decoder.raw_decode(text)
            except ValueError:  # not complete yet
                break
            if message.get("id") == _REPLY and "method" not in message:
                return dict(message)
            text = text[end:].lstrip()
        received = text.encode()


@contextmanager
def _connected(address: str, timeout: float, tls: ssl.SSLContext | None) -> Iterator[socket.socket]:
    kind, _, place = address.partition(":")
    if kind == "unix" and place:
        with _unix(place, timeout) as connection:
            yield connection
    elif kind in ("tcp", "ssl") and place:
        host, port = _host_and_port(place)
        with socket.create_connection((host, port), timeout) as connection:
            if kind == "tcp":
                yield connection
            else:
                context = tls or ssl.create_default_context()
                with context.wrap_socket(connection, server_hostname=host) as encrypted:
                    yield encrypted
    else:
        raise ValueError("not a database address: write unix:PATH, tcp:HOST[:PORT] or ssl:HOST[:PORT]")


@contextmanager
def _unix(path: str, timeout: float) -> Iterator[socket.socket]:
    directory = os.open(os.path.dirname(path) or ".", os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            # through /proc, because the path of a Unix socket is limited to 108 characters
            connection.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
            yield connection
    finally:
        os.close(directory)


def _host_and_port(place: str) -> tuple[str, int]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not port:
        return host, DEFAULT_PORT
    if not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{port!r} is not a TCP port")
    return host, int(port)
