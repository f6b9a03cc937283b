"""What a request of REST is answered: its parameters checked, pages of lists, ETags, problem documents. Any server can use it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from webob import Request, Response

from sopa_ryu.rest.operations import MAX_ITEMS, PAGE, PROBLEM, Listing, Operation, Problem, encoded, problem_body

TARGET = "sopa.target"
"""Key of a request's environment: path and query, to be sent on. The path is encoded anew from what the request is routed by."""
HEADERS = "sopa.headers"
"""Key of the environment: all headers, with names in lower case."""


def request_of(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes, peer: str, scheme: str, protocol: str
) -> Request:
    """Return a request as WebOb has it, from which parameters, ETags and tokens are read.

    ``target`` is path and query as they came, in latin-1. Names of headers are in lower case. `Problem` for a target that is no
    path: behind another server's address, whatever reads it next might take it for a part of that.
    """
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        raise Problem(HTTPStatus.BAD_REQUEST, f"a request's target begins with /, unlike {target:.100}")
    path_bytes = unquote_to_bytes(path.encode("latin-1"))
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path_bytes.decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": protocol,
        "SERVER_NAME": "sopa",
        "SERVER_PORT": "0",
        "REMOTE_ADDR": peer,
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(body),
        "webob.is_body_seekable": True,  # or WebOb copies it to a file
        TARGET: quote(path_bytes) + mark + query,
        HEADERS: list(headers),
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in environ[HEADERS]:
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value
        elif key != "CONTENT_LENGTH":
            environ[f"HTTP_{key}"] = f"{environ[f'HTTP_{key}']},{value}" if f"HTTP_{key}" in environ else value
    return Request(environ)


def answer(
    request: Request,
    operation: Operation,
    route: Mapping[str, str],
    make: Callable[[dict[str, Any]], Any],
    etag_of: Callable[[bytes], str],
    own: Callable[[str], str] | None = None,
) -> Response:
    """Return the answer to a request.

    ``make`` is called with all parameters by name, ``route`` has those in the path; it returns the body or a `Listing`. ``own``
    returns the own name of what an alias names; without it there are own names only. `Problem` if a parameter is missing, unknown
    or malformed; and what ``make`` raises.
    """
    values = values_of(request, operation, route, own)
    if operation.body:
        values["body"] = _body(request)
    others = "".join(f"&{name}={values[name]}" for name in request.GET if name not in ("offset", "limit"))
    offset, limit = values.pop("offset", 0), values.pop("limit", MAX_ITEMS)
    listing = make(values)
    body = listing.page(offset, limit) if isinstance(listing, Listing) else listing
    data = encoded(body)
    etag = etag_of(data)
    if request.method in ("GET", "HEAD") and etag in request.if_none_match:
        return Response(status=HTTPStatus.NOT_MODIFIED.value, etag=etag)
    response = Response(data, status=operation.status.value, content_type="application/json", charset="UTF-8", etag=etag)
    if operation.status is HTTPStatus.ACCEPTED and "id" in body:
        where = request.host_url if "Host" in request.headers else ""
        response.headers["Location"] = f"{where}{operation.path}/{body['id']}"
    if isinstance(listing, Listing) and offset + limit < listing.total:
        response.headers["Link"] = f'<{operation.path}?offset={offset + limit}&limit={limit}{others}>; rel="next"'
    return response


def problem_answer(problem: Problem) -> Response:
    """Return the problem document of a rejected request."""
    return Response(
        problem_body(problem),
        status=problem.status.value,
        content_type=PROBLEM,
        headerlist=[("Content-Type", PROBLEM), *problem.headers.items()],
    )


def values_of(
    request: Request, operation: Operation, route: Mapping[str, str], own: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """Return the request's parameters by name, parsed and checked."""
    known = {param.name: param for param in (*operation.params, *(PAGE if operation.listed else ()))}
    values: dict[str, Any] = {}
    given = request.GET
    for name in given:
        if name not in known or known[name].where != "query":
            names = ", ".join(param.name for param in known.values() if param.where == "query") or "none"
            raise Problem(HTTPStatus.BAD_REQUEST, f"unknown parameter {name!r:.60}; this operation has: {names}")
        if len(given.getall(name)) > 1:
            raise Problem(HTTPStatus.BAD_REQUEST, f"parameter {name} is given more than once")
    for param in known.values():
        text = route.get(param.name) if param.where == "path" else given.get(param.name)
        if text is None or text == "":
            if param.required or text == "":
                raise Problem(HTTPStatus.BAD_REQUEST, f"{param.name} is missing: {param.description}")
            continue
        try:
            values[param.name] = param.read(",".join(map(own, text.split(","))) if own and param.names else text)
        except ValueError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{param.name}={text:.60}: {error}") from error
    return values


def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error!s:.100}") from error
    if not isinstance(body, dict):
        raise Problem(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
    return body


def not_allowed(request: Request, methods: Iterable[str]) -> Problem:
    """Return the problem of a request with another method than these."""
    allowed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
    detail = f"{request.method:.20} is not allowed; allowed: {allowed}"
    return Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, {"Allow": allowed})
