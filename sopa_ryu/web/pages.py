"""The live page at ``/`` and its files: read once at the start, served from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from webob import Request, Response

DIRECTORY = Path(__file__).parent / "static"
INDEX = "index.html"
PREFIX = "/web/"

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    # Only files of this server: the page shows names that strangers chose (a wrong neighbour's LLDP), and even an error in the
    # page must not turn text into a script. Trusted Types reject innerHTML and similar sinks.
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # cached, but revalidated each time: after an update of the controller no browser mixes old modules with new ones
    "Cache-Control": "no-cache",
}


class PageError(RuntimeError):
    """The page's files are missing: the installation is incomplete."""


def pages(directory: Path = DIRECTORY) -> dict[str, Callable[[Request], Response]]:
    """Return what answers a GET or HEAD request for each path of the page: its index at ``/``, the other files at ``/web/NAME``.

    Files with the suffix of a web page's parts are served. `PageError` if the index is missing.
    """
    files = sorted(path for path in directory.rglob("*") if path.suffix in _TYPES)
    served = {PREFIX + path.relative_to(directory).as_posix(): _file(path) for path in files}
    index = served.pop(PREFIX + INDEX, None)
    if index is None:
        raise PageError(f"{directory / INDEX} is missing: install the project again")
    return {"/": index, **served}


def _file(path: Path) -> Callable[[Request], Response]:
    kind, data = _TYPES[path.suffix], path.read_bytes()
    etag = hashlib.sha256(data).hexdigest()[:16]

    def answer(request: Request) -> Response:
        if etag in request.if_none_match:
            response = Response(status=HTTPStatus.NOT_MODIFIED.value, etag=etag)
        else:
            response = Response(data, content_type=kind, charset="UTF-8", etag=etag)
        response.headers.update(_HEADERS)
        return response

    return answer
