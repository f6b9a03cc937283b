"""The SOPA controller: an application for Ryu, the hosts' agent, and the `sopa` command."""

from __future__ import annotations

from pathlib import Path

# Of the next release, as Debian sorts it: before that. scripts/build_deb.sh writes the whole version here.
__version__ = "1.0.0~dev"


def commit_of(checkout: Path) -> str:
    """Return the first digits of a checkout's commit as ``+g240f2424``; nothing where there is none, or it cannot be read."""
    try:
        git = checkout / ".git"
        if git.is_file():  # of a worktree
            git = checkout / git.read_text().removeprefix("gitdir:").strip()
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name != head:
            packed = common / "packed-refs"
            lines = packed.read_text().splitlines() if packed.exists() else []
            loose = common / name
            head = loose.read_text() if loose.exists() else next(line for line in lines if line.endswith(f" {name}"))
        return f"+g{head[:8]}"
    except (OSError, StopIteration):
        return ""


if __version__.endswith("dev"):
    __version__ += commit_of(Path(__file__).parents[1])
