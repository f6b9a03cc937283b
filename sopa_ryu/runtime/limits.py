"""This process's own limits."""

from __future__ import annotations

import resource


def allow_files() -> int:
    """Raise the limit of open files to what this process may have at most, and return it: every connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
