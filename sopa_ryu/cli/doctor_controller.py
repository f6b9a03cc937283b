"""The set-up of a controller's machine: options, addresses, certificates, tokens, and what a running controller says."""

from __future__ import annotations

import os
import platform
import pwd
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sopa_ryu.cli.client import Controller, NoAnswer, Refused
from sopa_ryu.cli.findings import DEPLOYED, RESTART, Finding, check_readable, check_release, check_secret, is_readable_by, unit
from sopa_ryu.runtime import library

UNIT = unit("sopa-controller.service")
USER = "sopa"
_LOOPBACK = (None, "127.0.0.1", "::1", "localhost")
WARN_DAYS = 30
"""Left of a certificate, when it is said."""
_TLS = ("ctl_privkey", "ctl_cert", "ca_certs")


def check_controller(controller: Controller, file: Path) -> Iterator[Finding]:
    """Yield findings of releases, of a configuration file, of the files that it names, and of the controller if it runs."""
    yield check_release("Python", platform.python_version())
    yield check_release("Ryu" if library.name() == "ryu" else "os-ken", library.version())
    try:
        fabric = controller.get("/fabric")
    except (NoAnswer, Refused) as error:
        yield from _check_options(file, running=False)
        yield Finding(True, f"not running yet, or elsewhere: {error}")
        return
    yield from _check_options(file, running=True)
    yield from _check_fabric(fabric)


def _check_options(file: Path, running: bool) -> Iterator[Finding]:
    # oslo.config takes long to import, which the other commands need not wait for
    from oslo_config import cfg

    from sopa_ryu import options
    from sopa_ryu.exposure import Doors, exposures

    conf = cfg.ConfigOpts()
    conf.register_opts([cfg.StrOpt(name) for name in ("wsapi_host", "ofp_listen_host", *_TLS)])
    options.register(conf)
    if not file.exists():
        yield Finding(False, f"{file}: missing", f"install -D -m 644 {DEPLOYED / 'sopa.conf'} {file}, then edit it")
        return
    try:
        conf(["--config-file", str(file)], project="sopa", default_config_files=[])
        settings = options.settings(conf)
    except (cfg.Error, options.OptionError) as error:
        yield Finding(False, f"{file}: {error}", f"edit {file}")
        return
    directory, tree = settings.state_dir, settings.tree
    what = tree.title if tree.k is None else f"k={tree.k}"
    # the state directory belongs to the user as whom the controller runs
    user = directory.stat().st_uid if directory.is_dir() else os.geteuid()
    yield Finding(is_readable_by(file, user), f"{file}: {what}, carrier {settings.carrier}", f"chmod 644 {file}")
    yield _check_address(conf.wsapi_host, file)
    databases = ", ".join(settings.ovsdb) or "no database"
    mend = f"ovsdb = tcp:*:6640 in {file}, set-manager on the switches"
    yield Finding(bool(settings.ovsdb), f"switches are verified, and BFD enabled, over {databases}", mend)
    tls = {name: getattr(conf, name) for name in _TLS}
    if any(tls.values()):
        missing = ", ".join(name for name, value in tls.items() if not value)
        accepted = "; without ca_certs any client is accepted as a switch" if not tls["ca_certs"] else ""
        text = f"OpenFlow over TLS{f': {missing} missing{accepted}' if missing else ''}"
        yield Finding(not missing, text, f"{missing} in {file}")
    doors = Doors(conf.ofp_listen_host or "", conf.wsapi_host or "127.0.0.1", bool(tls["ctl_privkey"]), tls["ca_certs"])
    opened = list(exposures(settings, doors))
    for exposure in () if settings.insecure else opened:
        yield Finding(True, f"{exposure.what}; {exposure.mend} in {file} closes it", label="open")
    if not opened:
        only = "read nothing" if settings.read_token else f"only read; read_token in {file} closes that, too"
        yield Finding(True, f"nothing is open: who has neither certificate nor token can {only}")
    elif not (settings.read_token or settings.insecure):
        yield Finding(True, f"reads need no token: who reaches REST sees the fabric; read_token in {file} closes it", label="open")
    certificate, key = settings.tls or (None, None)
    keys = {str(name) for name in (tls["ctl_privkey"], key) if name}
    for name in sorted({str(name) for name in (*tls.values(), certificate, key) if name}):
        yield from check_readable(Path(name), user, is_key=name in keys)
        if name not in keys and Path(name).exists():
            yield _check_validity(Path(name))
    if UNIT.exists():
        yield _check_user()
    owner = f"install -d -o {USER} -g {USER} -m 700 {directory}"
    yield Finding(directory.is_dir(), f"{directory}: {'there' if directory.is_dir() else 'missing'}", owner)
    if directory.is_dir():
        yield from _check_tokens(directory, user, settings.host_tokens_only, running)


def _check_validity(file: Path) -> Finding:
    from sopa_ryu.pki import PkiError, certificate

    try:
        end = certificate(file).end
    except PkiError as error:
        return Finding(False, str(error), "sopa pki; then copy its files there")
    days = (end - datetime.now(UTC)).days
    mend = "sopa pki on the machine with the authorities; then copy its files there"
    return Finding(days >= WARN_DAYS, f"{file}: {f'valid until {end:%Y-%m-%d}' if days >= 0 else f'ended on {end:%Y-%m-%d}'}", mend)


def _check_user() -> Finding:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        add = f"adduser --system --group --home /var/lib/{USER} {USER}"
        return Finding(False, f"{UNIT}: there is no user {USER}", add)
    return Finding(True, f"{UNIT}: runs as {USER}")


def _check_address(host: str | None, file: Path) -> Finding:
    """Return whether REST listens where other machines reach it, at an address that this machine has."""
    if host in _LOOPBACK:
        return Finding(False, f"REST listens on {host or '127.0.0.1'}, where no other machine reaches it", f"wsapi_host in {file}")
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
    except OSError as error:
        return Finding(False, f"REST cannot listen on {host}: {error.strerror}", f"wsapi_host in {file}, or ip address")
    return Finding(True, f"REST listens on {host}")


def _check_tokens(directory: Path, user: int, host_tokens_only: bool, running: bool) -> Iterator[Finding]:
    """Yield findings of the operator token, the agent token and the fabric's secret."""
    from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET

    is_used = (directory / OPERATORS).exists()  # not before the first start
    for name in (OPERATORS, AGENTS, SECRET):
        new = "; then all hosts need new tokens (sopa token)" if name == SECRET and is_used else ""
        missing = Finding(True, f"{directory / name}: missing, made at the start{new}")
        if running:
            text = f"{directory / name}: missing, the controller still uses what it had"
            missing = Finding(False, text, f"{RESTART}, which makes a new one{new}")
        yield from check_secret(directory / name, missing, user, f"{RESTART}, which makes a new one{new}")
    accepted = "only" if host_tokens_only else "or agent-token, which opens the channel of every host"
    yield Finding(True, f"agents are accepted with their host's token {accepted}")


def _check_fabric(body: dict[str, Any]) -> Iterator[Finding]:
    total = sum(body["switches"].values())
    mend = "sopa status; on a missing switch: sopa doctor switch"
    yield Finding(body["connected"] == total, f"{body['connected']} of {total} switches connected", mend)
    for rejected in body["rejected"]:
        yield Finding(False, f"switch {rejected['dpid']} ignored: {rejected['reason']}", "sopa doctor switch, there")
    verified = body["setup"]["checked"] == total
    mend = "the missing switches; set-manager on the others; the option ovsdb"
    yield Finding(verified, f"set-up: {body['setup']['detail']}", mend)
    for problem in body["setup"]["problems"]:
        yield Finding(False, f"{problem['switch']}: {problem['problem']}", f"there: {problem['mend']}")
    yield Finding(body["bfd"]["enabled"], f"BFD {body['bfd']['detail']}", mend)
    for trouble in body.get("troubles", ()):
        if trouble["kind"] in ("leader", "arbiter", "gateways"):
            yield Finding(False, trouble["text"], "sopa cluster" if trouble["kind"] == "leader" else "sopa status")
