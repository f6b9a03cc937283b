"""Atomic writes of files: a power cut leaves the whole of the new content, or what was there before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp


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
    # not named by the process id: two containers that share the directory may have the same
    descriptor, name = mkstemp(".part", f".{file.name}.", file.parent)
    try:
        _fill(descriptor, content)
        os.link(name, file)  # which replaces no other one's
    finally:
        os.unlink(name)
    _sync(file.parent)


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """Yield a new name for what another program writes, such as a compiler; at the end it takes the place of ``file``.

    If the block raises, ``file`` is as before. No other process has the name, not even one in another PID namespace.
    """
    with TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as directory:
        fresh = Path(directory) / file.name
        yield fresh
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(file)
    _sync(file.parent)


def _write(file: Path, content: bytes, mode: int) -> None:
    _fill(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), content)


def _fill(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as opened:
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
