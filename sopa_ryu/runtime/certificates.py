"""TLS contexts that follow their files: a renewed certificate is used from the next connection on, without a restart."""

from __future__ import annotations

import logging
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

LOG = logging.getLogger("sopa.tls")
LOOK_SECONDS = 1.0
"""The least time between two looks at the files, which connections pay for."""


_used: dict[Path, tuple[tuple[int, ...], float | None]] = {}
"""By file of this process what it looked like last, and when its certificate ends."""


class CertificateError(RuntimeError):
    """A certificate, key or authority cannot be used; the text says which and why."""


class Certificates:
    """The TLS context of some files, made again when one of them has changed.

    Files that do not fit each other yet, as while they are being replaced, leave the former context in use; the log says so once.
    Call it for each connection. `CertificateError` at the start only.

    Args:
        make: Make a context of the files; `OSError`, which is also what `ssl` raises, if they cannot be used.
        files: In PEM. Those of a certificate may contain intermediate ones after it.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], *files: str | Path | None) -> None:
        self._make = make
        self._files = [Path(file) for file in files if file is not None]
        use(*self._files)
        self._seen = self._look()
        self._next = time.monotonic() + LOOK_SECONDS
        try:
            self._context = make()
        except OSError as error:
            raise CertificateError(f"{self} cannot be used for TLS: {error}. sopa pki makes them") from error

    def __call__(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._renew()
        return self._context

    def __str__(self) -> str:
        return " and ".join(map(str, self._files))

    def _renew(self) -> None:
        try:
            self._context = self._make()
        except OSError as error:
            text = "%s have changed and cannot be used for TLS (%s). The former ones stay in use until these are right"
            LOG.error(text, self, error)
        else:
            LOG.info("%s have changed: new connections use them", self)

    def _look(self) -> list[tuple[int, ...]]:
        return [*map(_signature, self._files)]


def _signature(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()  # a file that is away is one that has changed
    return found.st_ino, found.st_size, found.st_mtime_ns


def use(*files: Path | None) -> None:
    """Note that this process uses files for TLS, so that `ends` has their certificates."""
    for file in filter(None, files):
        _used.setdefault(file, ((), None))


def ends() -> dict[str, float]:
    """Return when the first certificate of each file that this process uses for TLS ends, as Unix time."""
    for file, (seen, _end) in _used.items():
        if (now := _signature(file)) != seen:
            _used[file] = now, _end_of(file)
    return {str(file): end for file, (_seen, end) in _used.items() if end is not None}


def _end_of(file: Path) -> float | None:
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(file)]
    try:
        return ssl.cert_time_to_seconds(subprocess.run(command, capture_output=True, text=True, check=True).stdout[9:].strip())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # a key, or a file that is away


def server(certificate: str | Path, key: str | Path, authorities: str | Path | None = None) -> Certificates:
    """Return the context of a server, for TLS 1.2 or later; with authorities clients have to show a certificate of theirs."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        if authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authorities)
        return context

    return Certificates(make, certificate, key, authorities)


def switch_client(authorities: str | Path, certificate: str | Path | None, key: str | Path | None) -> Certificates:
    """Return the context of a client of switches' databases.

    Like Open vSwitch itself, it verifies who signed a switch's certificate but not the name in it, which `topologies.ovsdb.Tls`
    does where certificates are bound.
    """

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authorities)
        context.check_hostname = False
        if certificate is not None and key is not None:
            context.load_cert_chain(certificate, key)
        return context

    return Certificates(make, authorities, certificate, key)
