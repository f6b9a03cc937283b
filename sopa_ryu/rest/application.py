"""The REST interface (docs/architecture.md, section 7): dispatch, parameters, ETags, problem documents.

What one client asks for delays others by one answer at most: requests of one address are answered one after the other, those of
who has had least first, and after a slice of time everything else that is ready has its turn. All answers without a token together
take half of the time, however many addresses ask, and costly ones a tenth. An answer that costs much (`Operation.costly`) is shared
by all requests that wait for it, and is never older than a request.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import eventlet
from eventlet.event import Event as Signal
from eventlet.semaphore import Semaphore
from routes import Mapper
from webob import Request, Response

from sopa_ryu.events.event import Event, EventKind
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.answers import answer, not_allowed, problem_answer
from sopa_ryu.rest.interface import operations
from sopa_ryu.rest.openapi import document
from sopa_ryu.rest.operations import MAX_ITEMS, ROOT, Operation, Problem, encoded
from sopa_ryu.rest.operators import Role
from sopa_ryu.rest.reader import FabricControl, check_leads
from sopa_ryu.rest.resources import Resources
from sopa_ryu.rest.traces import TraceResources
from sopa_ryu.runtime.clients import client_of
from sopa_ryu.runtime.fair_order import FairOrder

LOG = logging.getLogger("sopa.rest")

SLICE_SECONDS = 0.002
"""So much processor time goes to answers without a switch of green threads."""
SHARE = 0.5
"""Of the time, for all answers without a token: the rest is the switches'."""
BURST_SECONDS = 1.0
"""So much processor time may be taken at once, as by a reader of long lists."""
SPACING_TIMES = 9
"""Pause after a costly answer in multiples of its processor time."""
MAX_PAUSE_SECONDS = 0.25
COSTLY_AT_ONCE = 4
MAX_WAITING = 64
"""Requests for costly answers that may wait; others are answered 503."""
OPENAPI = "/openapi.json"

Page = Callable[[Request], Response]
T = TypeVar("T")


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
        self._order: FairOrder[Signal] = FairOrder()
        self._taken = False
        self._costly = Turns()
        self._slots = Semaphore(COSTLY_AT_ONCE)
        self._waiting = 0
        self._free_at = 0.0
        self._unbroken = self._paid_at = 0.0

    def answer(self, client: str, make: Callable[[], T]) -> T:
        """Make an answer in the client's turn, once those before it are paid for by others' time; ``make`` may not yield."""
        turn = Signal()
        self._order.add(client, turn)
        self._give()
        turn.wait()
        while (left := self._paid_at - BURST_SECONDS - time.monotonic()) > 0:
            eventlet.sleep(left)
        began = time.thread_time()
        try:
            return make()
        finally:
            spent = time.thread_time() - began
            self._order.spent(client, spent)
            self._paid_at = max(self._paid_at, time.monotonic()) + spent / SHARE
            self._unbroken += spent
            if self._unbroken > SLICE_SECONDS:
                self._unbroken = 0.0
                eventlet.sleep(0)
            self._taken = False
            self._give()

    def _give(self) -> None:
        """Give the next one its turn, unless somebody has it."""
        if not self._taken and self._order:
            self._taken = True
            self._order.take()[1].send()

    def costly(self, key: str, make: Callable[[], Any]) -> Any:
        """Make a costly answer, or take one begun after the request; `Problem` (503) if too many requests wait."""
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
    """The requests that the front passes on; ``pages`` are further resources by path, for GET and HEAD."""

    def __init__(self, fabric: FabricControl, tokens: Tokens, pages: Mapping[str, Page] | None = None) -> None:
        self._fairness = Fairness()
        self._fabric = fabric
        self._state = fabric.state
        self._tokens = tokens
        self._resources = Resources(fabric)
        self.operations = operations(self._resources, TraceResources(fabric, self._resources))
        self.pages: dict[str, Page] = {OPENAPI: self._openapi, **(pages or {})}
        self._methods: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            self._methods.setdefault(operation.path, {})[operation.method] = operation
        self._document = encoded(document(self.operations))
        self._map = Mapper()
        self._map.minimization = False
        for path in self._methods:
            self._map.connect(None, path, path=path)

    def respond(self, request: Request) -> Response:
        """Answer one request."""
        try:
            try:
                return self._answer(request)
            except UnicodeDecodeError as error:
                raise Problem(HTTPStatus.BAD_REQUEST, "the URL is not UTF-8") from error
        except Problem as problem:
            return problem_answer(problem)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.environ.get("PATH_INFO"))
            return problem_answer(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the controller's log for the error"))

    def _answer(self, request: Request) -> Response:
        path = request.path_info
        if path in self.pages:
            if request.method not in ("GET", "HEAD"):
                raise not_allowed(request, ["GET"])
            return self.pages[path](request)
        route = self._map.match(path)
        if route is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no resource {path}; {OPENAPI} lists all")
        methods = self._methods[route["path"]]
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            raise not_allowed(request, methods)
        return self._operate(request, operation, route)

    # -- operations ---------------------------------------------------------------------------------------------------

    def _operate(self, request: Request, operation: Operation, route: Mapping[str, str]) -> Response:
        actor = ""
        if operation.token:
            actor = self._actor(request, operation.role)
            check_leads(self._fabric.cluster, request.path_qs)  # every operation that changes something has a token
            self._check_unchanged(request)

        def make(values: dict[str, Any]) -> Any:
            return self._make(request, operation, values | ({"actor": actor} if operation.actor else {}))

        def respond() -> Response:
            return answer(request, operation, route, make, self._etag, self._state.aliases.own)

        if operation.token or operation.costly:
            return respond()
        return self._fairness.answer(client_of(request.environ["REMOTE_ADDR"]), respond)

    def _make(self, request: Request, operation: Operation, values: dict[str, Any]) -> Any:
        """Return what is answered; a costly one in its turn, unless the request has the operator token."""

        def make() -> Any:
            return operation.answer(**values)

        if operation.costly and not self._tokens.is_operator(request):
            return self._fairness.costly(f"{request.path_info} {sorted(values.items())}", make)
        return make()

    def _actor(self, request: Request, role: Role) -> str:
        """Return who asks for a change; `Problem` without a token for it."""
        client = client_of(request.environ["REMOTE_ADDR"])
        try:
            return f"{self._tokens.check_operator(request, role)} from {client}"
        except Problem as problem:
            what = f"{request.method} {request.path_info}: {problem.status.phrase}"
            self._state.note((Event(time.time(), EventKind.REFUSED, cause=what, actor=client),))
            raise

    def _etag(self, data: bytes) -> str:
        """Return the ETag; not of the version alone, because connections and acknowledgements change without a new version."""
        return f"{self._state.epoch}-{self._state.version}-{zlib.crc32(data):08x}"

    def _check_unchanged(self, request: Request) -> None:
        drains = encoded(self._resources.drains().page(0, MAX_ITEMS))
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
