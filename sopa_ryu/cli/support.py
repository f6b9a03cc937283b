"""``sopa support``: one archive for whoever is asked for help."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from sopa_ryu import __version__
from sopa_ryu.cli.client import DEFAULT_TOKEN_FILE, Controller, NoAnswer, Refused, with_controller

MAX_BYTES = 8 << 20
"""Kept of each part: its end."""
SECONDS = 60.0
MIN_SECRET = 16
"""Characters of a word that is taken for a secret: a host's token stands beside its address."""
CONFIGURATION = Path("/etc/sopa")
SETTINGS = ("*.conf", "*.env", "*.yaml", "*.yml")
"""Configuration names secrets by their files, which are not read."""
ANSWERS = (
    *("fabric", "failures", "drains", "changes", "events", "wiring", "health"),
    *("agents", "cluster", "process", "switches", "links", "hosts", "names"),
)
UNITS = "sopa-*"
COMMANDS = {
    "doctor-controller.txt": [sys.executable, "-m", "sopa_ryu.cli", "doctor", "controller"],
    "doctor-switch.txt": [sys.executable, "-m", "sopa_ryu.cli", "doctor", "switch"],
    "journal.txt": ["journalctl", "--no-pager", "--output=short-iso-precise", f"--unit={UNITS}", "--lines=20000"],
    "units.txt": ["systemctl", "--no-pager", "--full", "status", UNITS],
    "ovs-vsctl-show.txt": ["ovs-vsctl", "--timeout=10", "show"],
    "ovs-bridges.txt": ["ovs-vsctl", "--timeout=10", "list", "bridge"],
    "ovs-interfaces.txt": [
        "ovs-vsctl",
        "--timeout=10",
        "--columns=name,ofport,link_state,bfd,bfd_status,error",
        "list",
        "interface",
    ],
    "links.txt": ["ip", "-details", "-statistics", "link"],
    "addresses.txt": ["ip", "address"],
    "sockets.txt": ["ss", "--tcp", "--udp", "--listening", "--numeric", "--processes"],
    "versions.txt": ["dpkg-query", "--show", "sopa-*", "openvswitch-switch", "etcd-server", "linux-image-*", "python3"],
}


@click.command()
@click.option("--output", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
              help="The archive. By default sopa-support-TIME.tar.gz in the current directory.")  # fmt: skip
@with_controller
def support(controller: Controller, output: Path | None) -> None:
    """Collect what helps to find a fault into one archive: the controller's answers, logs, configuration, versions, doctor.

    It is about this machine and the controller that answers. Where more are concerned, run it on each. What cannot be had here is
    left out, and missing.txt says why: root gets more. Tokens, keys and passwords are not collected. Where a token of this
    machine stands in a log, REMOVED replaces it.

    \b
    Examples:
      sudo sopa support
      sopa support --controller http://192.0.2.1:8080 --output fabric.tar.gz
    """
    at = datetime.now(UTC)
    file = output or Path(f"sopa-support-{at:%Y%m%dT%H%M%SZ}.tar.gz")
    secrets, missing = list(_secrets()), list[str]()
    directory = file.name.removesuffix(".gz").removesuffix(".tar")
    try:
        with tarfile.open(file, "x:gz") as archive:
            for name, part in _parts(controller):
                click.echo(f"collecting {name}", err=True)
                try:
                    content = part()
                except (OSError, subprocess.SubprocessError, NoAnswer, Refused) as error:
                    missing.append(f"{name}: {getattr(error, 'message', error)}\n")
                else:
                    _add(archive, f"{directory}/{name}", _clean(content, secrets))
            _add(archive, f"{directory}/missing.txt", "".join(missing).encode())
    except FileExistsError:
        raise click.ClickException(f"{file} exists: name another file with --output") from None
    except OSError as error:
        file.unlink(missing_ok=True)
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None
    click.echo(f"{file}: {file.stat().st_size / 1e6:.1f} MB; {len(missing)} parts are not to be had here (missing.txt)")


def _parts(controller: Controller) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of each part, and what collects it."""
    about = {"sopa": __version__, "python": sys.version, "machine": platform.uname()._asdict(), "at": time.time()}
    yield "about.json", lambda: json.dumps(about, indent=1).encode()
    for answer in ANSWERS:
        yield f"controller/{answer}.json", partial(_answer, controller, answer)
    yield "controller/metrics.txt", partial(controller.text, "/metrics")
    for pattern in SETTINGS:
        for file in sorted(CONFIGURATION.glob(pattern)):
            yield f"etc/{file.name}", file.read_bytes
    for name, command in COMMANDS.items():
        yield name, partial(_said, command)


def _answer(controller: Controller, name: str) -> bytes:
    return json.dumps(controller.get(f"/{name}"), indent=1).encode()


def _said(command: list[str]) -> bytes:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=SECONDS)
    return done.stdout[-MAX_BYTES:]


def _secrets() -> Iterator[bytes]:
    """Yield the secrets of this machine that this user can read."""
    for file in (*DEFAULT_TOKEN_FILE.parent.glob("*"), *CONFIGURATION.glob("*token*"), *CONFIGURATION.glob("*password*")):
        try:
            words = file.read_bytes().split() if file.name.endswith(("token", "secret", "password")) else []
        except OSError:
            continue
        yield from (word for word in words if len(word) >= MIN_SECRET)


def _clean(content: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        content = content.replace(secret, b"REMOVED")
    return content[-MAX_BYTES:]


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(content))
