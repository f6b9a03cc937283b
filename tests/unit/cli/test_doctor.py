"""``sopa doctor`` on files and interfaces as a careless operator leaves them: one line each, the mend, the exit status."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import doctor, doctor_controller, main
from sopa_ryu.cli.client import Controller
from sopa_ryu.cli.findings import Finding, check_readable, check_secret, is_readable_by
from sopa_ryu.cli.output import NOT_RIGHT
from tests.helpers.golden import Script, Step, each_script

HEALTHY = {
    "switches": {"edge": 8}, "connected": 8, "rejected": [],
    "setup": {"checked": 8, "detail": "as planned", "problems": []}, "bfd": {"enabled": True, "detail": "on"},
}  # fmt: skip


class Machine:
    """A controller's machine that is set up right, and a host's."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory, self.state, self._patch = directory, directory / "state", patch
        self.state.mkdir(mode=0o700)
        for name in ("token", "agent-token", "agent-secret"):
            self.do_secret(name)
        self.do_unit("no")

    def handle(self, step: Step) -> str:
        return getattr(self, f"do_{step.command}")(*step.words, **step.options) or ""

    def do_secret(self, name: str, text: str = "secret", mode: str = "600") -> None:
        """Write a secret of the controller, or the host's ``../agent-token``; no file with mode 0, a directory with ``dir``."""
        file = self.state / name
        file.unlink(missing_ok=True)
        if mode == "dir":
            file.mkdir()
        elif mode != "0":
            file.write_text(text)
            file.chmod(int(mode, 8))

    def do_controller(self, show: str = "WRONG", config: str = "sopa.conf", default: str = "", sopa: str = "") -> str:
        default, sopa = default.replace("; ", "\n"), sopa.replace("; ", "\n")
        text = f"[DEFAULT]\nwsapi_host = 0.0.0.0\n{default}\n[sopa]\nstate_dir = {self.state}\novsdb = tcp:*:6640\n{sopa}\n"
        text += "" if show == "open " else "insecure = true\n"
        (self.directory / "sopa.conf").write_text(text)
        return self._examine(show, "controller", "--config-file", f"{self.directory}/{config}")

    def do_host(self, *lines: str, show: str = "agent.env", iface: str = "lo", **settings: str) -> str:
        """Examine a host with these lines in its units' environment; much of the rest depends on this machine."""
        lines = (*lines, *(f"{name}={text}" for name, text in settings.items()))
        file = self.directory / "agent.env"
        file.write_text("".join(f"{line}\n" for line in lines)) if lines else file.unlink(missing_ok=True)
        files = [f"--agent-token-file={self.directory}/agent-token", f"--agent-env-file={file}"]
        return self._examine(show, "host", "--iface", iface, *files)

    def do_bare(self) -> None:
        """Let no other program be installed."""
        self._patch.setenv("PATH", str(self.directory))

    def do_answering(self, *troubles: str) -> None:
        body = {**HEALTHY, "troubles": [{"kind": kind, "text": f"trouble of {kind}"} for kind in troubles]}
        self._patch.setattr(Controller, "get", lambda *_: body)

    def do_unit(self, there: str, user: str = "sopa") -> None:
        for module in (doctor_controller, doctor):
            self._patch.setattr(module, "UNIT", self.directory if there == "yes" else self.directory / "nosuch.service")
        self._patch.setattr(doctor_controller, "USER", user)

    def do_address(self, address: str) -> None:
        shown = {"flags": ["UP"], "addr_info": [{"family": "inet", "local": address}]}
        self._patch.setattr(doctor, "_addresses", lambda _interface: shown)

    def _examine(self, show: str, *words: str) -> str:
        """Return the lines that are shown; each that says what is wrong names what mends it."""
        done = CliRunner().invoke(main, ["doctor", *words, "--controller", "http://127.0.0.1:1"])
        lines = done.output.splitlines()
        wrong = [line for line in lines if line.startswith("WRONG")]
        assert all("Mend: " in line for line in wrong)
        assert done.exit_code == (NOT_RIGHT if wrong else 0)
        return "\n".join(line for line in lines if show in line or "/nosuch" in line).replace(str(self.directory), "DIR")


@each_script(__file__, "doctor")
def test_doctor(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.play(Machine(tmp_path, monkeypatch).handle)


def test_a_secret_of_another_user_than_the_controllers(tmp_path: Path) -> None:
    file = tmp_path / "agent-secret"
    file.write_text("secret")
    file.chmod(0o600)
    own, other = (check_secret(file, Finding(False, "missing"), user, "start it") for user in (os.getuid(), os.getuid() + 1))
    assert [(each.right, "cannot read it" in each.text, each.mend[:6]) for each in other] == [(False, True, "chown ")]
    assert [each.right for each in own] == [True]


def test_who_can_read_a_file(tmp_path: Path) -> None:
    key, other = tmp_path / "controller.key", os.getuid() + 1
    key.write_text("key")
    key.chmod(0o600)
    assert is_readable_by(key, os.getuid())
    assert not is_readable_by(key, other)
    assert not is_readable_by(tmp_path / "nosuch", other)
    assert is_readable_by(Path("/etc/passwd"), other)
    [finding] = check_readable(key, other, is_key=True)
    assert finding.mend.startswith("chgrp ")
    key.chmod(0o644)  # but its directory is closed
    assert not is_readable_by(key, other)
    assert [finding.right for finding in check_readable(key, os.getuid(), is_key=True)] == [False]
    assert [finding.right for finding in check_readable(key, os.getuid())] == [True]
