"""A directory of authorities and certificates for a fabric: one authority for each role, made and renewed by the command openssl.

A certificate of one role opens nothing that another role is trusted with: Open vSwitch looks at who signed a controller's
certificate but not at the name in it, as etcd's nodes do among each other, so that with one authority for all the root of a switch
could speak as a controller, or as a node of etcd. Each machine's directory has what it shows, and the authorities that it trusts.
A switch may have made its key itself: a request then takes the key's place there, also when the certificate is renewed.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.runtime.atomic_file import write_atomically

AUTHORITIES = Path("authorities")
AUTHORITY_DAYS = 3650
CLIENTS = "ca.pem"
"""What hosts, operators and browsers trust: controllers and relays."""
RENEW_SHARE = 1 / 3
"""What is left of a certificate's time when it is renewed."""
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?")


class PkiError(RuntimeError):
    """Something cannot be made or read; the text says what, and what to do."""


class Role(NamedTuple):
    """The machines of one authority.

    Attributes:
        file: Name of a machine's certificate and key there, without the ending.
        trusts: File on the machine -> the roles whose authorities are in it.
        place: Where the files belong on the machine.
    """

    name: str
    file: str
    trusts: dict[str, tuple[str, ...]]
    place: str


_OWN, _ETCD = ("controllers", "relays"), "etcd.pem"
ROLES = {
    role.name: role
    for role in (
        Role("controllers", "controller", {CLIENTS: _OWN, "switches.pem": ("switches",), _ETCD: ("etcd",)}, "/etc/sopa/tls"),
        Role("relays", "relay", {CLIENTS: _OWN, _ETCD: ("etcd",)}, "/etc/sopa/tls"),
        Role("etcd", "node", {_ETCD: ("etcd",)}, "/etc/etcd/tls"),
        Role("switches", "switch", {"controllers.pem": ("controllers",)}, "/etc/openvswitch/tls"),
    )
}


@dataclass(frozen=True, order=True)
class Machine:
    """Who gets a certificate: a name, which is also the certificate's, and the addresses and DNS names by which others connect."""

    role: str
    name: str
    addresses: tuple[str, ...] = ()

    @classmethod
    def parse(cls, role: str, text: str) -> Machine:
        """Return the machine of ``NAME=ADDRESS[,ADDRESS]``; `PkiError` if it is none."""
        name, equals, addresses = text.partition("=")
        machine = cls(role, name, tuple(addresses.split(",")) if equals else ())
        if not machine.addresses or not all(_NAME.fullmatch(part) or _ip(part) for part in (name, *machine.addresses)):
            raise PkiError(f"{text!r} is not NAME=ADDRESS, such as c1=192.0.2.1 or c1=192.0.2.1,controller.example")
        return machine

    @staticmethod
    def parse_request(text: str) -> tuple[str, Path]:
        """Return name and file of a switch's ``NAME=REQUEST``; `PkiError` if it is none."""
        name, _, file = text.partition("=")
        if not (_NAME.fullmatch(name) and file):
            raise PkiError(f"{text!r} is not NAME=REQUEST, such as e0_0=e0_0.csr")
        return name, Path(file)

    @property
    def alternatives(self) -> list[str]:
        """Return its names as openssl writes them into a configuration."""
        return [f"IP:{part}" if _ip(part) else f"DNS:{part}" for part in (self.addresses or (self.name,))]


class Certificate(NamedTuple):
    """What a machine's certificate says; ``public`` is its key in PEM."""

    machine: Machine
    begin: datetime
    end: datetime
    public: str = ""

    def is_due(self, now: datetime) -> bool:
        """Tell whether it is to be renewed."""
        return self.end - now < (self.end - self.begin) * RENEW_SHARE


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def openssl(*words: object, read: str = "") -> str:
    """Run openssl and return what it prints; `PkiError` with the last thing that it says."""
    try:
        done = subprocess.run(["openssl", *map(str, words)], input=read, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise PkiError("the command openssl is missing: apt-get install openssl") from None
    if done.returncode or "verify failure" in done.stderr:  # OpenSSL 3.0 ends a request's -verify with status 0
        raise PkiError(f"openssl {words[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


def certificate(file: Path, role: str = "") -> Certificate:
    """Return what the first certificate in a file says; `PkiError` if there is none. The machine's name is the directory's."""
    shown = ("-startdate", "-enddate", "-dateopt", "iso_8601", "-ext", "subjectAltName", "-pubkey")
    try:
        text = openssl("x509", "-noout", *shown, "-in", file)
        begin, end = (datetime.fromisoformat(date) for date in re.findall(r"^not(?:Before|After)=(.*)$", text, re.MULTILINE))
    except (PkiError, ValueError) as error:
        raise PkiError(f"{file} is no certificate ({error}): remove it, and run sopa pki") from None
    found = re.findall(r"(?:DNS|IP Address):([^,\s]+)", text)
    names = tuple(_ip(name) or name for name in found)
    machine = Machine(role, file.parent.name, () if names == (file.parent.name,) else names)
    return Certificate(machine, begin, end, text[text.find("-----BEGIN") : text.find("KEY-----\n", text.find("-----END")) + 9])


class Directory:
    """The authorities and machines of a fabric, in a directory that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def certificates(self) -> Iterator[Certificate]:
        """Yield what machines have; `PkiError` for what is no certificate."""
        for role in ROLES.values():
            for file in sorted((self.path / role.name).glob(f"*/{role.file}.pem")):
                yield certificate(file, role.name)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the directory if it is missing, and keep a second command from writing there meanwhile."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(self.path.iterdir()) and not (self.path / AUTHORITIES).is_dir():
                raise PkiError(f"{self.path} has other files, and no {AUTHORITIES}: name a directory of its own")
            self.path.chmod(0o700)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PkiError(f"{self.path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            for left in self.path.glob(".new-*"):  # of a command that was killed
                shutil.rmtree(left)
            yield
        except OSError as error:
            raise PkiError(f"{error.filename or self.path}: {error.strerror}; what was made is whole: run it again") from None
        finally:
            os.close(descriptor)

    def make(
        self, machines: Iterable[Machine], days: int, *, again: bool, now: datetime, requests: Mapping[str, Path] = {}
    ) -> Iterator[tuple[Machine, str]]:
        """Make what is missing or due, of the machines and of all that have a certificate; yield each with what was done.

        Authorities come first, then ``requests`` of switches are taken, by names. All is made with ``again``, but for the
        authorities. `PkiError` if something cannot be made.
        """
        for role in ROLES:
            self._authority(role, now)
        asking = {Machine("switches", name): request for name, request in requests.items()}
        for machine, request in asking.items():
            self._take(machine, request)
        present = {(its.machine.role, its.machine.name): its for its in self.certificates()}
        wanted = {name: its.machine for name, its in present.items()}
        wanted |= {(machine.role, machine.name): machine for machine in (*machines, *asking)}
        for name, machine in wanted.items():
            done = self._why(machine, present.get(name), again, now)
            if done:
                self._issue(machine, days)
            self._trust(machine)
            yield machine, done
        _write(self.path / CLIENTS, self._authorities(_OWN), 0o644)

    def _take(self, machine: Machine, request: Path) -> None:
        """Keep a machine's request; `PkiError` if it is none for its name."""
        try:
            text = openssl("req", "-verify", "-noout", "-subject", "-nameopt", "multiline", "-in", request)
        except PkiError:
            raise PkiError(f"{request} is no request, or is damaged: make one on the switch, as sopa fabric plan says") from None
        named = re.search(r"commonName *= (.*)", text)
        if named is None or named[1] != machine.name:
            raise PkiError(
                f"{request} is a request of {named[1] if named else 'nobody'}, not of {machine.name}: look who has sent it"
            )
        own = self.own_file(machine)
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(own.with_suffix(".csr"), request.read_bytes(), 0o644)
        own.with_suffix(".key").unlink(missing_ok=True)

    def _why(self, machine: Machine, its: Certificate | None, again: bool, now: datetime) -> str:
        if its is None:
            return "new"
        if its.machine != machine:
            return f"new, was for {', '.join(its.machine.addresses)}"
        return "renewed" if again or its.is_due(now) or not self._fits(its) else ""

    def _fits(self, its: Certificate) -> bool:
        """Tell whether a machine's key, or request, is its certificate's, and the certificate of the role's authority."""
        file = self.own_file(its.machine)
        request = file.with_suffix(".csr")
        key = (
            ("req", "-noout", "-pubkey", "-in", request)
            if request.exists()
            else ("pkey", "-pubout", "-in", file.with_suffix(".key"))
        )
        try:
            openssl("verify", "-no_check_time", "-CAfile", self._authority_file(its.machine.role), file)
            return openssl(*key).strip() == its.public.strip()
        except PkiError:
            return False

    def _authority_file(self, role: str) -> Path:
        return self.path / AUTHORITIES / f"{role}.pem"

    def _authorities(self, roles: Iterable[str]) -> bytes:
        return b"".join(self._authority_file(role).read_bytes() for role in roles)

    def _authority(self, role: str, now: datetime) -> None:
        file = self._authority_file(role)
        if file.exists():
            if certificate(file).end < now:
                raise PkiError(f"the authority {file} has ended: remove it and its key, run this again, and copy all files")
            return
        extensions = "basicConstraints = critical, CA:TRUE, pathlen:0\nkeyUsage = critical, keyCertSign, cRLSign\n"
        self._sign(file, f"SOPA {role}", extensions, AUTHORITY_DAYS, [], 0o600)

    def _issue(self, machine: Machine, days: int) -> None:
        extensions = (
            "basicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n"
            "extendedKeyUsage = serverAuth, clientAuth\nauthorityKeyIdentifier = keyid\n"
            f"subjectAltName = {', '.join(machine.alternatives)}\n"
        )
        authority = self._authority_file(machine.role)
        words = ["-CA", authority, "-CAkey", authority.with_suffix(".key")]
        self._sign(self.own_file(machine), machine.name, extensions, days, words)

    def _sign(self, file: Path, name: str, extensions: str, days: int, words: Sequence[object], mode: int = 0o640) -> None:
        """Make a certificate, of a request or of a new key.

        That of an authority comes last: by it others know that both are there. A machine's key does: Open vSwitch 3.1 looks for a
        new certificate only when it sees a new key, and may look between the two.
        """
        text = f"[req]\nprompt = no\ndistinguished_name = dn\nx509_extensions = ext\n[dn]\nCN = {name}\n[ext]\n"
        with tempfile.TemporaryDirectory(dir=self.path, prefix=".new-") as made:
            key, signed, config = (Path(made) / each for each in ("key", "pem", "cnf"))
            config.write_text(f"{text}subjectKeyIdentifier = hash\n{extensions}")
            request = file.with_suffix(".csr")
            of_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)
            whose = ("-in", request, "-subj", f"/CN={name}") if request.exists() else of_key
            openssl("req", "-x509", *whose, "-config", config, "-days", days, "-out", signed, *words)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            pair = [(key, file.with_suffix(".key"), mode), (signed, file, 0o644)]
            for one, place, its_mode in reversed(pair) if words else pair:
                if one.exists():
                    _write(place, one.read_bytes(), its_mode)

    def _trust(self, machine: Machine) -> None:
        for name, roles in ROLES[machine.role].trusts.items():
            _write(self._of(machine) / name, self._authorities(roles), 0o644)

    def own_file(self, machine: Machine) -> Path:
        """Return the file of a machine's certificate."""
        return self._of(machine) / f"{ROLES[machine.role].file}.pem"

    def _of(self, machine: Machine) -> Path:
        return self.path / machine.role / machine.name


def _write(file: Path, content: bytes, mode: int) -> None:
    """Write a file in one step; one that has this content stays, for those who look whether it has changed."""
    if not file.exists() or file.read_bytes() != content:
        write_atomically(file, content, mode=mode)
