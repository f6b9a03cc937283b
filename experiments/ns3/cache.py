"""Outputs of the simulator by what decides them: the same settings and the same program give the same output again."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from pathlib import Path


def directory() -> Path:
    """Where outputs are kept: ``SOPA_CACHE``, or ``sopa`` in ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    if own := os.environ.get("SOPA_CACHE"):
        return Path(own) / "ns3"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sopa" / "ns3"


def key(program: str, text: str) -> str:
    """A name for a run.

    Parameters
    ----------
    program : str
        Digest of the program.
    text : str
        All its settings.

    Returns
    -------
    str
        SHA-256 of both, in hexadecimal.
    """
    return hashlib.sha256(f"{program}\n{text}".encode()).hexdigest()


class Cache:
    """A directory of outputs; anyone may delete files of it, or all of it, at any time.

    Parameters
    ----------
    where : Path
    """

    def __init__(self, where: Path) -> None:
        self.where = where

    def get(self, name: str) -> str | None:
        """What was kept under that name; None if nothing is there, or what is there is damaged: then it is taken away."""
        file = self._file(name)
        try:
            text = gzip.decompress(file.read_bytes()).decode()
        except FileNotFoundError:
            return None
        except (OSError, EOFError, UnicodeDecodeError, zlib.error):  # gzip's own checksum has seen it
            text = ""
        if not text:  # gzip takes an empty file for nothing at all
            file.unlink(missing_ok=True)
        return text or None

    def put(self, name: str, output: str) -> None:
        """Keep an output, in one step.

        Raises
        ------
        OSError
            If it cannot be written; nothing is left of it then.
        """
        self.where.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=self.where)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(gzip.compress(output.encode(), mtime=0))
                file.flush()
                os.fsync(file.fileno())
            Path(part).rename(self._file(name))
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise

    def _file(self, name: str) -> Path:
        return self.where / f"{name}.gz"
