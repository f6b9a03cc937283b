"""Who may change something: bearer tokens (RFC 6750) in files that only their owner can read."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
from http import HTTPStatus
from pathlib import Path

from webob import Request

from sopa_ryu.rest.operations import Problem

LOG = logging.getLogger("sopa.rest")

OPERATORS, AGENTS = "token", "agent-token"
_BYTES = 32
_REALM = {"WWW-Authenticate": 'Bearer realm="sopa"'}


class TokenError(RuntimeError):
    """A token's file cannot be relied on; the text says why and what to do."""


class Tokens:
    """The operators' token, for changes, and the agents', for their channel; the operators' opens the channel, too.

    Parameters
    ----------
    directory : Path
        Where they are, in the files ``token`` and ``agent-token``, each made at the first start.

    Raises
    ------
    TokenError
        If a file is there but empty, or others than its owner can read it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._operators = _read_or_make(directory / OPERATORS)
        self._agents = _read_or_make(directory / AGENTS)

    def check_operator(self, request: Request) -> None:
        """`Problem` (401) unless the request carries the operators' token."""
        self._check(request, [self._operators], OPERATORS, "changes need")

    def check_agent(self, request: Request) -> None:
        """`Problem` (401) unless the request carries the agents' token, or the operators'."""
        self._check(request, [self._agents, self._operators], AGENTS, "the agents' channel needs")

    def _check(self, request: Request, tokens: list[str | None], file: str, what: str) -> None:
        where = self.directory / file
        known = [token.encode() for token in tokens if token]
        if not known:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{what} a bearer token, but {where} could not be written: see the log"
            )
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        # latin-1, as WSGI has it: any byte has a place there
        sent = given.strip().encode("latin-1", "replace")
        if kind.lower() != "bearer" or not any(hmac.compare_digest(sent, token) for token in known):
            raise Problem(
                HTTPStatus.UNAUTHORIZED,
                f"{what} the header Authorization: Bearer TOKEN; the token is in {where} on the controller's machine",
                _REALM,
            )


def _read_or_make(file: Path) -> str | None:
    """A token from its file, which is made if it is missing; None, said in the log, if it cannot be."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(file)
    except OSError as error:
        LOG.error("%s: %s: who needs this token is refused until the next start", file, error.strerror)
        return None
    token = secrets.token_urlsafe(_BYTES)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token + "\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        file.unlink(missing_ok=True)
        LOG.error("%s: %s: who needs this token is refused until the next start", file, error.strerror)
        return None
    return token


def _read(file: Path) -> str:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"{file} cannot be read ({error}): remove it, and the next start makes another") from None
    if mode & 0o077:
        raise TokenError(f"{file} can be read by others than its owner (mode {mode:04o}): chmod 600 {file}")
    if not token:
        raise TokenError(f"{file} is empty: remove it, and the next start makes another")
    return token
