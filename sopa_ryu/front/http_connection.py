"""HTTP/1.1 on one connection, by h11: every part of it is bounded in bytes and in time.

A request with its body has `REQUEST_SECONDS` from the
connection's start or the answer before, an answer `ANSWER_SECONDS`. A request is answered at once, by a coroutine, or taken over as
a WebSocket; requests that follow wait until the answer has been read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeAlias

import h11
from webob import Request, Response

from sopa_ryu.front.websocket import READ_BYTES
from sopa_ryu.rest.answers import problem_answer, request_of
from sopa_ryu.rest.operations import Problem

LOG = logging.getLogger("sopa.http")

REQUEST_SECONDS = 20.0
"""Timeout from a connection's start or last answer until a request is complete; also that of idle connections."""
ANSWER_SECONDS = 60.0
"""Timeout of an answer, which a client reads too slowly, or which its maker is late with."""
WRITE_SECONDS = 20.0
"""Timeout for a client that does not read its answer at all."""
LINGER_SECONDS = 1.0
"""How long a rejected client may go on sending, so that it can read why it was rejected (RFC 9112, section 9.6)."""
MAX_LINGER_BYTES = 1 << 24
MAX_HEAD_BYTES = 1 << 15
MAX_BODY_BYTES = 1 << 16
MAX_CHUNKS = 256
"""A chunk costs as much as its headers, however few bytes it has: one read of tiny ones would delay everybody else."""
MAX_REQUEST_BYTES = 1 << 18
PIECE_BYTES = 1 << 16
"""A longer answer is written in pieces: over TLS nothing else shows how far the client has read."""
_TOO_LONG = f"a body may have at most {MAX_BODY_BYTES} bytes"
_BUFFER = memoryview(bytearray(READ_BYTES))

Answer: TypeAlias = Response | Coroutine[Any, Any, Response] | None
"""A response, what makes it, or None if the connection was taken over."""


class HttpConnection(asyncio.BufferedProtocol):
    """The server's end of one connection.

    Args:
        answer: Called with each request and this connection; returns an `Answer` or raises `Problem`.
        peer: The client's address.
        scheme: ``http`` or ``https``.
        ended: Called once, when the connection needs no place among those without a token any more.
        count: Called with the reason of what is rejected before it is a request: its status, or ``timeout``.
    """

    __slots__ = ("_answer", "_body", "_busy", "_chunks", "_count", "_ended", "_full", "_h11", "_head", "_lingering", "_received",
                 "_stuck", "_task", "_timer", "_transport", "_unsent", "peer", "scheme")  # fmt: skip

    def __init__(
        self,
        answer: Callable[[Request, HttpConnection], Answer],
        peer: str,
        scheme: str,
        ended: Callable[[], None],
        count: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.peer = peer
        self.scheme = scheme
        self._answer = answer
        self._ended: Callable[[], None] | None = ended
        self._count = count
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._chunks = 0
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._received = 0
        self._unsent = memoryview(b"")
        self._full = False
        self._lingering = False
        self._busy = False

    # -- the transport's calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Wait for a request."""
        self._transport = transport
        self._time(REQUEST_SECONDS, self._late)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read into."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._received += nbytes
        if self._lingering:
            if self._received > MAX_LINGER_BYTES:
                self._abort()
            return
        self._h11.receive_data(bytes(_BUFFER[:nbytes]))
        if self._task is None:
            self._go_on()
        if self._transport is not None and self._busy:
            self._transport.pause_reading()  # what follows waits until this request is answered

    def eof_received(self) -> bool:
        """Answer what has come before; one that waits whether its claim is accepted has left."""
        waits = self._busy and self._task is None and not self._full
        if self._lingering or waits or self.scheme != "http":
            return False
        self._h11.receive_data(b"")
        if self._task is None and not self._busy:
            self._go_on()
        return self._transport is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back."""
        self._time(0.0, None)
        self._unstick()
        if self._task is not None:
            self._task.cancel()
        self._transport = None
        self.trust()

    def pause_writing(self) -> None:
        """Note that the client does not read, and cut it off if it goes on so."""
        self._full = True
        self._stuck = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Go on once the client has read."""
        self._full = False
        self._unstick()
        if self._unsent:
            self._send_on()
        elif self._h11.our_state is h11.DONE and not self._lingering:
            self._next()

    # -- what the application may do ----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True while the client is there."""
        return self._transport is not None and not self._transport.is_closing()

    def trust(self) -> None:
        """Give the place among connections without a token back: it has shown one, or is closed."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    def take_over(self) -> tuple[Any, bytes]:
        """Return the transport, for another protocol, and the bytes that follow the request and were read already."""
        transport, self._transport = self._transport, None
        self._time(0.0, None)
        self._unstick()
        return transport, self._h11.trailing_data[0]

    def finish(self, response: Response) -> None:
        """Answer a request that a claim has kept waiting."""
        if self.is_open:
            self._respond(response)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Read events until a request is complete or more data is needed."""
        try:
            while self._transport is not None and self._task is None and not self._lingering:
                event = self._h11.next_event()
                if self._received > MAX_REQUEST_BYTES:
                    text = f"a request may have at most {MAX_REQUEST_BYTES} bytes"
                    raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.Request):
                    self._head, self._body, self._chunks = event, bytearray(), 0
                    self._check_length(dict(event.headers))
                    if self._h11.they_are_waiting_for_100_continue:
                        self._write(h11.InformationalResponse(status_code=100, headers=[]))
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    self._chunks += event.chunk_start
                    if self._chunks > MAX_CHUNKS:
                        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have at most {MAX_CHUNKS} chunks")
                    if len(self._body) > MAX_BODY_BYTES:
                        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LONG)
                elif isinstance(event, h11.EndOfMessage):
                    self._serve()
                else:
                    self._transport.close()
                    return
        except Problem as problem:
            self._reject(problem)
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE and self._head is None:
                line_ends = b"\n" in self._h11.trailing_data[0]
                text = f"a request line and headers may have at most {MAX_HEAD_BYTES} bytes"
                self._reject(Problem(status if line_ends else HTTPStatus.REQUEST_URI_TOO_LONG, text))
            else:
                self._reject(Problem(status, str(error)[:200]))

    def _check_length(self, headers: dict[bytes, bytes]) -> None:
        """Raise `Problem` if a body is too long, or servers before this one may read its end elsewhere (RFC 9112, section 6.1)."""
        length = headers.get(b"content-length")  # h11 has checked that it is one number
        if length is not None and b"transfer-encoding" in headers:
            raise Problem(HTTPStatus.BAD_REQUEST, "Content-Length and Transfer-Encoding are not allowed together")
        if length is not None and int(length) > MAX_BODY_BYTES:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LONG)

    def _serve(self) -> None:
        assert self._head is not None
        request = self._request(self._head)
        self._busy = True
        self._time(ANSWER_SECONDS, self._abort)
        try:
            answer = self._answer(request, self)
        except Problem as problem:
            self._respond(problem_answer(problem))
            return
        except Exception:
            LOG.exception("a request from %s failed", self.peer)
            self._respond(_internal())
            return
        if isinstance(answer, Response):
            self._respond(answer)
        elif answer is not None:
            self._task = asyncio.get_running_loop().create_task(self._await(answer))

    async def _await(self, coming: Coroutine[Any, Any, Response]) -> None:
        try:
            response = await coming
        except Problem as problem:
            response = problem_answer(problem)
        except Exception:
            LOG.exception("a request from %s failed", self.peer)
            response = _internal()
        self._task = None
        if self.is_open:
            self._respond(response)
            self._go_on()

    def _request(self, head: h11.Request) -> Request:
        headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers]
        method, target, version = head.method.decode("ascii"), head.target.decode("latin-1"), head.http_version.decode("ascii")
        return request_of(method, target, headers, bytes(self._body), self.peer, self.scheme, f"HTTP/{version}")

    # -- answers ------------------------------------------------------------------------------------------------------

    def _respond(self, response: Response) -> None:
        """Send a response; the next request is read once the client has taken it."""
        body = response.body
        headers = [(name, value) for name, value in response.headerlist if name.lower() != "content-length"]
        if response.status_code != HTTPStatus.NOT_MODIFIED:
            headers.append(("Content-Length", str(len(body))))
        headers.append(("Date", formatdate(usegmt=True)))
        if self._lingering:
            headers.append(("Connection", "close"))
        self._write(h11.Response(status_code=response.status_code, headers=headers, reason=response.status[4:]))
        if body and response.status_code != HTTPStatus.NOT_MODIFIED and (self._head is None or self._head.method != b"HEAD"):
            self._unsent = memoryview(body)
        self._send_on()

    def _send_on(self) -> None:
        """Send what the client takes of an answer, and once that is all, turn to the next request."""
        while self._unsent and not self._full:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            self._write(h11.Data(data=bytes(piece)))
        if self._unsent:
            return
        self._write(h11.EndOfMessage())
        if not self._full and not self._lingering:
            self._next()

    def _next(self) -> None:
        """Wait for the next request, or close."""
        if self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self._head, self._busy, self._received = None, False, len(self._h11.trailing_data[0])
            self._time(REQUEST_SECONDS, self._late)
            self._transport.resume_reading()
            if any(self._h11.trailing_data):  # more, or the end
                asyncio.get_running_loop().call_soon(self._go_on)  # everything else has its turn first
            return
        self._transport.close()

    def _reject(self, problem: Problem) -> None:
        """Answer what is no request, and close."""
        self._count(str(problem.status.value))
        self._lingering, self._received = True, 0
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(problem_answer(problem))
        # A socket that is closed while bytes are unread is reset, and the client loses the answer.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._time(LINGER_SECONDS, self._abort)

    def _write(self, event: Any) -> None:
        data = self._h11.send(event)
        if data:
            self._transport.write(data)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _time(self, seconds: float, call: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if call is None else asyncio.get_running_loop().call_later(seconds, call)

    def _unstick(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        self._stuck = None

    def _late(self) -> None:
        """Close an idle connection without a word, which a client could take for an answer; answer an incomplete request."""
        if self._head is None and not self._h11.trailing_data[0]:
            self._lingering = True
            self._transport.close()
            self._time(LINGER_SECONDS, self._abort)  # it may have left an end of the last answer unread
            return
        text = f"the request was not complete after {REQUEST_SECONDS:g} s"
        self._reject(Problem(HTTPStatus.REQUEST_TIMEOUT, text))

    def _abort(self) -> None:
        if self._transport is not None:
            if not self._lingering:
                self._count("timeout")
            self._transport.abort()


def _internal() -> Response:
    return problem_answer(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the server's log for the error"))
