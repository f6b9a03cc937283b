"""Operations of the REST interface as data, from which both dispatch and the OpenAPI document are made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from sopa_ryu.rest.operators import Role

ROOT = "/sopa/v1"
PROBLEM = "application/problem+json"
MAX_ITEMS = 1000
"""The length of a list's longest page."""


class Problem(Exception):
    """A rejected request: it is answered by a problem document (RFC 9457).

    ``detail`` is the reason, and what a correct request looks like. ``headers`` are further ones of the answer, such as ``Allow``.
    """

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


def problem_body(problem: Problem) -> bytes:
    """Return the problem document."""
    body = {"type": "about:blank", "title": problem.status.phrase, "status": problem.status.value, "detail": problem.detail}
    return encoded(body)


def encoded(body: object) -> bytes:
    r"""Return JSON. A lone surrogate, which a client may have written as ``\ud800``, stays escaped: UTF-8 has none.

    >>> encoded({"reason": "caf\u00e9"}), encoded({"reason": "\ud800"})
    (b'{"reason":"caf\xc3\xa9"}', b'{"reason": "\\ud800"}')
    """
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


class Param(NamedTuple):
    """A parameter of an operation."""

    name: str
    where: str
    """``query`` or ``path``."""
    schema: Mapping[str, Any]
    description: str
    """Its meaning and its default."""
    read: Callable[[str], Any]
    """Parses the text; raises `ValueError` with the expected form."""
    required: bool = False
    names: bool = False
    """Whether it has names of elements, separated by commas: ``read`` gets own names for aliases."""


class Listing(NamedTuple):
    """An answer that contains a list, of which a request gets a page."""

    body: dict[str, Any]
    """The rest of the answer."""
    key: str
    total: int
    items: Iterable[Any]
    describe: Callable[[Any], Any] = lambda item: item
    """Converts an item for the answer; called only for the items of the page."""

    def page(self, offset: int, limit: int) -> dict[str, Any]:
        """Return the answer with at most ``limit`` items, from ``offset`` on."""
        items = [self.describe(item) for item in islice(self.items, offset, offset + limit)]
        return {**self.body, "total": self.total, "offset": offset, self.key: items}


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    """The path in OpenAPI's form, ``/sopa/v1/drains/{name}``."""
    name: str
    """OpenAPI's operationId."""
    summary: str
    answer: Callable[..., Any]
    """Called with the parameters by name; returns the body or a `Listing`."""
    schema: str
    """The answer's schema in `schemas.SCHEMAS`."""
    params: tuple[Param, ...] = ()
    problems: Mapping[HTTPStatus, str] = {}
    """The operation's own problems, each with its condition."""
    body: str = ""
    """The schema in `schemas.SCHEMAS` of the JSON object that a request has, which ``answer`` gets as its argument ``body``; none
    by default."""
    status: HTTPStatus = HTTPStatus.OK
    token: bool = False
    role: Role = Role.OPERATE
    """The least one of a named token."""
    actor: bool = False
    """Whether ``answer`` gets as its argument ``actor`` whose token the request has, and from where."""
    listed: bool = False
    costly: bool = False
    """Whether the answer costs so much that requests without the operator token share it (`sopa_ryu.rest.application`)."""


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() also accepts spaces, underscores, a sign and digits of other scripts
        if not (text.isascii() and text.isdigit()) or len(text) > 12 or not least <= int(text) <= most:
            raise ValueError(f"write a whole number from {least} to {most}")
        return int(text)

    return read


MAX_TIME = 9_999_999_999
"""Seconds since 1970, in the year 2286."""


def seconds(text: str) -> float:
    """Return a time in seconds since 1970; raises `ValueError`."""
    if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", text) or not 0 <= float(text) <= MAX_TIME:
        raise ValueError("write seconds since 1970, as in 1764160000.5")
    return float(text)


def number(name: str, description: str, least: int, most: int, where: str = "query") -> Param:
    """Return a parameter that is a whole number from ``least`` to ``most``."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Param(name, where, schema, description, _number(least, most))


PAGE = (
    number("offset", "Index of the first item; 0 by default.", 0, 10**9),
    number("limit", f"Maximum number of items; {MAX_ITEMS} by default.", 1, MAX_ITEMS),
)
