"""What a relay answers to which request: from the view, from its own files, from a controller, or by the leader's address."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from webob import Request, Response
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.http11 import Request as Upgrade
from websockets.server import ServerProtocol

from sopa_ryu.channel.claims import ClaimError
from sopa_ryu.cluster.relay import live
from sopa_ryu.cluster.relay.agents import AgentClaim, AgentsChannel
from sopa_ryu.cluster.relay.following import Following
from sopa_ryu.cluster.relay.http_connection import HEADERS, TARGET, Answer, HttpConnection
from sopa_ryu.cluster.relay.live import RelayFeed
from sopa_ryu.cluster.relay.turns import Turns
from sopa_ryu.cluster.relay.upstream import NoControllerError, Upstream
from sopa_ryu.cluster.relay.view_resources import ViewResources
from sopa_ryu.fabric.view import View
from sopa_ryu.rest.access import Origins, Tokens
from sopa_ryu.rest.answers import not_allowed, problem_answer
from sopa_ryu.rest.operations import ROOT, Problem
from topologies import Clos, Host, TopologyError

_LOG = logging.getLogger("sopa.websocket")

METRICS, OPENAPI = "/metrics", "/openapi.json"
ARBITER = ROOT + "/arbiter"
_CHANNEL = re.compile(re.escape(ROOT) + "/agents/([^/]+)")
_OF_VIEW = (f"{ROOT}/paths", f"{ROOT}/failures")
_FABRIC = f"{ROOT}/fabric"
_WRITES = ("POST", "PUT", "DELETE", "PATCH")

Page = Callable[[Request], Response]


class RelayApplication:
    """The requests of all connections.

    Args:
        pages: Resources of the relay's own by path: each is called with a GET or HEAD request and returns the response.
        origins: The pages that may open the feed.

    Attributes:
        channel: The agents'; None while the fabric is not known.
    """

    def __init__(
        self, following: Following, tokens: Tokens, upstream: Upstream, pages: Mapping[str, Page], feed: RelayFeed, origins: Origins
    ) -> None:
        self.channel: AgentsChannel | None = None
        self._following = following
        self._tokens = tokens
        self._upstream = upstream
        self._pages = pages
        self._feed = feed
        self._origins = origins
        self._turns = Turns()
        self._of_view: tuple[View, ViewResources] | None = None

    def answer(self, request: Request, connection: HttpConnection) -> Answer:
        """Return the answer to a request, or begin to serve a WebSocket; `Problem` if it is rejected."""
        try:
            path = request.path_info
            _ = request.GET
        except UnicodeDecodeError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, "the URL is not UTF-8") from error
        if self._upstream.via in request.headers.get("Via", ""):
            text = "the request has come back to this relay: a controller's URL leads here; see --sopa-cluster-url"
            raise Problem(HTTPStatus.LOOP_DETECTED, text)
        if request.method not in ("GET", "HEAD"):
            return self._elsewhere(request, path)
        if path in self._pages:
            return self._pages[path](request)
        channel = _CHANNEL.fullmatch(path)
        if channel is not None:
            self._agent(request, connection, channel[1])
            return None
        if path == live.PATH:
            self._page(request, connection)
            return None
        if path == ARBITER:
            raise Problem(HTTPStatus.NOT_FOUND, "an arbiter needs the leader's own channel: give it a controller's URL")
        if path in _OF_VIEW:
            return self._own(request, path)
        if path == OPENAPI or path.startswith(ROOT + "/"):
            return self._asked(request, path)
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no resource {path:.100}; {OPENAPI} lists all")

    # -- reads and writes ---------------------------------------------------------------------------------------------

    def _elsewhere(self, request: Request, path: str) -> Response:
        """Send a write to the leader."""
        if request.method not in _WRITES or not path.startswith(ROOT + "/"):
            raise not_allowed(request, ["GET"])
        leader = self._following.leader
        if leader is None:
            text = "the cluster has no leader now, and only a leader changes anything: try again later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "2"})
        location = leader.rstrip("/") + request.environ[TARGET]
        text = f"a relay changes nothing: send this to the cluster's leader, {location:.300}"
        return problem_answer(Problem(HTTPStatus.TEMPORARY_REDIRECT, text, {"Location": location}))

    async def _own(self, request: Request, path: str) -> Response:
        resources = self._resources()
        client = request.environ["REMOTE_ADDR"]
        return await self._turns.make(client, lambda: resources.answer(request, path))

    async def _asked(self, request: Request, path: str) -> Response:
        """Answer what a controller knows."""
        try:
            found = await self._upstream.get(request.environ[TARGET])
        except NoControllerError:
            if path == _FABRIC and self._following.view is not None:
                return await self._own(request, path)
            raise
        return found.response(request)

    def _resources(self) -> ViewResources:
        view = self._view()
        if self._of_view is None or self._of_view[0] is not view:
            self._of_view = view, ViewResources(view, self._following.carrier)
        return self._of_view[1]

    def _view(self) -> View:
        view = self._following.view
        if view is None:
            text = "this relay has not seen a view of the fabric yet: the cluster has had no leader, or the engine does not answer"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "2"})
        return view

    # -- WebSockets ---------------------------------------------------------------------------------------------------

    def _page(self, request: Request, connection: HttpConnection) -> None:
        _check_upgrade(request, "a WebSocket")
        headers = request.headers
        objection = self._origins.objection(request.scheme, headers.get("Host"), headers.get("Origin"))
        if objection is not None:
            raise Problem(HTTPStatus.FORBIDDEN, objection.replace("--sopa-origin", "--origin"))
        accepted = _handshake(request)
        transport, early = connection.take_over()
        transport.write(accepted)
        self._feed.attend(transport, early, connection.peer, connection.trust)

    def _agent(self, request: Request, connection: HttpConnection, address: str) -> None:
        """Let a host's agent in, or answer 409 once it is known that its claim is rejected."""
        tree = self._view().failures.tree
        host = _host(tree, address)
        _check_upgrade(request, "the agents' push channel")
        self._tokens.check_agent(request, tree.ip(host))
        accepted = _handshake(request)
        connection.trust()
        assert self.channel is not None  # a view belongs to a fabric

        def open_channel() -> tuple[Any, bytes] | None:
            if not connection.is_open:
                return None
            transport, early = connection.take_over()
            transport.write(accepted)
            return transport, early

        def reject(error: ClaimError) -> None:
            connection.finish(problem_answer(Problem(HTTPStatus.CONFLICT, str(error))))

        self.channel.claim(AgentClaim(host, connection.peer, request.query_string, open_channel, reject))


def _host(tree: Clos, text: str) -> Host:
    try:
        return tree.host(text) if text.startswith("h") else tree.host_by_ip(text)
    except TopologyError as error:
        raise Problem(HTTPStatus.NOT_FOUND, f"address: {error}") from error
    except ValueError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"address={text:.60} is not an IPv4 address: {error}") from error


def _check_upgrade(request: Request, what: str) -> None:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise Problem(HTTPStatus.UPGRADE_REQUIRED, f"this is {what}: use WebSocket", {"Upgrade": "websocket"})


def _handshake(request: Request) -> bytes:
    """Return the answer that accepts a WebSocket; `Problem` if the request is none of version 13."""
    more = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    try:
        headers = Headers(request.environ[HEADERS])
    except InvalidHeader as error:  # a control character (RFC 9110, section 5.5)
        raise Problem(HTTPStatus.BAD_REQUEST, str(error), more) from error
    # Compression would need memory and processor time for each connection; without it all agents share one frame.
    asked = Upgrade(request.path_info, headers, request.method, request.environ["SERVER_PROTOCOL"])
    response = ServerProtocol(extensions=None, logger=_LOG).accept(asked)
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        detail = bytes(response.body).decode(errors="replace").partition("\n")[0]
        raise Problem(HTTPStatus(response.status_code), detail, more)
    return bytes(response.serialize())
