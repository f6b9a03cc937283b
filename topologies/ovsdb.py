"""A client of the Open vSwitch database (RFC 7047): one transaction per short connection.

It blocks on plain sockets only, so that under eventlet's monkey patching other green threads run meanwhile. A connection is
closed before the server sends its first inactivity probe.

What answers need not be a database: a switch says where its own is. So a transaction ends after its timeout whatever the server
does, data that flows included, takes at most `MAX_ANSWER_BYTES`, and the end of its answer is found in one pass. All that `select`
returns has the type that was asked for, and text without control characters; whatever else comes is an `OvsdbError`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T", str, bool, int)

MAX_DEPTH = 64
MAX_TOKENS = 1 << 20
"""Brackets, braces, quotes and commas: each value takes much more memory than its text."""

_TOKEN = re.compile(rb'[{}\[\]",]')
_IN_STRING = re.compile(rb'\\.|"', re.DOTALL)
_SPACE = b" \t\r\n"
DATABASE = "Open_vSwitch"
DEFAULT_PORT = 6640  # IANA's for OVSDB
TIMEOUT_SECONDS = 10.0
CONTROL_SECONDS = 60.0
MAX_ANSWER_BYTES = 2 << 20
"""Of a database with some two thousand ports with BFD: larger ones would occupy the processor for too long."""
MAX_LOCAL_ANSWER_BYTES = 8 << 20
"""Of one at a Unix socket, such as a lab's with all switches of a fabric."""
BYTES_A_TOKEN = 6
"""An answer may have a bracket, brace, quote or comma for so many bytes that it may have."""
MAX_ELEMENTS = 4096
"""Of a set or map, so that others have their turn between rows."""
MAX_TEXT = 160
"""Characters of a text from a database: names, addresses and paths have fewer. Quoted, each may become five."""
READ_BYTES = 1 << 15

_REPLY = 0  # this request's id


class JsonObjects:
    """The objects of a stream, cut apart, with ``max_bytes`` in and between all; what is in them is not checked.

    >>> stream = JsonObjects(100)
    >>> stream.feed(b'{"a": "}"} {"b'), stream.feed(b'": 1}')
    ([b'{"a": "}"}'], [b'{"b": 1}'])
    """

    def __init__(self, max_bytes: int, max_tokens: int = MAX_TOKENS) -> None:
        self._left = max_bytes
        self._tokens = max_tokens
        self._pending = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that are complete with these bytes; `ValueError` for too many bytes, or what is no JSON object."""
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the answer is too long")
        self._pending += data
        found = []
        while (end := self._end()) is not None:
            found.append(bytes(self._pending[:end]))
            del self._pending[:end]
            self._scanned = 0
        return found

    def _end(self) -> int | None:
        """Return the end of the first object, or None; bytes that were scanned are not scanned again."""
        if not self._depth:
            self._pending = self._pending.lstrip(_SPACE)
            if self._pending and self._pending[0] != ord("{"):
                raise ValueError(f"it is no JSON object: {bytes(self._pending[:20])!r}")
        while True:
            token = (_IN_STRING if self._in_string else _TOKEN).search(self._pending, self._scanned)
            if token is None:
                # a backslash at the end belongs to what comes next, unless it is the second of two
                unread = self._scanned < len(self._pending)
                self._scanned = len(self._pending) - (self._in_string and unread and self._pending.endswith(b"\\"))
                return None
            self._scanned = token.end()
            self._tokens -= 1
            if self._tokens < 0:
                raise ValueError("the answer has too many parts")
            match token[0]:
                case b'"':
                    self._in_string = not self._in_string
                case b"{" | b"[":
                    self._depth += 1
                    if self._depth > MAX_DEPTH:
                        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
                case b"}" | b"]":
                    self._depth -= 1
                    if not self._depth:
                        return self._scanned


class OvsdbError(RuntimeError):
    """The database cannot be reached, does not answer in time, or refuses a transaction; the text has its answer."""


class Tls(NamedTuple):
    """How servers at ``ssl:`` addresses are known.

    Attributes:
        context: Returns the authorities whose certificates count, and the own certificate, for a connection that begins.
        names: By an address the names of which the server's certificate has to have one; none: any certificate counts.
    """

    context: Callable[[], ssl.SSLContext]
    names: Callable[[str], Collection[str]] = lambda _address: ()


def certified_names(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common names and subjectAltNames of a certificate that `ssl` has decoded."""
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return common | {value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")}


def transact(
    address: str, operations: Iterable[Mapping[str, Any]], timeout: float = TIMEOUT_SECONDS, tls: Tls | None = None
) -> list[dict[str, Any]]:
    """Run operations (RFC 7047, section 5.2) in one transaction and return their results: all of them take effect, or none.

    The address is ``unix:PATH``, ``tcp:HOST[:PORT]`` or ``ssl:HOST[:PORT]``; an IPv6 address is in brackets. Without certificates
    ``ssl:`` trusts the system's authorities. The timeout, in seconds, is for the whole transaction. A result is
    ``{"rows": [...]}``, ``{"count": n}`` or ``{"uuid": [...]}``.

    Raises:
        OvsdbError: If it did not take effect, or its outcome is unknown because the answer did not arrive in time.
    """
    request = {"method": "transact", "id": _REPLY, "params": [DATABASE, *operations]}
    deadline = time.monotonic() + timeout
    try:
        with _connected(address, deadline, tls) as connection:
            connection.send(json.dumps(request).encode())
            answer = _answer(connection, MAX_LOCAL_ANSWER_BYTES if address.startswith("unix:") else MAX_ANSWER_BYTES)
    except TimeoutError as error:
        raise OvsdbError(f"{address}: no answer within {timeout:g} s") from error
    except (OSError, ValueError) as error:
        raise OvsdbError(f"{address}: {printable(str(error))}") from error
    results = answer.get("result")
    if not isinstance(results, list):
        results = [None]
    if all(isinstance(result, dict) and not result.get("error") for result in results):
        return results
    refused = next((result for result in results if isinstance(result, dict) and result.get("error")), answer)
    if isinstance(refused.get("error"), dict):
        refused = refused["error"]
    said = [printable(said) for key in ("error", "details") if isinstance(said := refused.get(key), str)]
    raise OvsdbError(f"{address}: the database refused a transaction: {': '.join(said) or 'no results'}")


Kind = Callable[[Any], Any]
"""Turns what a database sends for a column into a value; `ValueError`, or what Python raises, if it is of another type."""


def select(
    address: str, tables: Mapping[str, Mapping[str, Kind]], timeout: float = TIMEOUT_SECONDS, tls: Tls | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return these columns of all rows of these tables, each value of its kind.

    Raises:
        OvsdbError: As of `transact`, or if anything in the answer is of another kind.
    """
    operations = [{"op": "select", "table": table, "where": [], "columns": list(kinds)} for table, kinds in tables.items()]
    results = transact(address, operations, timeout, tls)
    try:
        return {
            table: [_row(row, kinds) for row in result["rows"]]
            for (table, kinds), result in zip(tables.items(), results, strict=True)
        }
    except (LookupError, TypeError, ValueError) as error:
        raise OvsdbError(f"{address}: not a database of Open vSwitch: {printable(repr(error))}") from error


def _row(row: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    time.sleep(0)  # other green threads have their turn
    return {name: kind(row[name]) for name, kind in kinds.items()}


def by_uuid(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return rows by their column ``_uuid``."""
    return {row["_uuid"]: row for row in rows}


def printable(said: str) -> str:
    """Return the beginning of a text from elsewhere, fit for terminals, logs and lines of a shell once it is quoted.

    >>> printable("br0\\x1b[2J\\nforged")
    'br0?[2J?forged'
    """
    said = said[:MAX_TEXT]
    return said if said.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in said)


def text(value: Any) -> str:
    return printable(_of(str, value))


def truth(value: Any) -> bool:
    return _of(bool, value)


def integer(value: Any) -> int:
    return _of(int, value)


def uuid(value: Any) -> str:
    """Return the row that a reference is to."""
    return text(_content("uuid", value))


def set_of(kind: Kind) -> Kind:
    """Return the kind of a set, which becomes a list."""
    return lambda value: [kind(element) for element in _few(elements(value))]


def optional(kind: Kind) -> Kind:
    """Return the kind of a set of at most one, which becomes its element or None."""

    def of(value: Any) -> Any:
        found = elements(value)
        if len(found) > 1:
            raise ValueError(f"{len(found)} elements instead of one")
        return kind(found[0]) if found else None

    return of


def _few(found: list[Any]) -> list[Any]:
    if len(found) > MAX_ELEMENTS:
        raise ValueError(f"{len(found)} elements in one set")
    return found


def _of(wanted: type[_T], value: Any) -> _T:
    if type(value) is not wanted:  # a truth value is no integer
        raise ValueError(f"{type(value).__name__} instead of {wanted.__name__}")
    found: _T = value
    return found


def _content(wanted: str, value: Any) -> Any:
    word, content = value
    if word != wanted:
        raise ValueError(f"no {wanted}")
    return content


def control(path: str, command: str, *words: str, timeout: float = CONTROL_SECONDS) -> str:
    """Give a daemon of Open vSwitch a command at its control socket, as ``ovs-appctl`` does, and return what it prints.

    Raises:
        OvsdbError: If there is no daemon, it does not answer in time, or it refuses the command; the text has its answer.
    """
    request = {"method": command, "id": _REPLY, "params": words}
    deadline = time.monotonic() + timeout
    try:
        with _unix(path, timeout) as opened:
            connection = _Connection(opened, deadline)
            connection.send(json.dumps(request).encode())
            answer = _answer(connection, MAX_LOCAL_ANSWER_BYTES)
    except (OSError, ValueError) as error:
        raise OvsdbError(f"{path}: {error}") from error
    if answer.get("error") is not None:
        raise OvsdbError(str(answer["error"]).strip())
    return str(answer.get("result") or "")


def insert(table: str, uuid_name: str, /, **row: object) -> dict[str, Any]:
    """Return the operation that adds a row; others of the same transaction refer to the row by its ``uuid_name``."""
    return {"op": "insert", "table": table, "uuid-name": uuid_name, "row": row}


def named(names: Iterable[str]) -> list[Any]:
    """Return a set of references to rows that the same transaction adds."""
    return ["set", [["named-uuid", name] for name in names]]


def mapping(values: Mapping[Any, Any]) -> list[Any]:
    """Return a map in the database's notation."""
    return ["map", [list(item) for item in values.items()]]


def flow_tables(prefixes: Mapping[str, tuple[Sequence[str], Sequence[int]]]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the operations that add rows of Flow_Table, by name with fields and tables, and the map by which a bridge has them."""
    rows = [insert("Flow_Table", name, prefixes=["set", [*fields]]) for name, (fields, _) in prefixes.items()]
    return rows, mapping({table: ["named-uuid", name] for name, (_, tables) in prefixes.items() for table in tables})


def elements(value: Any) -> list[Any]:
    """Return the elements of a set from the database, which sends a set of one as its only element."""
    return list(value[1]) if isinstance(value, list) and value[:1] == ["set"] else [value]


def entries(value: list[Any]) -> dict[str, str]:
    """Return a map of texts from the database as a dictionary; raises as a `Kind`."""
    return {text(key): text(entry) for key, entry in _few(_content("map", value))}


def references(value: list[Any]) -> dict[int, str]:
    """Return a map from numbers to rows from the database as a dictionary; raises as a `Kind`."""
    return {integer(key): uuid(entry) for key, entry in _few(_content("map", value))}


class _Connection:
    """A socket with a deadline for everything, which holds while data flows as well."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self._deadline = deadline

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait()
            view = view[self._socket.send(view) :]

    def receive(self) -> bytes:
        """Return what is there, after other green threads have had their turn; none at the end."""
        time.sleep(0)
        self._wait()
        return self._socket.recv(READ_BYTES)

    def _wait(self) -> None:
        self._socket.settimeout(_left(self._deadline))


class _TlsConnection(_Connection):
    """The same over TLS, whose handshake and records are read under the same deadline."""

    def __init__(
        self, connected: socket.socket, deadline: float, context: ssl.SSLContext, host: str, names: Collection[str]
    ) -> None:
        super().__init__(connected, deadline)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._do(self._tls.do_handshake)
        shown = certified_names(self._tls.getpeercert() or {})
        if names and shown.isdisjoint(names):
            raise ConnectionError(f"its certificate is for {', '.join(sorted(shown)) or 'no name'}: it needs one for {max(names)}")

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._do(partial(self._tls.write, view)) :]

    def receive(self) -> bytes:
        received: bytes = self._do(partial(self._tls.read, READ_BYTES))
        return received

    def _do(self, step: Callable[[], Any]) -> Any:
        """Do a step of TLS, and send and receive what it needs."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b""
            finally:
                super().send(self._outgoing.read())
            data = super().receive()
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _answer(connection: _Connection, max_bytes: int) -> dict[str, Any]:
    """Read messages until the reply; others, such as an echo request, need no answer on so short a connection."""
    messages = JsonObjects(max_bytes, max_bytes // BYTES_A_TOKEN)
    while True:
        data = connection.receive()
        if not data:
            raise ConnectionError("the database closed the connection in the middle of a transaction")
        for text in messages.feed(data):
            message = json.loads(text)
            if message.get("id") == _REPLY and "method" not in message:
                return dict(message)


@contextmanager
def _connected(address: str, deadline: float, tls: Tls | None) -> Iterator[_Connection]:
    kind, _, place = address.partition(":")
    if kind == "unix" and place:
        with _unix(place, _left(deadline)) as connection:
            yield _Connection(connection, deadline)
    elif kind in ("tcp", "ssl") and place:
        host, port = host_and_port(place)
        with socket.create_connection((host, port), _left(deadline)) as connection:
            if kind == "tcp":
                yield _Connection(connection, deadline)
            else:
                context, names = (tls.context(), tls.names(address)) if tls else (ssl.create_default_context(), ())
                yield _TlsConnection(connection, deadline, context, host, names)
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


def host_and_port(place: str) -> tuple[str, int]:
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
