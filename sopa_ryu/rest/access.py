"""Who may use REST and channels: TLS, the pages that may open the feed, and bearer tokens (RFC 6750).

Tokens are for write requests and for the agents' channel, where it is wanted for reads as well, in files that only their owner
can read. Pages are judged by the exact origin (RFC 6454), and every request by the name under which the controller was asked: a
foreign page in an operator's browser has another origin; one whose name was rebound to the controller's address (DNS rebinding)
has a ``Host`` that is not the controller's. An address cannot be rebound, so that every address is accepted as ``Host``; of names
only ``localhost``, this machine's, and those that the operator's options name. Over TLS the browser has found the name in the
certificate.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import stat
from collections.abc import Iterable
from http import HTTPStatus
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from webob import Request

from sopa_ryu.channel.host_tokens import arbiter_token, host_token, relay_token
from sopa_ryu.rest.operations import Problem
from sopa_ryu.rest.operators import Operators, Role
from sopa_ryu.runtime.atomic_file import make_atomically
from sopa_ryu.runtime.clients import is_address, normal_origin

LOG = logging.getLogger("sopa.rest")

OPERATOR = "operator"
"""Who has the operator token, as events name the owner."""
OPERATORS, AGENTS, SECRET = "token", "agent-token", "agent-secret"
_BYTES = 32
_REALM = {"WWW-Authenticate": 'Bearer realm="sopa"'}


class Origins:
    """The names of this server, and the origins whose pages may open the feed: its own, and those ``listed``, such as a proxy's.

    Args:
        urls: Where it listens, and where others reach it: their hosts are names of this server, too.
        option: What lists an origin, for those who are rejected.
    """

    def __init__(self, listed: Iterable[str] = (), urls: Iterable[str] = (), option: str = "--sopa-origin") -> None:
        self._listed = frozenset(normal_origin(origin) for origin in listed)
        self._names = {"localhost", socket.gethostname().lower()}
        self._names |= {str(urlsplit(url).hostname) for url in (*self._listed, *urls)}
        self._option = option

    def check_host(self, request: Request) -> None:
        """Raise `Problem` (403) if the name in ``Host`` is another server's.

        Without the header a request is no browser's, nor is one for a WebSocket without ``Origin``: agents use any name.
        """
        if "Host" not in request.headers or ("Upgrade" in request.headers and "Origin" not in request.headers):
            return
        own = self._own(request)
        name = str(urlsplit(own).hostname)
        if request.scheme == "http" and not is_address(name) and name not in self._names:
            text = f"{name:.60} is not a name of this controller: add its origin by {self._option} {own:.80}"
            raise Problem(HTTPStatus.FORBIDDEN, text)

    def check_page(self, request: Request) -> None:
        """Raise `Problem` (403) if a request is of a page that may not open the feed. Without ``Origin`` it is no browser's."""
        own, origin = self._own(request), request.headers.get("Origin")
        if origin is None:
            return
        try:
            asked = normal_origin(origin)
        except ValueError:
            asked = ""
        if not asked or (asked != own and asked not in self._listed):
            foreign = urlsplit(asked).netloc or origin
            raise Problem(HTTPStatus.FORBIDDEN, f"a page from {foreign:.60} may not read this controller's feed")

    @staticmethod
    def _own(request: Request) -> str:
        try:
            return normal_origin(f"{request.scheme}://{request.headers.get('Host', '')}")
        except ValueError as error:
            raise Problem(HTTPStatus.FORBIDDEN, "the header Host is missing or malformed") from error


class TokenError(RuntimeError):
    """A token file cannot be used; the text says why and what to do."""


class Tokens:
    """The operator token, which write requests need, and those that an agent's channel needs; the operator token opens both.

    An agent's channel is opened by the token of its host, which is derived from the fabric's secret (`host_tokens`), and by the
    agent token, which is good for every host. `TokenError` if a file exists but is empty, or others than its owner can read it.

    Args:
        directory: It has the files ``token``, ``agent-token`` and ``agent-secret``, which the first start creates.
        host_tokens_only: The agent token opens nothing.
        read_token: Reads need a token, too.
        make: False for a process that only checks the tokens of another: what is missing is not created, and opens nothing.

    Attributes:
        secret: The fabric's, from which tokens are derived; None if it is missing.
    """

    def __init__(self, directory: Path, *, host_tokens_only: bool = False, read_token: bool = False, make: bool = True) -> None:
        self.directory = directory
        self._read_token = read_token
        self._host_tokens_only = host_tokens_only
        load = _read_or_make if make else _read_if_there
        self._operators = load(directory / OPERATORS)
        self._agents = load(directory / AGENTS)
        self.secret = load(directory / SECRET)
        self._named = Operators(directory)

    def check_operator(self, request: Request, role: Role = Role.OPERATE) -> str:
        """Return whose token the request has; raise `Problem` for none (401), or a named one without the role (403)."""
        named = self._named.find(_given(request))
        if named is None:
            self._check(request, [self._operators], OPERATORS, "write requests need")
            return OPERATOR
        name, its = named
        if its < role:
            text = f"the token of {name} allows to {its.name.lower()} only: this needs a token with the role {role.name.lower()}"
            raise Problem(HTTPStatus.FORBIDDEN, text)
        return name

    def check_reader(self, request: Request) -> None:
        """Raise `Problem` (401) where reads need a token, and the request has neither an operator's nor a relay's."""
        if self._read_token and self._named.find(_given(request)) is None:
            found = "sopa token --operator NAME --role read makes one, or it is in"
            self._check(request, [self._operators, self.relay_token], OPERATORS, "reads need", found)

    def check_agent(self, request: Request, address: IPv4Address) -> None:
        """Raise `Problem` (401) unless the request has the host's own token, a valid agent token or the operator token."""
        own = host_token(self.secret, address) if self.secret else None
        if self._host_tokens_only:
            found = f"sopa token {address} prints it, from"
            self._check(request, [own, self._operators], SECRET, "the agents' channel needs", found)
        else:
            self._check(request, [own, self._agents, self._operators], AGENTS, "the agents' channel needs")

    def check_arbiter(self, request: Request) -> None:
        """Raise `Problem` (401) unless the request has the arbiter's token or the operator token."""
        own = arbiter_token(self.secret) if self.secret else None
        found = "sopa token --arbiter prints it, from"
        self._check(request, [own, self._operators], SECRET, "the arbiter's channel needs", found)

    def check_relay(self, request: Request) -> None:
        """Raise `Problem` (401) unless the request has the relays' token or the operator token."""
        found = "a relay derives it from"
        self._check(request, [self.relay_token, self._operators], SECRET, "the relays' channel needs", found)

    @property
    def relay_token(self) -> str | None:
        """The token with which a relay opens its channel; None without a secret."""
        return relay_token(self.secret) if self.secret else None

    def is_operator(self, request: Request) -> bool:
        """Return whether the request has the operator token, or a named one."""
        try:
            self.check_operator(request, Role.READ)
        except Problem:
            return False
        return True

    def _check(self, request: Request, tokens: list[str | None], file: str, what: str, found: str = "the token is in") -> None:
        where = self.directory / file
        known = [token.encode() for token in tokens if token]
        if not known:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{what} a bearer token, but {where} could not be written or is missing: see the log of this server",
            )
        # latin-1, as WSGI prescribes: it maps every byte
        sent = _given(request).encode("latin-1", "replace")
        if not any(hmac.compare_digest(sent, token) for token in known):
            raise Problem(
                HTTPStatus.UNAUTHORIZED,
                f"{what} the header Authorization: Bearer TOKEN; {found} {where} on the controller's host",
                _REALM,
            )


PROTOCOL = "sopa"
"""The subprotocol of a page's feed. A browser sends no other header with a WebSocket: the token is a second subprotocol,
``bearer.TOKEN``, encoded as in a URL."""


def _given(request: Request) -> str:
    """Return the bearer token of a request; nothing without one."""
    own, _, offered = request.headers.get("Sec-WebSocket-Protocol", "").partition(", bearer.")
    if own == PROTOCOL:
        return unquote(offered)
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


def _read_or_make(file: Path) -> str | None:
    """Return the token of a file, which is created if it is missing; log an error and return None if it cannot be."""
    try:
        return _make(file)
    except FileExistsError:
        return _read(file)
    except OSError as error:
        LOG.error("%s cannot be written: %s. Requests that require it are rejected until a restart", file, error.strerror)
        return None


def _read_if_there(file: Path) -> str | None:
    try:
        file.stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # reading it says why
    return _read(file)


def _make(file: Path) -> str:
    token = secrets.token_urlsafe(_BYTES)
    make_atomically(file, f"{token}\n".encode())
    return token


def _read(file: Path) -> str:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        token = file.read_text(encoding="ascii").strip()
    except PermissionError as error:
        raise TokenError(f"{file} cannot be read ({error}): chown it to the user of this controller") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"{file} cannot be read ({error}): remove it. The next start creates a new one") from None
    if mode & 0o077:
        raise TokenError(f"{file} can be read by other users than its owner (mode {mode:04o}): chmod 600 {file}")
    if not token:
        raise TokenError(f"{file} is empty: remove it. The next start creates a new one")
    return token
