"""The engine, etcd, as controllers and relays use it: blocking, for green threads and for threads.

HTTP by h11 on sockets, for two reasons: a watch that is quiet goes on after a wait for its next bytes, which `http.client` cannot
do; httpx cannot be imported where trio is installed and eventlet has patched the sockets.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import h11

from sopa_ryu.cluster import gateway
from sopa_ryu.cluster.address import NO_ACCESS, Access, Endpoint, EngineAddress, check_access
from sopa_ryu.cluster.gateway import Condition, Contents, EngineError, HistoryGone, Kept, Kind, Request, Written
from sopa_ryu.runtime import certificates
from sopa_ryu.runtime.listeners import SparingLog

__all__ = [
    "Access", "Condition", "Contents", "Engine", "EngineAddress", "EngineError", "Kept", "Kind", "Outage", "Patience", "Written"
]  # fmt: skip

T = TypeVar("T")

LOG = logging.getLogger("sopa.cluster")

MAX_QUIET_SECONDS = 0.5
"""After so long without a change a watch asks its node whether it still has a quorum."""
MAX_IDLE = 4
"""Connections to a node that are kept for further requests."""
FIRST_SECONDS, LAST_SECONDS = 1.0, 8.0
"""The least and the most that one node has for a write (`Patience`)."""
SETTLED_SECONDS = 2.0
"""An outage has ended when nothing has failed for so long."""
REMIND_SECONDS = 60.0
"""What goes on being wrong is said again after so long."""

LATE = "it does not answer in time"
LATE_HINT = (
    "It is stopped or cut off, or its disk is slow: see etcd's log (`slow fdatasync`, `took too long`), and docs/controllers.md"
)
OTHER_ENGINE = "Correct the engine's address. If the engine was made anew or restored, restart this process"

_CHUNK = 1 << 16
_SHOWN = 40  # bytes of what is no HTTP
_OK = 200
_WORST = (Kind.REFUSED, Kind.FULL, Kind.NO_QUORUM, Kind.MALFORMED, Kind.UNREACHABLE)
"""Which of several nodes' problems says most."""

Failures = list[tuple[Endpoint, EngineError]]
"""What is wrong with each node that was asked."""


class Engine:
    """A client of the engine. It stays with one node while that answers, and goes on with the next one otherwise.

    All methods raise `EngineError`. Several threads may use one client. The client itself raises it if files for TLS cannot be
    read, and `AddressError` if a certificate is given without its key, or a user without a password.

    Args:
        timeout: Seconds in which a node has to answer. What may be repeated is asked of each node once, so that a call takes at
            most as many times as long as there are nodes; renewals of leases wait half as long for each.

    Attributes:
        granted: Seconds for which the last lease was granted; etcd's least is a bit more than its election timeout.
    """

    def __init__(self, address: EngineAddress, access: Access = NO_ACCESS, timeout: float = 1.0) -> None:
        check_access(access)
        self.address = address
        self.granted = 0
        self._name, self._nodes, self._timeout = address.name, address.endpoints, timeout
        self._access, self._tls = access, _tls(access)
        self._present = 0  # the number of the node that is asked now
        self._known: set[Endpoint] = set()  # they were asked which engine they belong to
        self._cluster = 0
        self._token: str | None = None  # "" if the engine has no users enabled
        self._idle: dict[Endpoint, list[_Connection]] = {}
        self._streams: set[_Connection] = set()
        self._closed = False
        self._say = SparingLog(LOG).warning

    # -- leases ---------------------------------------------------------------------------------------------------------

    def grant(self, seconds: int, patience: float | None = None) -> int:
        """Return a new lease; `granted` says for how long it is, ``patience`` how long a node may take, as for `write`."""
        lease, self.granted = self._ask_any(gateway.grant(seconds), patience or self._timeout)
        return lease

    def renew(self, lease: int) -> bool:
        """Renew a lease; return False if it is gone."""
        renewed = self._ask_with_lease(gateway.renewal(lease), self._timeout / 2)
        return bool(renewed)

    def revoke(self, lease: int) -> None:
        """End a lease, with its keys; one that is gone is no error."""
        self._ask_with_lease(gateway.revocation(lease), self._timeout)

    # -- keys -----------------------------------------------------------------------------------------------------------

    def read(self, patience: float | None = None) -> Contents:
        """Return all keys of the cluster. No write that was answered is missing: a slow one holds this up."""
        return self._ask_any(gateway.all_keys(self._name), patience or self._timeout)

    def write(
        self,
        puts: Mapping[str, str],
        unless: Sequence[Condition] = (),
        lease: int = 0,
        deletes: Sequence[str] = (),
        seconds: float | None = None,
    ) -> Written | None:
        """Write and delete keys together; return None if a condition did not hold or the lease is gone: nothing was written.

        The lease is for those of the keys that end with their writer (`records.leased`). A slow disk makes writes slow: ``seconds``
        is how long a node may take, if not as long as for other requests.

        After an `EngineError` that is ``unknown`` it may have been written, or may still be, also after a later write: one that
        must not be undone like that compares the key's revision (`Condition.modified`).
        """
        request = gateway.transaction(self._name, puts, unless, lease, deletes)
        return self._ask_with_lease(request, seconds or self._timeout)

    def watch(self, revision: int) -> Iterator[Contents]:
        """Yield the changes after a revision, until an error or `close`.

        An empty one comes first, and whenever nothing has changed for `MAX_QUIET_SECONDS`: then the node has just shown that it has
        a quorum. Where the engine has no history back to the revision, or went back behind it, all keys come (`Contents.whole`).
        """
        failures: Failures = []
        signed_in_anew = False
        while not self._closed:
            node = self._nodes[self._present]
            try:
                with contextlib.closing(self._changes(node, revision)) as changes:
                    for number, contents in enumerate(changes):
                        if number:  # it was more than accepted
                            failures.clear()
                            signed_in_anew = False
                        revision = contents.revision
                        yield contents
            except HistoryGone:
                LOG.warning("the engine has no changes after revision %d, or went back behind it: all keys are read anew", revision)
                contents = self.read()
                revision = contents.revision
                yield contents
            except EngineError as error:
                if self._closed:
                    return
                if error.sign_in and not signed_in_anew and self._forget_token():
                    signed_in_anew = True
                    continue
                failures.append((node, error))
                if len(failures) >= len(self._nodes):
                    raise _summary(failures) from error
                self._leave(node, str(error))

    def close(self) -> None:
        """Close all connections but those that wait for an answer; watches end."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.close()
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _ask_with_lease(self, request: Request[T], seconds: float) -> T | None:
        """Ask; return None if the request's lease is gone."""
        try:
            return self._ask_any(request, seconds)
        except EngineError as error:
            if error.no_lease:
                return None
            raise

    def _changes(self, node: Endpoint, revision: int) -> Generator[Contents]:
        """Yield what a watch at one node says, and an empty one whenever it was quiet and the node is well."""
        self._look(node, revision)
        reader = gateway.WatchReader(self._name, revision)
        quiet = min(MAX_QUIET_SECONDS, self._timeout / 2)
        with self._stream(node, gateway.watch(self._name, revision)) as stream:
            while True:
                try:
                    data = stream.receive(quiet if reader.created else self._timeout)
                except EngineError:
                    reader.ended()
                    raise
                if data is not None:
                    for contents in reader.feed(data):
                        self._check_engine(reader.cluster)
                        yield contents
                elif reader.created:
                    self._look(node, reader.revision)
                    yield Contents(reader.revision, {})
                else:
                    raise EngineError(LATE, Kind.UNREACHABLE, late=True, hint=LATE_HINT)

    def _look(self, node: Endpoint, revision: int) -> None:
        """Check that a node has a quorum, which is the condition of its answer, and everything up to a revision."""
        if self._ask(node, gateway.count(self._name), self._timeout / 2) < revision:
            raise HistoryGone

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def _leave(self, node: Endpoint, why: str) -> None:
        """Ask the next node from now on."""
        self._known.discard(node)
        if self._closed or self._nodes[self._present] != node or len(self._nodes) == 1:
            return  # another thread was faster
        self._present = (self._present + 1) % len(self._nodes)
        self._say(f"{node} {why}", "engine: %s: %s. %s is asked from now on", node, why, self._nodes[self._present])

    def _ask_any(self, request: Request[T], seconds: float) -> T:
        """Ask one node after another, each for some seconds, unless one may have done what must not be done twice."""
        failures: Failures = []
        first = self._present
        for index in range(first, first + len(self._nodes)):
            node = self._nodes[index % len(self._nodes)]
            try:
                return self._ask(node, request, seconds)
            except EngineError as error:
                if error.no_lease:
                    raise
                failures.append((node, error))
                if error.kind == Kind.FULL:  # which is true of all
                    break
                self._leave(node, str(error))
                if error.unknown and not request.repeatable:
                    raise _summary(failures, unknown=True) from error
        raise _summary(failures)

    def _ask(self, node: Endpoint, request: Request[T], seconds: float) -> T:
        """Ask one node, with a new token if it wants one; a write is not the first that it is asked."""
        if not request.repeatable and node not in self._known:
            try:
                self._ask(node, gateway.count(self._name), seconds)
            except EngineError as error:
                error.unknown = False
                raise
        self._sign_in(node)
        try:
            return self._post(node, request, seconds)
        except EngineError as error:
            if not (error.sign_in and self._forget_token()):
                raise
        self._sign_in(node)
        return self._post(node, request, seconds)

    @contextlib.contextmanager
    def _stream(self, node: Endpoint, request: Request[Any]) -> Iterator[_Connection]:
        """Send a request whose answer goes on; raises `EngineError` if the node cannot be reached."""
        connection = _Connection(node, self._tls, self._timeout)
        self._streams.add(connection)
        try:
            connection.send(request, gateway.headers(self._token or ""), self._timeout)
            yield connection
        finally:
            self._streams.discard(connection)
            connection.close()

    def _check_engine(self, cluster: int) -> None:
        """Raise `EngineError` if a node belongs to another engine than those before: two of them would have two leaders."""
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise EngineError(
                f"it belongs to another engine (cluster id {cluster:x}) than the nodes before it ({self._cluster:x})",
                Kind.REFUSED,
                unknown=True,
                hint=OTHER_ENGINE,
            )

    def _post(self, node: Endpoint, request: Request[T], seconds: float) -> T:
        if self._closed:
            raise EngineError("this client was closed", Kind.UNREACHABLE)
        answer = gateway.answer_of(*self._response(node, request, seconds))
        self._check_engine(answer.cluster)
        self._known.add(node)
        return request.result(answer)

    def _response(self, node: Endpoint, request: Request[Any], seconds: float) -> tuple[int, bytes]:
        idle = self._idle.setdefault(node, [])
        # one that may not be repeated gets a connection of its own: if one that was kept breaks, it is not known whether the node
        # had received the request
        if request.repeatable:
            with contextlib.suppress(IndexError):
                connection = idle.pop()
                try:
                    return self._exchange(connection, idle, request, seconds)
                except EngineError as error:
                    if error.late or self._closed:
                        raise
        connection = _Connection(node, self._tls, seconds)
        try:
            return self._exchange(connection, idle, request, seconds)
        except EngineError as error:
            # a handshake of TLS that the node refuses ends after the request was sent, but it was not read
            error.unknown = error.kind != Kind.REFUSED
            raise

    def _exchange(
        self, connection: _Connection, idle: list[_Connection], request: Request[Any], seconds: float
    ) -> tuple[int, bytes]:
        response = connection.ask(request, gateway.headers(self._token or ""), seconds)
        if connection.is_idle and not self._closed and len(idle) < MAX_IDLE:
            idle.append(connection)
        else:
            connection.close()
        return response

    def _forget_token(self) -> bool:
        """Sign in before the next request; return False if the nodes are asked without a user."""
        self._token = None
        return self._access.user is not None

    def _sign_in(self, node: Endpoint) -> None:
        """Get a token if there is a user and none yet."""
        access = self._access
        if access.user is None or access.password_file is None or self._token is not None:
            return
        try:
            password = access.password_file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise EngineError(f"the password cannot be read from {access.password_file}: {why}", Kind.REFUSED) from error
        try:
            self._token = self._post(node, gateway.sign_in(access.user, password), self._timeout)
        except EngineError as error:
            if not error.no_users:
                error.unknown = error.sign_in = False
                raise
            LOG.warning(
                "the engine has no users enabled. Every client that reaches it can write, and the password of %s is "
                "not used. Enable users by `etcdctl auth enable`",
                access.user,
            )
            self._token = ""


def _summary(failures: Failures, unknown: bool = False) -> EngineError:
    """Return the error that says what is wrong with each node, and what to do."""
    worst = min((error for _, error in failures), key=lambda error: _WORST.index(error.kind))
    nodes = "; ".join(f"{node}: {error}" for node, error in failures)
    perhaps = " (whether it was written is not known)" if unknown else ""
    late = any(error.late for _, error in failures)
    text = f"engine: {worst.kind}{perhaps}: {nodes}. {worst.hint}"
    return EngineError(text, worst.kind, unknown, late, cause=f"{worst.kind}: {worst}")


def _tls(access: Access) -> ssl.SSLContext | None:
    if not access.tls:
        return None
    certificates.use(access.ca, access.cert)
    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert is not None:
            context.load_cert_chain(access.cert, access.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (access.ca, access.cert, access.key) if file is not None)
        raise EngineError(f"{files} cannot be used for TLS with the engine: {error}", Kind.REFUSED) from error
    return context


# -- connections --------------------------------------------------------------------------------------------------------


class _Connection:
    """A connection to a node, opened within some seconds. All methods raise `EngineError`."""

    def __init__(self, node: Endpoint, tls: ssl.SSLContext | None, seconds: float) -> None:
        self._node, self._http = node, h11.Connection(h11.CLIENT)
        with _connection_errors():
            self._socket = socket.create_connection(node, seconds)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=node.host)
            except OSError:
                self._socket.close()
                raise

    @property
    def is_idle(self) -> bool:
        """Whether another request may be sent: the answer to the last one has ended, and the node closes nothing."""
        http = self._http
        return http.our_state is h11.DONE and http.their_state is h11.DONE and http.trailing_data == (b"", False)

    def ask(self, request: Request[Any], headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
        """Return the status and the content of the answer; ``seconds`` is the limit for each part of it."""
        try:
            if self.is_idle:
                self._http.start_next_cycle()
            self.send(request, headers, seconds)
            with _connection_errors():
                return self._status(seconds), self._content(seconds)
        except EngineError:
            self.close()
            raise

    def send(self, request: Request[Any], headers: Mapping[str, str], seconds: float) -> None:
        """Send a request, whose answer is read by `receive`."""
        content = request.content()
        head = h11.Request(
            method="POST",
            target=request.path,
            headers=[("Host", str(self._node)), ("Content-Length", str(len(content))), *headers.items()],
        )
        events = (head, h11.Data(data=content), h11.EndOfMessage())
        with _connection_errors():
            self._socket.settimeout(seconds)
            try:
                self._socket.sendall(b"".join(self._http.send(event) or b"" for event in events))
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                # what the node has said before it closed the connection: that of TLS is an error
                self._socket.recv(1)
                raise

    def receive(self, seconds: float) -> bytes | None:
        """Return what comes next of the answer to `send`; None if nothing comes in time. Its end is an error."""
        with _connection_errors():
            try:
                event = self._event(seconds)
            except TimeoutError:
                return None
            if isinstance(event, h11.Response) and event.status_code != _OK:
                gateway.answer_of(event.status_code, self._content(seconds))
        if isinstance(event, h11.EndOfMessage):
            raise EngineError("the node closed the connection", Kind.UNREACHABLE)
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    def close(self) -> None:
        """Close the connection; a `receive` of another thread ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _status(self, seconds: float) -> int:
        while not isinstance(event := self._event(seconds), h11.Response):
            pass
        return event.status_code

    def _content(self, seconds: float) -> bytes:
        content = bytearray()
        while isinstance(event := self._event(seconds), h11.Data):
            content += event.data
        return bytes(content)

    def _event(self, seconds: float) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._socket.settimeout(seconds)
            data = self._socket.recv(_CHUNK)
            if self._http.their_state is h11.SEND_RESPONSE:
                head = self._http.trailing_data[0] + data
                if not head:
                    raise ConnectionResetError
                if not b"HTTP/".startswith(head[:5]):
                    raise h11.RemoteProtocolError(repr(head[:_SHOWN]))  # h11 itself would wait for the end of the head
            self._http.receive_data(data)
        return event


@contextlib.contextmanager
def _connection_errors() -> Iterator[None]:
    """Raise `EngineError` about what the failure of a connection means."""
    try:
        yield
    except (OSError, h11.RemoteProtocolError) as error:
        raise _broken(error) from error


def _broken(error: Exception) -> EngineError:
    text = gateway.shortened(str(error) or type(error).__name__)
    if isinstance(error, h11.RemoteProtocolError):
        return EngineError(f"the connection ended, or it is no HTTP ({text})", Kind.UNREACHABLE)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return EngineError(f"the node's certificate cannot be trusted: {text}", Kind.REFUSED)
    if "alert" in text.lower():
        return EngineError(f"the node does not accept this client's certificate, or requires one: {text}", Kind.REFUSED)
    if "SSL" in text:
        return EngineError(f"the node ended the TLS handshake, or does not use TLS: {text}", Kind.UNREACHABLE)
    if isinstance(error, TimeoutError) or "timed out" in text:
        return EngineError(LATE, Kind.UNREACHABLE, late=True, hint=LATE_HINT)
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return EngineError(
            "the node closed the connection without an answer (it uses TLS and no CA file is given, or a CA file is given and it "
            "does not use TLS?)",
            Kind.UNREACHABLE,
        )
    return EngineError(text, Kind.UNREACHABLE)


# -- for clients whose engine is slow or away ---------------------------------------------------------------------------


class Patience:
    """The time that one node of the engine has for a write: twice as long after each that did not end in time.

    A node that has stopped is left for the next one; an engine whose disks are slow needs more time.
    """

    def __init__(self, most: float = LAST_SECONDS) -> None:
        self.seconds, self._most = FIRST_SECONDS, most

    def late(self) -> None:
        """Note that a write did not end in time.

        >>> patience = Patience()
        >>> patience.late(), patience.late(), patience.seconds
        (None, None, 4.0)
        """
        self.seconds = min(2 * self.seconds, self._most)

    def took(self, seconds: float) -> None:
        """Note how long a write took that was done."""
        self.seconds = min(max(FIRST_SECONDS, 2 * seconds), self._most)

    def write(self, engine: Engine, puts: Mapping[str, str], unless: Sequence[Condition], lease: int = 0) -> Written | None:
        """Write by `Engine.write`, and note how long that takes."""
        began = time.monotonic()
        try:
            written = engine.write(puts, unless, lease, seconds=self.seconds)
        except EngineError as error:
            if error.unknown:
                self.late()
            raise
        if written is not None:
            self.took(time.monotonic() - began)
        return written


class Outage:
    """What of a client's work with the engine fails, and what of that the log has to say: each outage once.

    Renewals, watches and writes fail one by one, and not all of them at once: an engine whose disks are slow, or whose database
    is full, goes on answering what it need not write. So each of them is followed by itself, and the engine answers again when
    all do.
    """

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}
        self._logged: dict[str, float] = {}
        self._failed_at = 0.0

    @property
    def problem(self) -> str | None:
        """What failed first of what fails now; None if all works."""
        return next(iter(self._failing.values()), None)

    def failed(self, work: str, error: EngineError, now: float) -> bool:
        """Note that some work has failed; return whether it has to be said.

        It has to be if its cause was not said in this outage, or not for `REMIND_SECONDS`: which nodes have not answered, and in
        which order, changes from one attempt to the next.

        >>> late = EngineError("engine: unreachable: n1: it does not answer in time", Kind.UNREACHABLE, cause="late")
        >>> outage = Outage()
        >>> [outage.failed("lease", late, now) for now in (1.0, 1.5, 61.5)]
        [True, False, True]
        >>> outage.worked("lease", 62.0), outage.problem, outage.worked("lease", 63.6)
        (False, None, True)
        """
        self._failing[work] = str(error)
        self._failed_at = now
        if now - self._logged.get(error.cause, -REMIND_SECONDS) < REMIND_SECONDS:
            return False
        self._logged[error.cause] = now
        return True

    def worked(self, work: str, now: float) -> bool:
        """Note that some work was done; return whether it has to be said that the engine answers again."""
        self._failing.pop(work, None)
        if self._failing or not self._logged or now - self._failed_at < SETTLED_SECONDS:
            return False
        self._logged.clear()
        return True
