"""Where the Unix socket of hints is, for the agent and for applications."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def default_path(state_dir: Path, namespace: int) -> Path:
    """Return the path of a network namespace's socket.

    Parameters
    ----------
    state_dir : Path
        The agent's ``--state-dir``.
    namespace : int
        The namespace's cookie (SO_NETNS_COOKIE).

    Examples
    --------
    >>> default_path(Path("/run/sopa"), 1)
    PosixPath('/run/sopa/netns-1-hints.sock')
    """
    return state_dir / f"netns-{namespace}-hints.sock"


@contextmanager
def short(path: Path) -> Iterator[str]:
    """Give an address of a Unix socket that is not too long, whatever its directory is (unix(7): 108 bytes).

    Raises
    ------
    OSError
        If there is no such directory.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the socket at a path, whose operations take so long at most.

    Raises
    ------
    OSError
        If nobody listens there.
    """
    its = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    its.settimeout(seconds)
    try:
        with short(path) as address:
            its.connect(address)
    except BaseException:
        its.close()
        raise
    return its
