"""``sopa pki`` with the real openssl: what it makes, renews and leaves, and what it refuses."""

import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main
from sopa_ryu.pki import Directory, Machine, openssl
from sopa_ryu.runtime import certificates
from sopa_ryu.runtime.certificates import CertificateError
from tests.helpers.golden import Script, Step, each_script


class Keeper:
    """Somebody with a directory of authorities."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def handle(self, step: Step) -> str:
        words = [*step.words, *(f"{name}={value}" for name, value in step.options.items())]
        return getattr(self, f"do_{step.command}")(*(word.replace("DIR", str(self.directory)) for word in words))

    def do_sopa(self, *words: str) -> str:
        done = CliRunner().invoke(main, ["pki", f"{self.directory}/its", *words])
        text = re.sub(r"20\d\d-\d\d-\d\d(, \d+ days)?", "DATE", done.output).replace(str(self.directory), "DIR")
        text = re.sub("Could not find certificate from [^)]*", "Unable to load certificate", text)  # OpenSSL 3.5
        return f"{re.sub(r'^(Usage|Try).*?$|^$', '', text, flags=re.M).strip()}\nstatus {done.exit_code}"

    def do_write(self, file: str, text: str) -> str:
        (self.directory / file).parent.mkdir(parents=True, exist_ok=True)
        (self.directory / file).write_text(text)
        return ""

    def do_copy(self, file: str, to: str) -> str:
        (self.directory / to).write_bytes((self.directory / file).read_bytes())
        return ""

    def do_remove(self, file: str) -> str:
        (self.directory / file).unlink()
        return ""

    def do_request(self, file: str, name: str) -> str:
        """Make a switch's key and request, with an authority's rights and another's name in what is asked for."""
        words = ["-subj", f"/O=x/CN={name}", "-addext", "basicConstraints=CA:TRUE", "-addext", "subjectAltName=DNS:c9_9"]
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *words,
                "-keyout", self.directory / "its.key", "-out", self.directory / file)  # fmt: skip
        return ""

    def do_shows(self, file: str) -> str:
        shown = ["-noout", "-subject", "-nameopt", "rfc2253", "-ext", "subjectAltName,basicConstraints", "-in"]
        text, key = openssl("x509", *shown, self.directory / file), openssl("pkey", "-pubout", "-in", self.directory / "its.key")
        own = openssl("x509", "-noout", "-pubkey", "-in", self.directory / file) == key
        return f"{text}{'of the key' if own else 'of another key'}"

    def do_modes(self) -> str:
        files = sorted((self.directory / "its").rglob("*"))
        return "\n".join(f"{file.stat().st_mode & 0o777:o} {file.relative_to(self.directory)}" for file in files)


@each_script(__file__, "pki")
def test_pki(tmp_path: Path, script: Script) -> None:
    script.play(Keeper(tmp_path).handle)


def test_what_has_a_third_of_its_time_left_is_renewed(tmp_path: Path) -> None:
    its, now = Directory(tmp_path), datetime.now(UTC)
    machine = Machine("controllers", "c1", ("192.0.2.1",))
    for days, done in ((0, "new"), (200, ""), (244, "renewed"), (900, "renewed")):
        assert [*its.make([machine], 365, again=False, now=now + timedelta(days=days))] == [(machine, done)]


def test_a_context_follows_its_files_and_keeps_the_former_ones_while_these_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)
    one, other = (Machine("relays", name, ("192.0.2.1",)) for name in ("one", "other"))
    assert len([*Directory(tmp_path).make([one, other], 1, again=False, now=datetime.now(UTC))]) == 2
    first, second = (tmp_path / "relays" / machine.name for machine in (one, other))
    certificate, key = first / "relay.pem", first / "relay.key"
    with pytest.raises(CertificateError, match="sopa pki makes them"):
        certificates.server(certificate, second / "relay.key")
    tls = certificates.server(certificate, key)
    before: ssl.SSLContext = tls()
    certificate.write_bytes((second / "relay.pem").read_bytes())
    assert [tls(), tls()] == [before, before]  # the certificate of another key
    assert caplog.text.count("The former ones stay in use") == 1
    key.write_bytes((second / "relay.key").read_bytes())
    assert tls() is not before
    assert tls() is tls()
