"""What a relay answers to which request: from the view, from its own files, from a controller, or by the leader's address."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

from webob import Request, Response

from sopa_ryu.cluster.relay.following import Following
from sopa_ryu.cluster.relay.live import RelayFeed
from sopa_ryu.cluster.relay.upstream import NoControllerError, Upstream
from sopa_ryu.fabric.view import View
from sopa_ryu.front.application import ARBITER, Application, Others, Page
from sopa_ryu.front.http_connection import Answer, HttpConnection
from sopa_ryu.rest.access import Origins, Tokens
from sopa_ryu.rest.answers import TARGET, not_allowed, problem_answer
from sopa_ryu.rest.operations import ROOT, Problem
from topologies import Clos

METRICS, OPENAPI = "/metrics", "/openapi.json"
_OF_VIEW = (f"{ROOT}/paths", f"{ROOT}/failures")
_FABRIC = f"{ROOT}/fabric"
_WRITES = ("POST", "PUT", "DELETE", "PATCH")


class RelayApplication(Application):
    """The requests of all connections of a relay."""

    def __init__(
        self, following: Following, tokens: Tokens, upstream: Upstream, pages: Mapping[str, Page], feed: RelayFeed, origins: Origins
    ) -> None:
        super().__init__(tokens, pages, feed, origins)
        self._following = following
        self._upstream = upstream

    def route(self, request: Request, connection: HttpConnection) -> Answer:
        """Answer reads by path; writes are the leader's."""
        if self._upstream.via in request.headers.get("Via", ""):
            text = "the request has come back to this relay: a controller's URL leads here; see --sopa-cluster-url"
            raise Problem(HTTPStatus.LOOP_DETECTED, text)
        return super().route(request, connection) if request.method in ("GET", "HEAD") else self._elsewhere(request)

    def other(self, request: Request, path: str, connection: HttpConnection) -> Answer:
        """Answer from the view, or by a controller."""
        if path == ARBITER:
            raise Problem(HTTPStatus.NOT_FOUND, "an arbiter needs the leader's own channel: give it a controller's URL")
        if path in _OF_VIEW:
            return self._own(request, path, partial(self._asked, path=path))
        if path == OPENAPI or path.startswith(ROOT + "/"):
            return self._asked(request, path)
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no resource {path:.100}; {OPENAPI} lists all")

    def tree(self) -> Clos:
        """Return the view's fabric; `Problem` (503) before the first view."""
        return self._view().failures.tree

    def _elsewhere(self, request: Request) -> Response:
        """Send a write to the leader."""
        path = request.environ["PATH_INFO"]
        if request.method not in _WRITES or not path.startswith(ROOT + "/"):
            raise not_allowed(request, ["GET"])
        leader = self._following.leader
        if leader is None:
            text = "the cluster has no leader now, and only a leader changes anything: try again later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "2"})
        location = leader.rstrip("/") + request.environ[TARGET]
        text = f"a relay changes nothing: send this to the cluster's leader, {location:.300}"
        return problem_answer(Problem(HTTPStatus.TEMPORARY_REDIRECT, text, {"Location": location}))

    async def _own(self, request: Request, path: str, others: Others | None = None) -> Response:
        return await self.from_view(request, path, self._view(), self._following.carrier, others)

    async def _asked(self, request: Request, path: str) -> Response:
        """Answer what a controller knows."""
        try:
            found = await self._upstream.get(request.environ[TARGET])
        except NoControllerError:
            if path == _FABRIC and self._following.view is not None:
                return await self._own(request, path)
            raise
        return found.response(request)

    def _view(self) -> View:
        view = self._following.view
        if view is None:
            text = "this relay has not seen a view of the fabric yet: the cluster has had no leader, or the engine does not answer"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "2"})
        return view
