"""The controller as its clients reach it: the URLs of its channels, tokens, TLS, and why it refuses a connection."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from websockets import InvalidStatus


class ClientOptionError(RuntimeError):
    """The controller's URL is malformed, or a file for the connection cannot be read."""


def channel_url(controller: str, path: str, query: str = "") -> str:
    """Return the WebSocket URL of a controller's channel.

    Raises:
        ClientOptionError: If the controller's URL is malformed.

    >>> channel_url("https://192.0.2.1:8443/", "/sopa/v1/arbiter")
    'wss://192.0.2.1:8443/sopa/v1/arbiter'
    """
    return _url(controller, {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}, path, query)


def _url(controller: str, schemes: Mapping[str, str], path: str, query: str = "") -> str:
    what = f"{controller!r} is not a controller URL: write http://ADDRESS:8080"
    try:
        parts = urlsplit(controller)
        _ = parts.port  # it is read only when it is asked for
    except ValueError as error:
        raise ClientOptionError(f"{what} ({error})") from error
    scheme = schemes.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ClientOptionError(what)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + path, query, ""))


def tls(controller: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """Return the TLS settings for a controller; None without TLS. `ClientOptionError` if the authorities cannot be read."""
    if urlsplit(controller).scheme not in ("https", "wss"):
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ClientOptionError(f"the authorities cannot be read from {ca_file}: {error}") from error


def refusal(error: InvalidStatus) -> str:
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

    def channel(self, path: str, query: str = "") -> str:
        """Return the WebSocket URL of a channel."""
        return channel_url(self.url, path, query)

    def resource(self, path: str) -> str:
        """Return the URL of a resource.

        >>> ControllerAddress("wss://192.0.2.1", lambda: None).resource("/sopa/v1/links")
        'https://192.0.2.1/sopa/v1/links'
        """
        return _url(self.url, {"http": "http", "https": "https", "ws": "http", "wss": "https"}, path)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings; None without TLS."""
        return tls(self.url, self.ca_file)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request for a channel."""
        token = self.token()
        return {} if token is None else {"Authorization": f"Bearer {token}"}
