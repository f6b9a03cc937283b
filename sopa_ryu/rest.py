"""The REST interface as a WSGI application over the fabric's state: no Ryu, no sockets, so that it is tested by itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from ipaddress import AddressValueError
from typing import Any

from routes import Mapper
from webob import Request, Response

from sopa_ryu import answers
from sopa_ryu.notify import Notifier
from sopa_ryu.state import FabricState
from topologies import Host, TopologyError

LOG = logging.getLogger("sopa.rest")
ROOT = "/sopa/v1"

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
    """

    def __init__(self, state: FabricState, notifier: Notifier) -> None:
        self.state = state
        self.notifier = notifier
        self._map = Mapper()
        self._map.minimization = False
        for path, answer in {
            "/fabric": self._fabric,
            "/paths": self._paths,
            "/failures": self._failures,
            "/agents": self._agents,
        }.items():
            self._map.connect(None, ROOT + path, answer=answer)
        self._map.connect(None, ROOT + "/agents/{address}", channel=True)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        request = Request(environ)
        try:
            route = self._map.match(request.path_info)
            if route is None:
                raise Problem(
                    HTTPStatus.NOT_FOUND, f"nothing is at {request.path_info}; the interface is at {ROOT}/fabric"
                )
            if request.method not in ("GET", "HEAD"):
                raise Problem(
                    HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not possible here", {"Allow": "GET, HEAD"}
                )
            if "channel" in route:
                return self._channel(request, route["address"], start_response)
            body = route["answer"](request)
            response = Response(json=body, charset="UTF-8")
        except Problem as problem:
            response = _document(problem)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.path_qs)
            response = _document(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the controller's log tells what failed"))
        answer: Iterable[bytes] = response(environ, start_response)
        return answer

    def _fabric(self, _request: Request) -> dict[str, Any]:
        return self.state.fabric()

    def _failures(self, _request: Request) -> dict[str, Any]:
        fabric = self.state.fabric()
        return {"version": fabric["version"], "failures": fabric["failures"]}

    def _agents(self, _request: Request) -> dict[str, Any]:
        return {"version": self.state.version, "agents": self.notifier.agents()}

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

    def _channel(self, request: Request, address: str, start_response: StartResponse) -> Iterable[bytes]:
        host = self._host("address", address)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Problem(
                HTTPStatus.UPGRADE_REQUIRED,
                "this is the agents' push channel: connect by WebSocket",
                {"Upgrade": "websocket"},
            )
        served: Iterable[bytes] = self.notifier.serve(request.environ, start_response, host)
        return served


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
