"""The REST interface (docs/architecture.md, section 7) as a WSGI application: dispatch, parameters, ETags, problem documents.

What one client asks for delays others by one answer at most, and costly answers take a tenth of the time: requests of one
address are answered one after the other, and after an answer that took long everything else that is ready has its turn. An
answer that costs much (`Operation.costly`) is shared by all requests that wait for it, and is never older than a request.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import eventlet
from eventlet.semaphore import Semaphore
from routes import Mapper
from webob import Request, Response

from sopa_ryu.channel.claims import ClaimError
from sopa_ryu.channel.websocket import HandshakeError
from sopa_ryu.rest.access import Origins, Tokens
from sopa_ryu.rest.answers import answer, not_allowed, problem_answer
from sopa_ryu.rest.http_protocol import MAX_BODY_BYTES, TRUST
from sopa_ryu.rest.interface import operations
from sopa_ryu.rest.openapi import document
from sopa_ryu.rest.operations import MAX_ITEMS, ROOT, Operation, Problem
from sopa_ryu.rest.reader import ALONE, FabricControl, check_leads, check_takes_channels
from sopa_ryu.rest.resources import Resources
from sopa_ryu.rest.traces import TraceResources
from topologies import Host

LOG = logging.getLogger("sopa.rest")

SLICE_SECONDS = 0.002
"""Shorter answers are made without a switch of green threads: all connections of an address need some 0.2 s for one each."""
SPACING_TIMES = 9
"""Pause after a costly answer in multiples of its processor time."""
MAX_PAUSE_SECONDS = 0.25
COSTLY_AT_ONCE = 4
MAX_WAITING = 64
"""Requests for costly answers that may wait; others are answered 503."""
CHANNEL = ROOT + "/agents/{address}"
ARBITERS = ROOT + "/arbiter"
RELAYS = ROOT + "/relays/{relay}"
OPENAPI = "/openapi.json"

StartResponse = Callable[..., Any]
Page = Callable[[Request], Response]
Socket = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class _Turn:
    """A semaphore, how many use it, and the last answer with the time at which it was begun."""

    __slots__ = ("answer", "began", "free", "users")

    def __init__(self) -> None:
        self.free = Semaphore(1)
        self.users = 0
        self.began = float("-inf")
        self.answer: Any = None


class Turns:
    """One turn at a time for each key."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        """Return the number of keys in use."""
        return len(self._turns)

    @contextmanager
    def of(self, key: str) -> Iterator[_Turn]:
        """Wait for the turn of a key, and give it back."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn()
        turn.users += 1
        try:
            with turn.free:
                yield turn
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]


class Fairness:
    """The turns of all clients, and of costly answers."""

    def __init__(self) -> None:
        self._clients = Turns()
        self._costly = Turns()
        self._slots = Semaphore(COSTLY_AT_ONCE)
        self._waiting = 0
        self._free_at = 0.0

    def answer(self, client: str, make: Callable[[], Any]) -> Any:
        """Make an answer in the client's turn; if it took long, that ends after everything else that is ready had its own."""
        with self._clients.of(client):
            began = time.monotonic()
            try:
                return make()
            finally:
                if time.monotonic() - began > SLICE_SECONDS:
                    eventlet.sleep(0)

    def costly(self, key: str, make: Callable[[], Any]) -> Any:
        """Make a costly answer, or take one that was begun after the request.

        Raises:
            Problem: 503 if too many requests wait; and what ``make`` raises.
        """
        if self._waiting >= MAX_WAITING:
            text = "too many requests wait for answers that cost much: try again later, or send the operator token"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        asked = time.monotonic()
        self._waiting += 1
        try:
            with self._costly.of(key) as turn:
                if turn.began < asked:
                    with self._slots:
                        self._pause()
                        began, spent = time.monotonic(), time.thread_time()
                        turn.answer = make()
                        turn.began = began
                        pause = SPACING_TIMES * (time.thread_time() - spent)
                        self._free_at = time.monotonic() + min(MAX_PAUSE_SECONDS, pause)
                return turn.answer
        finally:
            self._waiting -= 1

    def _pause(self) -> None:
        while (left := self._free_at - time.monotonic()) > 0:
            eventlet.sleep(left)


class RestApplication:
    """The WSGI application.

    Args:
        agents: Serves the WebSocket of a host's agent: called with the WSGI environment, ``start_response`` and the host.
        pages: Further resources by path: each is called with a GET or HEAD request and returns the response.
        sockets: WebSockets without a token, by path: each is called with the WSGI environment and ``start_response``.
        origins: The pages that may open those.
        arbiter: Serves the WebSocket of an arbiter: called with the WSGI environment and ``start_response``.
        relays: Serves the WebSocket of a cluster's relay: called with these and the relay's name.
    """

    def __init__(
        self,
        fabric: FabricControl,
        tokens: Tokens,
        agents: Callable[[dict[str, Any], StartResponse, Host], Iterable[bytes]],
        pages: Mapping[str, Page] | None = None,
        sockets: Mapping[str, Socket] | None = None,
        origins: Origins | None = None,
        arbiter: Socket | None = None,
        relays: Callable[[dict[str, Any], StartResponse, str], Iterable[bytes]] | None = None,
    ) -> None:
        self._origins = origins or Origins()
        self._fairness = Fairness()
        self._agents = agents
        self._arbiter = arbiter
        self._relays = relays
        self._fabric = fabric
        self._state = fabric.state
        self._tokens = tokens
        self._resources = Resources(fabric)
        self.operations = operations(self._resources, TraceResources(fabric, self._resources))
        self.pages: dict[str, Page] = {OPENAPI: self._openapi, **(pages or {})}
        self.sockets: dict[str, Socket] = dict(sockets or {})
        self._methods: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            self._methods.setdefault(operation.path, {})[operation.method] = operation
        self._document = json.dumps(document(self.operations)).encode()
        self._map = Mapper()
        self._map.minimization = False
        for path in (*self._methods, CHANNEL, RELAYS):
            self._map.connect(None, path, path=path)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        request = Request(environ)
        try:
            try:
                answered = self._answer(request, start_response)
            except UnicodeDecodeError as error:
                raise Problem(HTTPStatus.BAD_REQUEST, "the URL is not UTF-8") from error
        except Problem as problem:
            answered = problem_answer(problem)
        except HandshakeError as error:
            headers = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            answered = problem_answer(Problem(HTTPStatus(error.status), str(error), headers))
        except Exception:
            LOG.exception("%s %s failed", request.method, environ.get("PATH_INFO"))
            answered = problem_answer(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the controller's log for the error"))
        if not isinstance(answered, Response):
            return answered
        body: Iterable[bytes] = answered(environ, start_response)
        return body

    def _answer(self, request: Request, start_response: StartResponse) -> Response | Iterable[bytes]:
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have at most {MAX_BODY_BYTES} bytes", {"Connection": "close"}
            )
        path = request.path_info
        if path in self.pages:
            if request.method not in ("GET", "HEAD"):
                raise not_allowed(request, ["GET"])
            return self.pages[path](request)
        if path == ARBITERS and self._arbiter is not None:
            return self._arbiters_channel(request, self._arbiter, start_response)
        if path in self.sockets:
            return self._socket(request, self.sockets[path], start_response)
        route = self._map.match(path)
        if route is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no resource {path}; {OPENAPI} lists all")
        if route["path"] == CHANNEL:
            return self._channel(request, route["address"], start_response)
        if route["path"] == RELAYS:
            return self._relays_channel(request, route["relay"], start_response)
        methods = self._methods[route["path"]]
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            raise not_allowed(request, methods)
        return self._operate(request, operation, route)

    # -- operations ---------------------------------------------------------------------------------------------------

    def _operate(self, request: Request, operation: Operation, route: Mapping[str, str]) -> Response:
        if operation.token:
            self._tokens.check_operator(request)
            check_leads(self._fabric.cluster, request.path_qs)  # every operation that changes something has a token
            self._check_unchanged(request)
        return answer(request, operation, route, lambda values: self._make(request, operation, values), self._etag)

    def _make(self, request: Request, operation: Operation, values: dict[str, Any]) -> Any:
        """Return the answer in its turn; a request with the operator token does not wait for others."""

        def make() -> Any:
            return operation.answer(**values)

        if operation.token or (operation.costly and self._tokens.is_operator(request)):
            return make()
        if operation.costly:
            return self._fairness.costly(request.path_info, make)
        return self._fairness.answer(request.environ.get("REMOTE_ADDR", ""), make)

    def _etag(self, data: bytes) -> str:
        """Return the ETag; not of the version alone, because connections and acknowledgements change without a new version."""
        return f"{self._state.epoch}-{self._state.version}-{zlib.crc32(data):08x}"

    def _check_unchanged(self, request: Request) -> None:
        drains = json.dumps(self._resources.drains().page(0, MAX_ITEMS)).encode()
        if self._etag(drains) not in request.if_match:
            raise Problem(
                HTTPStatus.PRECONDITION_FAILED, f"the drains have changed since: read {ROOT}/drains again, or omit If-Match"
            )

    # -- others -------------------------------------------------------------------------------------------------------

    def _openapi(self, request: Request) -> Response:
        etag = f"{zlib.crc32(self._document):08x}"
        if etag in request.if_none_match:
            return Response(status=HTTPStatus.NOT_MODIFIED.value, etag=etag)
        return Response(self._document, content_type="application/json", charset="UTF-8", etag=etag)

    def _socket(self, request: Request, socket: Socket, start_response: StartResponse) -> Iterable[bytes]:
        if request.method != "GET":
            raise not_allowed(request, ["GET"])
        _check_upgrade(request, "a WebSocket")
        headers = request.headers
        objection = self._origins.objection(request.scheme, headers.get("Host"), headers.get("Origin"))
        if objection is not None:
            raise Problem(HTTPStatus.FORBIDDEN, objection)
        return socket(request.environ, start_response)

    def _channel(self, request: Request, address: str, start_response: StartResponse) -> Iterable[bytes]:
        if request.method != "GET":
            raise not_allowed(request, ["GET"])
        host = self._resources.host("address", address)
        _check_upgrade(request, "the agents' push channel")
        self._tokens.check_agent(request, self._resources.tree.ip(host))
        check_takes_channels(self._fabric.cluster)
        return _claimed(request, lambda: self._agents(request.environ, start_response, host))

    def _relays_channel(self, request: Request, name: str, start_response: StartResponse) -> Iterable[bytes]:
        if request.method != "GET":
            raise not_allowed(request, ["GET"])
        if self._relays is None:
            raise Problem(HTTPStatus.NOT_FOUND, ALONE)
        _check_upgrade(request, "the relays' channel")
        self._tokens.check_relay(request)
        check_takes_channels(self._fabric.cluster)
        serve = self._relays
        return _claimed(request, lambda: serve(request.environ, start_response, name))

    def _arbiters_channel(self, request: Request, serve: Socket, start_response: StartResponse) -> Iterable[bytes]:
        if request.method != "GET":
            raise not_allowed(request, ["GET"])
        _check_upgrade(request, "the arbiter's channel")
        self._tokens.check_arbiter(request)
        check_takes_channels(self._fabric.cluster)
        return _claimed(request, lambda: serve(request.environ, start_response))


def _claimed(request: Request, serve: Callable[[], Iterable[bytes]]) -> Iterable[bytes]:
    """Serve a channel whose token was checked, or answer 409 if its claim is rejected."""
    request.environ.get(TRUST, lambda: None)()
    try:
        return serve()
    except ClaimError as error:
        raise Problem(HTTPStatus.CONFLICT, str(error)) from error


def _check_upgrade(request: Request, what: str) -> None:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Problem(HTTPStatus.UPGRADE_REQUIRED, f"this is {what}: use WebSocket", {"Upgrade": "websocket"})
