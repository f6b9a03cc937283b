"""A client of the controller: the URLs of channels, tokens, TLS, and a channel from its opening to its end, whatever that is.

With several URLs (`addresses`) a client has to notice that the other end is gone. A process that was killed closes its channels.
One that is stopped, or cut off by the network, says nothing, and TCP would wait for minutes: so the client pings.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from sopa_ryu.channel.addresses import Loss, patience_seconds, ping_seconds
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.protocol import MAX_MESSAGE_BYTES
from sopa_ryu.runtime import certificates

CLOSE_SECONDS = 1.0
"""With several URLs: how long the answer to a close is awaited before the next one is asked."""
PING_SECONDS = 20.0
"""With one URL: an end that has not answered a ping of the library's after so long is left."""
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class ClientOptionError(RuntimeError):
    """The controller's URL is malformed, or a file for the connection cannot be read."""


class _Connect(connect):
    """The library's, which would follow a redirect anywhere, with the token: that is for the URL that is configured."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none."""
        return exc


def channel_url(controller: str, target: str) -> str:
    """Return the WebSocket URL of a controller's channel.

    Args:
        target: Path and query.

    Raises:
        ClientOptionError: If the controller's URL is malformed.

    >>> channel_url("https://192.0.2.1:8443/", "/sopa/v1/arbiter?term=7")
    'wss://192.0.2.1:8443/sopa/v1/arbiter?term=7'
    """
    what = f"{controller!r} is not a controller URL: write http://ADDRESS:8080"
    try:
        parts = urlsplit(controller)
        _ = parts.port  # it is read only when it is asked for
    except ValueError as error:
        raise ClientOptionError(f"{what} ({error})") from error
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ClientOptionError(what)
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, parts.path.rstrip("/") + target, "", ""))


def authorities(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS settings of a client; `ClientOptionError` if the authorities cannot be read."""
    certificates.use(ca_file)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ClientOptionError(f"the authorities cannot be read from {ca_file}: {error}") from error


def _refusal(error: InvalidStatus) -> str:
    """Return the detail of the problem document with which the controller rejected a channel."""
    try:
        return str(json.loads(error.response.body)["detail"])
    except (ValueError, KeyError, TypeError):
        return str(error)


@dataclass(frozen=True)
class ControllerAddress:
    """A controller, and how its channels are opened.

    Args:
        url: ``http://192.0.2.1:8080``.
        token: Return the token, read anew for each connection; None for none.
        ca_file: The authorities, in PEM, that may have signed the certificate of an https URL; the system's by default.
    """

    url: str
    token: Callable[[], str | None]
    ca_file: Path | None = None

    def check(self) -> None:
        """Raise `ClientOptionError` for what no connection could be opened with."""
        channel_url(self.url, "")
        self.tls()

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings; None without TLS."""
        return authorities(self.ca_file) if urlsplit(self.url).scheme in ("https", "wss") else None

    def headers(self) -> dict[str, str]:
        """Return the headers of a request for a channel."""
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def attend(
        self,
        target: str,
        work: Callable[[ClientConnection], Awaitable[str]],
        open_seconds: float,
        *,
        hosts: Callable[[], int] | None = None,
        ping: float = PING_SECONDS,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> Loss:
        """Open a channel, and work on it until it ends.

        Args:
            target: Path and query.
            work: Reads the channel, an asynchronous iterator over messages; returns why the client leaves it, or nothing. What
                it raises because the channel has ended, or a message is malformed, is the loss.
            open_seconds: How long the channel may take to open.
            hosts: For a client with other URLs: how many hosts the fabric has, which decides how often it pings.
            ping: Without `hosts`: how often, and how long an answer is awaited.
        """
        loop = asyncio.get_running_loop()
        opened_at, problem, cause = None, "", None
        more: dict[str, Any] = {"ping_interval": ping, "ping_timeout": ping}
        if hosts is not None:
            more = {"ping_interval": None, "close_timeout": CLOSE_SECONDS}
        try:
            async with _Connect(
                channel_url(self.url, target),
                additional_headers=self.headers(),
                ssl=self.tls(),
                open_timeout=open_seconds,
                max_size=max_bytes,
                compression=None,
                proxy=None,  # one in the environment is for other networks, not for a controller
                **more,
            ) as channel:
                opened_at = loop.time()
                async with nullcontext() if hosts is None else _watched(channel, hosts):
                    problem = await work(channel) or "the controller closed the connection"
        except (OSError, ClientOptionError, ProtocolError, WebSocketException) as error:
            cause = error
            problem = _refusal(error) if isinstance(error, InvalidStatus) else str(error) or type(error).__name__
        return Loss(problem, None if opened_at is None else loop.time() - opened_at, cause)


@asynccontextmanager
async def _watched(channel: ClientConnection, hosts: Callable[[], int]) -> AsyncIterator[None]:
    """Ping the other end while the context lasts; `TimeoutError` if the channel was broken off because it did not answer."""
    pinging = asyncio.create_task(_ping(channel, hosts))
    try:
        yield
    except ConnectionClosed as error:
        if pinging.done() and (silent := pinging.exception()):
            raise silent from error
        raise
    finally:
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)


async def _ping(channel: ClientConnection, hosts: Callable[[], int]) -> None:
    """Ping until the channel has ended, or there is no answer: it is broken off then."""
    while True:
        await asyncio.sleep(ping_seconds(hosts()))
        patience = patience_seconds(hosts())
        answered = asyncio.ensure_future(_answer(channel))
        # not asyncio.timeout: after a pause of this process the answer counts, if it is there
        try:
            await asyncio.wait([answered], timeout=patience)
            if not answered.done():
                channel.transport.abort()
                raise TimeoutError(f"it has not answered a ping for {patience:g} s")
        finally:
            answered.cancel()
        if not answered.result():
            return


async def _answer(channel: ClientConnection) -> bool:
    """Wait for the answer to a ping; return False if the channel is closed."""
    try:
        await (await channel.ping())
    except ConnectionClosed:
        return False
    return True
