"""``sopa doctor`` on files and interfaces as a careless operator leaves them: one line each, the mend, the exit status."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sopa_ryu.cli import doctor_controller, doctor_host, main
from sopa_ryu.cli.answers import NOT_RIGHT
from sopa_ryu.cli.client import Controller
from sopa_ryu.cli.findings import Finding, check_readable, check_secret, is_readable_by
from tests.helpers.golden import Step, play, scripts

NOWHERE = "http://127.0.0.1:1"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    for name in ("token", "agent-token", "agent-secret"):
        (directory / name).write_text("secret")
        (directory / name).chmod(0o600)
    return directory


def configured(tmp_path: Path, state: Path, default: str = "", sopa: str = "") -> str:
    file = tmp_path / "sopa.conf"
    text = f"[DEFAULT]\nwsapi_host = 0.0.0.0\n{default}\n[sopa]\nstate_dir = {state}\novsdb = tcp:*:6640\n{sopa}\n"
    file.write_text(text)
    return str(file)


def controller(file: str) -> Result:
    return run("controller", "--config-file", file, "--controller", NOWHERE)


def wrong(result: Result) -> list[str]:
    """Return the lines that say what is wrong; each names what mends it."""
    lines = [line for line in result.output.splitlines() if line.startswith("WRONG")]
    assert all("Mend: " in line for line in lines)
    assert result.exit_code == (NOT_RIGHT if lines else 0)
    return lines


def test_a_controller_that_is_set_up_right_and_not_started(tmp_path: Path, state: Path) -> None:
    result = controller(configured(tmp_path, state))
    assert wrong(result) == []
    assert "not running yet, or elsewhere" in result.output


@pytest.mark.parametrize("script", scripts(__file__, "doctor"), ids=lambda path: path.stem)
def test_what_is_wrong_with_the_settings(
    tmp_path: Path, state: Path, script: Path, request: pytest.FixtureRequest
) -> None:
    def handle(step: Step) -> str:
        """Examine a controller with lines in its configuration's sections, or a host with these lines in its units' environment."""
        if step.command == "controller":
            lines = {name: text.replace("; ", "\n") for name, text in step.options.items()}
            found = wrong(controller(configured(tmp_path, state, **lines)))
        else:
            settings = [*step.words, *(f"{name}={text}" for name, text in step.options.items())]
            (tmp_path / "agent.env").write_text("".join(f"{line}\n" for line in settings))
            # the rest depends on this machine
            found = [line for line in wrong(host(tmp_path)) if "agent.env" in line or "/nosuch" in line]
        return "\n".join(line.replace(str(tmp_path), "DIR") for line in found)

    play(script, handle, record=request.config.option.record)


SECRETS = ("token", "agent-token", "agent-secret")


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_not_as_it_should_be(
    tmp_path: Path, state: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, config = state / name, configured(tmp_path, state)
    for mode in (0o644, 0o640, 0o604, 0o622):
        file.chmod(mode)
        [line] = wrong(controller(config))
        assert line.endswith(f"Mend: chmod 600 {file}")
    file.chmod(0o600)
    for content, says in ((b"", "empty"), (b" \n", "empty"), ("schlüssel".encode(), "no token")):
        file.write_bytes(content)
        [line] = wrong(controller(config))
        assert f"{file}: {says}. Mend: rm {file}; systemctl restart sopa-controller" in line
        assert ("all hosts need new tokens" in line) == (name == "agent-secret")
    file.unlink()
    result = controller(config)
    assert wrong(result) == []
    assert f"ok    {file}: missing, made at the start" in result.output
    healthy = {
        "switches": {"edge": 8}, "connected": 8, "rejected": [],
        "setup": {"checked": 8, "detail": "as planned", "problems": []}, "bfd": {"enabled": True, "detail": "on"},
    }  # fmt: skip
    monkeypatch.setattr(Controller, "get", lambda *_: healthy)
    [line] = wrong(controller(config))
    assert f"{file}: missing, the controller still uses what it had" in line
    file.mkdir()
    [line] = wrong(controller(config))
    assert str(file) in line


def test_which_tokens_agents_may_have_and_which_configuration_there_is(tmp_path: Path, state: Path) -> None:
    [line] = wrong(controller(str(tmp_path / "nosuch.conf")))
    assert "nosuch.conf: missing. Mend: install -D -m 644 /opt/sopa/deploy/sopa.conf" in line
    assert "or agent-token, which opens" in controller(configured(tmp_path, state)).output
    only = controller(configured(tmp_path, state, sopa="host_tokens_only = true"))
    assert "ok    agents are accepted with their host's token only" in only.output


def test_a_secret_of_another_user_than_the_controllers(tmp_path: Path) -> None:
    file = tmp_path / "agent-secret"
    file.write_text("secret")
    file.chmod(0o600)
    own, other = (
        check_secret(file, Finding(False, "missing"), user, "start it") for user in (os.getuid(), os.getuid() + 1)
    )
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


def test_the_unit_needs_its_user(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_controller, "UNIT", tmp_path)
    monkeypatch.setattr(doctor_controller, "USER", "nosuchuser")
    [line] = wrong(controller(configured(tmp_path, state)))
    assert "there is no user nosuchuser. Mend: adduser --system --group" in line


def host(tmp_path: Path, interface: str = "lo") -> Result:
    files = [f"--agent-token-file={tmp_path}/agent-token", f"--agent-env-file={tmp_path}/agent.env"]
    return run("host", "--iface", interface, *files, "--controller", NOWHERE)


def test_a_host_without_anything(tmp_path: Path) -> None:
    lines = wrong(host(tmp_path))
    assert any("no address of 10.0.0.0/8" in line for line in lines)
    assert any(f"{tmp_path}/agent-token: missing" in line for line in lines)
    assert any("no controller" in line for line in lines)
    assert any("nosuch0: no such interface" in line for line in wrong(host(tmp_path, "nosuch0")))


def test_the_environment_is_right_and_a_unit_needs_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.env"
    monkeypatch.setattr(doctor_host, "UNIT", tmp_path / "nosuch.service")
    assert not any(str(file) in line for line in wrong(host(tmp_path)))
    monkeypatch.setattr(doctor_host, "UNIT", tmp_path)
    assert any(f"{file}: missing, which the unit needs" in line for line in wrong(host(tmp_path)))
    file.write_text(f"SOPA_CONTROLLER={NOWHERE}/\n")
    assert not any(str(file) in line for line in wrong(host(tmp_path)))


def test_the_token_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent-token").write_text("10.0.0.3 abc\n")
    (tmp_path / "agent-token").chmod(0o600)
    shown = {"flags": ["UP"], "addr_info": [{"family": "inet", "local": "10.0.0.2"}]}
    monkeypatch.setattr(doctor_host, "_addresses", lambda _interface: shown)
    line = next(line for line in wrong(host(tmp_path)) if "agent-token" in line)
    assert "it has no token for 10.0.0.2" in line
    assert "sopa token 10.0.0.2" in line
    (tmp_path / "agent-token").write_text("10.0.0.2 abc\n")
    assert not any("agent-token" in line for line in wrong(host(tmp_path)))


def test_no_switch_here(tmp_path: Path) -> None:
    result = run("switch", "--db", f"unix:{tmp_path}/db.sock")
    assert result.exit_code == 1
    assert "is Open vSwitch running here?" in result.output
