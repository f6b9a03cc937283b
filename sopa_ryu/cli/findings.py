"""What ``sopa doctor`` finds: one line for each check, and the checks of files that it makes on every machine."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from sopa_ryu.cli.output import NOT_RIGHT

_OF_PACKAGE = Path("/usr/share") / Path(sys.prefix).name
DEPLOYED = _OF_PACKAGE if sys.prefix == f"/usr/lib/{_OF_PACKAGE.name}" else Path("/opt/sopa/deploy")
"""The example files: of the Debian package whose environment this is, or else of the documented checkout."""
UNITS = (Path("/etc/systemd/system"), Path("/lib/systemd/system"))
RESTART = "systemctl restart sopa-controller"


TESTED = {"Python": ("3.11", "3.13"), "Linux": ("6.1", "6.18"), "Ryu": ("4.34",), "os-ken": ("4.2",)}
"""Releases with which all that is here was tried (docs/platform.md)."""


class Finding(NamedTuple):
    """One line: what was checked, and if it is wrong, the command or file that mends it.

    ``label`` stands in the place of ``ok`` where something is right and yet worth a decision.
    """

    right: bool
    text: str
    mend: str = ""
    label: str = "ok"


def tell(findings: Iterable[Finding], within: Callable[[str], str]) -> None:
    """Print one line for each finding, and end with the status; what ends the checks, as a file not for this user, is one.

    ``within`` adds aliases to a text; what mends it is for typing, and stays as it is.
    """
    wrong = False
    for finding in _until_error(findings):
        wrong |= not finding.right
        mend = f". Mend: {finding.mend}" if finding.mend and not finding.right else ""
        click.echo(f"{finding.label if finding.right else 'WRONG':5} {within(finding.text)}{mend}")
    sys.exit(NOT_RIGHT if wrong else 0)


def _until_error(findings: Iterable[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except OSError as error:
        yield Finding(False, f"{error.filename}: {error.strerror}: the rest is not checked", "run it as root")


def unit(name: str) -> Path:
    """Return the file of a unit, where systemd finds it first; if there is none, where `docs/install.md` installs it."""
    return next((directory / name for directory in UNITS if (directory / name).exists()), UNITS[0] / name)


def check_release(what: str, version: str) -> Finding:
    """Return whether a release is one of `TESTED`; another one is no mistake.

    >>> check_release("Linux", "6.12.117").text
    'Linux 6.12.117: tried was 6.1 and 6.18; docs/platform.md says what depends on it'
    """
    if ".".join(version.split(".")[:2]) in TESTED[what]:
        return Finding(True, f"{what} {version}")
    tried = " and ".join(TESTED[what])
    return Finding(True, f"{what} {version}: tried was {tried}; docs/platform.md says what depends on it", label="other")


def check_secret(file: Path, missing: Finding, user: int, renew: str) -> Iterator[Finding]:
    """Yield whether a file has a secret that the user with an id can read, and no other; ``renew`` says what makes a new one."""
    try:
        found = file.stat()
        text = file.read_bytes()
    except PermissionError:
        yield Finding(False, f"{file}: not readable", "run it as root")
        return
    except FileNotFoundError:
        yield missing
        return
    except OSError as error:
        yield Finding(False, f"{file}: {error.strerror}", f"remove it; {renew}")
        return
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        yield Finding(False, f"{file}: mode {mode:o}, other users can read it", f"chmod 600 {file}")
    elif not text.strip() or not text.isascii():
        yield Finding(False, f"{file}: {'no token' if text.strip() else 'empty'}", f"rm {file}; {renew}")
    elif found.st_uid != user and user != 0:
        text_ = f"{file}: belongs to {_name(found.st_uid)}, and {_name(user)} cannot read it"
        yield Finding(False, text_, f"chown {_name(user)} {file}")
    elif not is_readable_by(file, user):
        yield Finding(False, f"{file}: {_name(user)} cannot read it", f"namei -l {file}")
    else:
        yield Finding(True, f"{file}: {_name(user)} can read it, no other user")


def check_readable(file: Path, user: int, is_key: bool = False) -> Iterator[Finding]:
    """Yield whether a user can read a file, and if it is a private key, whether not everyone can."""
    if not file.exists():
        yield Finding(False, f"{file}: missing", f"install -m {640 if is_key else 644} it there")
    elif not is_readable_by(file, user):
        mend = f"chgrp {_name(user)} {file}; chmod 640 {file}" if is_key else f"chmod 644 {file}"
        yield Finding(False, f"{file}: {_name(user)} cannot read it", f"{mend}; namei -l {file}")
    elif is_key and file.stat().st_mode & stat.S_IRWXO:
        yield Finding(False, f"{file}: every user can read it", f"chmod o= {file}")
    else:
        yield Finding(True, f"{file}: readable")


def is_readable_by(file: Path, user: int) -> bool:
    """Tell whether a user may read a file by its mode and those of the directories that lead there."""
    if user in (0, os.geteuid()):
        return os.access(file, os.R_OK)
    groups = _groups(user)
    try:
        whole = file.resolve(strict=True)
        enters = all(_may(parent.stat(), user, groups, 1) for parent in whole.parents)
        return enters and _may(whole.stat(), user, groups, 4)
    except OSError:
        return False


def _may(found: os.stat_result, user: int, groups: list[int], bit: int) -> bool:
    shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
    return bool(found.st_mode >> shift & bit)


def _groups(user: int) -> list[int]:
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
