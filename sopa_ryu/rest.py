"""The REST interface as a WSGI application over the fabric's state: no Ryu, no sockets, so that it is tested by itself."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from ipaddress import AddressValueError
from typing import Any

from routes import Mapper
from webob import Request, Response

from sopa_ryu import answers, health
from sopa_ryu.drains import StateError
from sopa_ryu.notify import ClaimError, Notifier
from sopa_ryu.state import DOWN, SILENT, FabricState
from sopa_ryu.wiring import Wiring
from topologies import Host, Switch, TopologyError

LOG = logging.getLogger("sopa.rest")
ROOT = "/sopa/v1"
CHANNEL = "/agents/{address}"

StartResponse = Callable[..., Any]


class Problem(Exception):
    """A request that cannot be answered: becomes a problem document (RFC 9457).

    Parameters
    ----------
    status : HTTPStatus
    detail : str
        What was wrong with this request, and what would be right.
    headers : dict, optional
        More response headers, such as ``Allow``.
    """

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


class RestApplication:
    """The WSGI application: DESIGN, section 6.

    Parameters
    ----------
    state : FabricState
    notifier : Notifier
        Takes over the requests for the agents' push channel.
    wiring : Wiring
    since : callable
        Gives the switches that hold their rules, each with when it connected.
    drain : callable
        Drains a link or switch (True) or takes it back (False).
    """

    def __init__(
        self,
        state: FabricState,
        notifier: Notifier,
        wiring: Wiring,
        since: Callable[[], Mapping[Switch, float]],
        drain: Callable[[str, bool], object],
    ) -> None:
        self.state = state
        self.notifier = notifier
        self.wiring = wiring
        self._since = since
        self._drain = drain
        self._map = Mapper()
        self._map.minimization = False
        get = {
            "/fabric": self._fabric,
            "/paths": self._paths,
            "/failures": self._failures,
            "/changes": self._changes,
            "/drains": self._drains,
            "/wiring": self._wiring,
            "/agents": self._agents,
            "/process": self._process,
        }
        self._methods: dict[str, dict[str, Callable[[Request], Any]]] = {
            **{path: {"GET": answer} for path, answer in get.items()},
            "/drains/{name}": {"PUT": self._put_drain, "DELETE": self._delete_drain},
            CHANNEL: {"GET": self._no_channel},
        }
        for path in self._methods:
            self._map.connect(None, ROOT + path, path=path)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        request = Request(environ)
        try:
            route = self._map.match(request.path_info)
            if route is None:
                raise Problem(
                    HTTPStatus.NOT_FOUND, f"nothing is at {request.path_info}; the interface is at {ROOT}/fabric"
                )
            methods = self._methods[route["path"]]
            answer = methods.get("GET" if request.method == "HEAD" else request.method)
            if answer is None:
                allowed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
                raise Problem(
                    HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not possible here", {"Allow": allowed}
                )
            request.urlvars = route
            if route["path"] == CHANNEL and request.headers.get("Upgrade", "").lower() == "websocket":
                return self._channel(request, route["address"], start_response)
            response = Response(json=answer(request), charset="UTF-8")
        except Problem as problem:
            response = _document(problem)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.path_qs)
            response = _document(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the controller's log tells what failed"))
        body: Iterable[bytes] = response(environ, start_response)
        return body

    def _fabric(self, _request: Request) -> dict[str, Any]:
        return self.state.fabric()

    def _failures(self, _request: Request) -> dict[str, Any]:
        return {"version": self.state.version, "failures": self.state.failure_list(time.monotonic())}

    def _changes(self, _request: Request) -> dict[str, Any]:
        return {"version": self.state.version, "epoch": self.state.epoch, "changes": self.state.change_list()}

    def _drains(self, _request: Request) -> dict[str, Any]:
        return {"version": self.state.version, "drains": sorted(self.state.drained)}

    def _put_drain(self, request: Request) -> dict[str, Any]:
        return self._change_drain(request, True)

    def _delete_drain(self, request: Request) -> dict[str, Any]:
        return self._change_drain(request, False)

    def _change_drain(self, request: Request, drained: bool) -> dict[str, Any]:
        name = request.urlvars["name"]
        try:
            self._drain(name, drained)
        except TopologyError as error:
            raise Problem(
                HTTPStatus.NOT_FOUND, f"{name} is no link or switch of this fabric, such as a0_0-c0_1 or c0_1: {error}"
            ) from error
        except ValueError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error
        except StateError as error:
            raise Problem(HTTPStatus.INSUFFICIENT_STORAGE, f"nothing has changed: {error}") from error
        return self._drains(request)

    def _wiring(self, _request: Request) -> dict[str, Any]:
        since = self._since()
        down = {name: reason for name, reason in self.state.failures.items() if reason in (DOWN, SILENT)}
        return self.wiring.report(down, since.keys(), since, time.monotonic())

    def _agents(self, _request: Request) -> dict[str, Any]:
        return {
            "version": self.state.version,
            "epoch": self.state.epoch,
            "agents": self.notifier.agents(self.state.version),
            "refused": dict(self.notifier.refused),
        }

    def _process(self, _request: Request) -> dict[str, Any]:
        return health.process()

    def _paths(self, request: Request) -> dict[str, Any]:
        src, dst = (self._host(name, request.GET.get(name)) for name in ("src", "dst"))
        return answers.paths(self.state, src, dst)

    def _host(self, name: str, address: str | None) -> Host:
        if not address:
            raise Problem(
                HTTPStatus.BAD_REQUEST, f"{name} is missing: give the IPv4 address of a host, as in {name}=10.0.0.2"
            )
        try:
            return self.state.tree.host_by_ip(address)
        except AddressValueError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name}={address} is no IPv4 address: {error}") from error
        except TopologyError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"{name}: {error}") from error

    def _no_channel(self, request: Request) -> dict[str, Any]:
        self._host("address", request.urlvars["address"])
        raise Problem(
            HTTPStatus.UPGRADE_REQUIRED,
            "this is the agents' push channel: connect by WebSocket",
            {"Upgrade": "websocket"},
        )

    def _channel(self, request: Request, address: str, start_response: StartResponse) -> Iterable[bytes]:
        host = self._host("address", address)
        try:
            return self.notifier.serve(request.environ, start_response, host)
        except ClaimError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error


def _document(problem: Problem) -> Response:
    body = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
    }
    return Response(
        json.dumps(body).encode(),
        status=problem.status.value,
        content_type="application/problem+json",
        headerlist=[("Content-Type", "application/problem+json"), *problem.headers.items()],
    )
