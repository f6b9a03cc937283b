"""Atomic writes of files: a power cut leaves the whole of the new content, or what was there before."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(file: Path, content: bytes, part: str = "", mode: int = 0o666) -> None:
    """Write a file so that readers see all of it or its previous content, also after a crash.

    ``part`` is the name of the temporary file, by default ``.NAME.part``; it has to differ between concurrent writers. The mode is
    subject to the umask. `OSError` if the file cannot be written: no part of it remains.
    """
    temporary = file.with_name(part or f".{file.name}.part")
    try:
        _write(temporary, content, mode)
        temporary.rename(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(file.parent)


def make_atomically(file: Path, content: bytes) -> None:
    """Create a file that only its owner can read. `FileExistsError` if it exists, `OSError` if it cannot be written."""
    if file.exists():
        raise FileExistsError(file)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        _write(temporary, content, 0o600)
        os.link(temporary, file)  # which replaces no other one's
    finally:
        temporary.unlink(missing_ok=True)
    _sync(file.parent)


def _write(file: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _sync(directory: Path) -> None:
    """Have the names in a directory kept (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
