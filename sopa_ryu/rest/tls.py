"""TLS of the servers of REST and channels."""

from __future__ import annotations

import ssl
from pathlib import Path


class CertificateError(RuntimeError):
    """A certificate or key cannot be used; the text says which and why."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the server's TLS context, for TLS 1.2 or later.

    Args:
        certificate, key: In PEM; the file may contain intermediate certificates after the server's own.

    Raises:
        CertificateError: If they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{certificate} and {key} cannot be used for TLS: {error}") from error
    return context
