"""Atomic writes of files."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(file: Path, content: bytes, part: str = "") -> None:
    """Write a file so that readers see all of it or its previous content, also after a crash.

    ``part`` is the name of the temporary file, by default ``.NAME.part``; it has to differ between concurrent writers. `OSError` if
    the file cannot be written: no part of it remains.
    """
    temporary = file.with_name(part or f".{file.name}.part")
    try:
        with temporary.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.rename(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
