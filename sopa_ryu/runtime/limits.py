"""Resource limits of this process."""

from __future__ import annotations

import resource


def allow_files() -> int:
    """Raise the limit of open files to the hard limit and return it: each connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
