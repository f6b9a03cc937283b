"""An authority and certificates of one's own, by openssl, as docs/security.md makes them."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self._key, "-out", self.certificate,
                 "-days", "7", "-subj", f"/CN=SOPA {name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip

    def sign(self, name: str, address: str = "127.0.0.1") -> Certificate:
        key, request, certificate = (self.directory / f"{name}.{end}" for end in ("key", "csr", "pem"))
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self.directory / f"{name}.ext"
        # Python 3.13 asks for the key identifier, and for the authority's key usage
        extensions.write_text(f"subjectAltName=IP:{address}\nauthorityKeyIdentifier=keyid\n")
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 "-days", "7", "-extfile", extensions, "-out", certificate)  # fmt: skip
        return Certificate(certificate, key)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
