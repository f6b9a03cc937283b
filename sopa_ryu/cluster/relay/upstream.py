"""Reads of REST that a relay asks of the leader, else of another member, once for all readers that wait or come within a moment."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from webob import Request, Response

from sopa_ryu.rest.operations import Problem

LOG = logging.getLogger("sopa.relay")

SHARE_SECONDS = 0.5
"""An answer is given to all who ask within this time; then the controller is asked whether it has changed."""
CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 20.0
AT_ONCE = 16
MAX_WAITING = 256
"""Different requests that may wait for controllers; others are answered 503."""
MAX_BODY_BYTES = 1 << 25
MAX_KEPT_BYTES = 8 << 20
MAX_KEPT = 256
"""Answers that are kept; a longer one than an eighth of `MAX_KEPT_BYTES` is shared by those who wait for it only."""
_PASSED = ("content-type", "etag", "link", "retry-after", "cache-control")


class Shared(NamedTuple):
    """A controller's answer: its headers that concern readers, its ETag with quotes, and when it was asked for (monotonic)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    etag: str | None
    at: float

    def response(self, request: Request) -> Response:
        """Return it as the answer to one reader."""
        if self.status == HTTPStatus.OK and self.etag is not None and self.etag.strip('"') in request.if_none_match:
            return Response(status=HTTPStatus.NOT_MODIFIED.value, headerlist=[("ETag", self.etag)])
        return Response(self.body, status=self.status, headerlist=list(self.headers))


class NoControllerError(Problem):
    """No controller answers."""

    def __init__(self, problems: Sequence[str]) -> None:
        asked = "; ".join(problems) or "none is known to the engine"
        text = f"no controller of the cluster answers this relay ({asked}). Agents keep their paths. Try again later"
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "2"})


class Upstream:
    """The controllers, as their readers' relay asks them; ``controllers`` returns their URLs, the leader's first.

    ``token`` is sent to all of them.

    ``counted`` are requests of readers by how they were answered: ``shared``, ``unchanged``, ``fetched``, ``failed``.
    """

    def __init__(
        self, controllers: Callable[[], list[str]], name: str, context: Callable[[], ssl.SSLContext], token: str | None = None
    ) -> None:
        self.counted: Counter[str] = Counter(shared=0, unchanged=0, fetched=0, failed=0)
        self.via = f"sopa-relay-{name}"
        self._controllers = controllers
        self._context = context
        self._own = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._kept: dict[str, Shared] = {}
        self._kept_bytes = 0
        self._flights: dict[str, asyncio.Task[Shared]] = {}
        self._unreachable: set[str] = set()

    async def close(self) -> None:
        for task in self._flights.values():
            task.cancel()
        for client in self._clients.values():
            await client.aclose()

    async def get(self, target: str) -> Shared:
        """Return the answer to a GET of a path and query, as the reader has sent them.

        Raises `Problem`: 503 if no controller answers, or too many requests wait; 502 if the answer is too long.
        """
        kept = self._kept.get(target)
        if kept is not None and time.monotonic() - kept.at < SHARE_SECONDS:
            self.counted["shared"] += 1
            return kept
        flight = self._flights.get(target)
        if flight is None:
            if len(self._flights) >= MAX_WAITING:
                raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait for controllers: try again later",
                              {"Retry-After": "1"})  # fmt: skip
            flight = self._flights[target] = asyncio.get_running_loop().create_task(self._fetch(target, kept))
            flight.add_done_callback(lambda done: self._landed(target, done))
        else:
            self.counted["shared"] += 1
        return await asyncio.shield(flight)

    def _landed(self, target: str, done: asyncio.Task[Shared]) -> None:
        del self._flights[target]
        if not done.cancelled():
            done.exception()  # its readers, if they are still there, have it

    async def _fetch(self, target: str, kept: Shared | None) -> Shared:
        problems = []
        for url in self._controllers():
            began = time.monotonic()
            try:
                found = await self._ask(url, target, kept)
            except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, ValueError) as error:
                problems.append(f"{url}: {error or type(error).__name__}")
                self._say(url, str(error) or type(error).__name__)
                continue
            self._unreachable.discard(url)
            if found is None and kept is not None:
                self.counted["unchanged"] += 1
                found = kept._replace(at=began)
            else:
                self.counted["fetched"] += 1
            assert found is not None
            self._keep(target, found)
            return found
        self.counted["failed"] += 1
        raise NoControllerError(problems)

    async def _ask(self, url: str, target: str, kept: Shared | None) -> Shared | None:
        """Ask one controller; return None if what is kept is still right."""
        headers = {"Via": f"1.1 {self.via}", "Accept-Encoding": "identity", **self._own}
        if kept is not None and kept.etag is not None:
            headers["If-None-Match"] = kept.etag
        began, body = time.monotonic(), bytearray()
        async with self._client(url).stream("GET", url.rstrip("/") + target, headers=headers) as response:
            if response.status_code == HTTPStatus.NOT_MODIFIED and kept is not None:
                return None
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise Problem(HTTPStatus.BAD_GATEWAY, f"the controller's answer has more than {MAX_BODY_BYTES} bytes")
        passed = tuple((name.title(), response.headers[name]) for name in _PASSED if name in response.headers)
        return Shared(response.status_code, passed, bytes(body), response.headers.get("etag"), began)

    def _client(self, url: str) -> httpx.AsyncClient:
        scheme = urlsplit(url).scheme
        if scheme not in self._clients:
            self._clients[scheme] = httpx.AsyncClient(
                # without TLS False, or the machine's certificates would be read for nothing
                verify=self._context() if scheme == "https" else False,
                trust_env=False,
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=10.0),
            )
        return self._clients[scheme]

    def _keep(self, target: str, found: Shared) -> None:
        """Keep an answer for those who come next, and forget those that were asked for longest ago."""
        former = self._kept.pop(target, None)
        self._kept_bytes -= len(former.body) if former is not None else 0
        if len(found.body) > MAX_KEPT_BYTES // 8 or found.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        self._kept[target] = found
        self._kept_bytes += len(found.body)
        while len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.pop(next(iter(self._kept))).body)

    def _say(self, url: str, problem: str) -> None:
        if url not in self._unreachable:
            self._unreachable.add(url)
            LOG.warning("controller %s does not answer: %s. Another member answers readers, or they get 503. Check the controller "
                        "and the network to it", url, problem)  # fmt: skip
