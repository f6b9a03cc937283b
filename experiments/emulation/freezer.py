"""Processes that stand still all at once, as on a machine that gives them no processor: a cgroup that is frozen (cgroup v2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from sopa_ryu.agent.kernel.cgroup import open_root


class Freezer:
    """A cgroup of its own while the context lasts; what is in it at the end goes on outside.

    Raises:
        AttachError: On entering, if the kernel has no cgroup v2, or does not let this process mount it.
    """

    def __enter__(self) -> Freezer:
        self._fd = open_root()
        self._root = Path(f"/proc/{os.getpid()}/fd/{self._fd}")
        # not named by the process id, which another lab's PID namespace has, too
        self._group = Path(mkdtemp(prefix="sopa-", dir=self._root))
        return self

    def __exit__(self, *_exception: object) -> None:
        self._freeze(False)
        for pid in (self._group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (self._root / "cgroup.procs").write_text(pid)
        self._group.rmdir()
        os.close(self._fd)

    def enter(self) -> None:
        """Put this process, and those that it starts from now on, into the group."""
        (self._group / "cgroup.procs").write_text("0")

    def leave(self) -> None:
        """Take this process out; those that it has started stay."""
        (self._root / "cgroup.procs").write_text("0")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all processes of the group stand still meanwhile."""
        self._freeze(True)
        try:
            yield
        finally:
            self._freeze(False)

    def _freeze(self, still: bool) -> None:
        (self._group / "cgroup.freeze").write_text(str(int(still)))
