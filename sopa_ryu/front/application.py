"""What a front answers to which request: agents' channels and pages itself, paths from the view, the rest by somebody else."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from webob import Request, Response
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.http11 import Request as Upgrade
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from sopa_ryu.channel.claims import ClaimError
from sopa_ryu.fabric.view import View
from sopa_ryu.front import live
from sopa_ryu.front.agents import AgentClaim, AgentsChannel
from sopa_ryu.front.http_connection import Answer, HttpConnection
from sopa_ryu.front.live import PageFeed
from sopa_ryu.front.turns import Turns
from sopa_ryu.front.view_resources import ViewResources
from sopa_ryu.rest.access import PROTOCOL, Origins, Tokens
from sopa_ryu.rest.answers import HEADERS, not_allowed, problem_answer
from sopa_ryu.rest.operations import ROOT, Problem
from sopa_ryu.rest.schemas import NAME_PATTERN
from sopa_ryu.runtime.clients import client_of
from sopa_ryu.web.pages import PREFIX
from topologies import Clos, Host, TopologyError

_LOG = logging.getLogger("sopa.websocket")

ARBITER = ROOT + "/arbiter"
_CHANNEL = re.compile(re.escape(ROOT) + "/agents/([^/]+)")
_NO_READ = re.compile(rf"/|{PREFIX}.*|{re.escape(ROOT)}/(agents/[^/]+|arbiter|relays/[^/]+)")
"""The page's files, which tell nothing of the fabric, and channels, which have tokens of their own."""

_NAME = re.compile(NAME_PATTERN)

Page = Callable[[Request], Response]
Others = Callable[[Request], Awaitable[Response]]


class Application(ABC):
    """The requests of all connections.

    Args:
        pages: Resources of the front's own by path: each is called with a GET or HEAD request and returns the response.
        origins: The names by which it may be asked, and the pages that may open the feed.

    Attributes:
        channel: The agents'; None while the fabric is not known.
    """

    def __init__(self, tokens: Tokens, pages: Mapping[str, Page], feed: PageFeed, origins: Origins) -> None:
        self.channel: AgentsChannel | None = None
        self._tokens = tokens
        self._pages = pages
        self._feed = feed
        self._origins = origins
        self._turns = Turns()
        self._of_view: tuple[View, ViewResources] | None = None

    def answer(self, request: Request, connection: HttpConnection) -> Answer:
        """Return the answer to a request, or begin to serve a WebSocket; `Problem` if it is rejected."""
        self._origins.check_host(request)
        return self.route(request, connection)

    def route(self, request: Request, connection: HttpConnection) -> Answer:
        """Answer by path."""
        try:
            path = request.path_info
            _ = request.GET
        except UnicodeDecodeError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, "the URL is not UTF-8") from error
        if request.method in ("GET", "HEAD") and not _NO_READ.fullmatch(path):
            self._tokens.check_reader(request)
        if path in self._pages:
            check_method(request, ("GET", "HEAD"))
            return self._pages[path](request)
        channel = _CHANNEL.fullmatch(path)
        if channel is not None:
            check_method(request, ("GET",))
            self._agent(request, connection, channel[1])
            return None
        if path == live.PATH:
            check_method(request, ("GET",))
            self._page(request, connection)
            return None
        return self.other(request, path, connection)

    @abstractmethod
    def other(self, request: Request, path: str, connection: HttpConnection) -> Answer:
        """Answer what is neither an agent's channel nor a page."""

    def check_channels(self) -> None:
        """Raise `Problem` if agents are not taken here; a relay takes them always."""
        return

    @abstractmethod
    def tree(self) -> Clos:
        """Return the fabric; `Problem` (503) while it is not known."""

    # -- reads --------------------------------------------------------------------------------------------------------

    async def from_view(self, request: Request, path: str, view: View, carrier: str, others: Others | None = None) -> Response:
        """Answer from a view, in the client's turn; ``others`` answer what may have aliases, which only a controller knows."""
        if self._of_view is None or self._of_view[0] is not view:
            self._of_view = view, ViewResources(view, carrier)
        resources, client = self._of_view[1], client_of(request.environ["REMOTE_ADDR"])
        try:
            return await self._turns.make(client, lambda: resources.answer(request, path))
        except Problem as problem:
            if (
                others is None
                or problem.status is not HTTPStatus.BAD_REQUEST
                or not any(map(_NAME.fullmatch, request.GET.values()))
            ):
                raise
        return await others(request)

    # -- WebSockets ---------------------------------------------------------------------------------------------------

    def _page(self, request: Request, connection: HttpConnection) -> None:
        self._origins.check_page(request)
        check_upgrade(request, "a WebSocket")
        accepted = handshake(request)
        transport, early = connection.take_over()
        transport.write(accepted)
        self._feed.attend(transport, early, connection.peer, connection.trust)

    def _agent(self, request: Request, connection: HttpConnection, address: str) -> None:
        """Let a host's agent in, or answer 409 once it is known that its claim is rejected."""
        tree = self.tree()
        host = _host(tree, address)
        check_upgrade(request, "the agents' push channel")
        self._tokens.check_agent(request, tree.ip(host))
        self.check_channels()
        accepted = handshake(request)
        assert self.channel is not None  # with the fabric

        def reject(error: ClaimError) -> None:
            connection.finish(problem_answer(Problem(HTTPStatus.CONFLICT, str(error))))

        self.channel.claim(AgentClaim(host, connection.peer, request.query_string, lambda: opened(connection, accepted), reject))


def opened(connection: HttpConnection, accepted: bytes) -> tuple[Any, bytes] | None:
    """Answer a handshake; return the transport and the bytes that followed the request, None if the client has left.

    Until now the connection counts among those without a token, as any number of claims may be made with one.
    """
    if not connection.is_open:
        return None
    connection.trust()
    transport, early = connection.take_over()
    transport.write(accepted)
    return transport, early


def check_method(request: Request, methods: tuple[str, ...]) -> None:
    """Raise `Problem` (405) for another method."""
    if request.method not in methods:
        raise not_allowed(request, ["GET"])


def _host(tree: Clos, text: str) -> Host:
    try:
        return tree.host(text) if text.startswith("h") else tree.host_by_ip(text)
    except TopologyError as error:
        raise Problem(HTTPStatus.NOT_FOUND, f"address: {error}") from error
    except ValueError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"address={text:.60} is not an IPv4 address: {error}") from error


def check_upgrade(request: Request, what: str) -> None:
    """Raise `Problem` (426) for what is no WebSocket."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Problem(HTTPStatus.UPGRADE_REQUIRED, f"this is {what}: use WebSocket", {"Upgrade": "websocket"})


def _select(_protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return Subprotocol(PROTOCOL) if PROTOCOL in offered else None


def handshake(request: Request) -> bytes:
    """Return the answer that accepts a WebSocket; `Problem` if the request is none of version 13."""
    more = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    try:
        headers = Headers(request.environ[HEADERS])
    except InvalidHeader as error:  # a control character (RFC 9110, section 5.5)
        raise Problem(HTTPStatus.BAD_REQUEST, str(error), more) from error
    # Compression would need memory and processor time for each connection; without it all agents share one frame.
    asked = Upgrade(request.path_info, headers, request.method, request.environ["SERVER_PROTOCOL"])
    response = ServerProtocol(extensions=None, select_subprotocol=_select, logger=_LOG).accept(asked)
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        detail = bytes(response.body).decode(errors="replace").partition("\n")[0]
        raise Problem(HTTPStatus(response.status_code), detail, more)
    return bytes(response.serialize())
