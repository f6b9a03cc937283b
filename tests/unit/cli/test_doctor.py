"""``sopa doctor`` on files and interfaces as a careless operator leaves them: one line each, the mend, the exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sopa_ryu.cli import main
from sopa_ryu.cli.client import NOT_RIGHT

NOWHERE = "http://127.0.0.1:1"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    for name in ("token", "agent-token"):
        (directory / name).write_text("secret")
        (directory / name).chmod(0o600)
    return directory


def configured(tmp_path: Path, state: Path, default: str = "", sopa: str = "") -> str:
    file = tmp_path / "sopa.conf"
    text = f"[DEFAULT]\nwsapi_host = 192.0.2.1\n{default}\n[sopa]\nstate_dir = {state}\novsdb = tcp:*:6640\n{sopa}\n"
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


@pytest.mark.parametrize(
    ("default", "sopa", "says"),
    [
        ("wsapi_host = 127.0.0.1", "", "REST listens on 127.0.0.1"),
        ("", "k = 5", "5"),
        ("", "carrier = pigeon", "carrier must be"),
        ("ctl_privkey = /k\nctl_cert = /c", "", "anybody is accepted as a switch"),
        ("", "tls_cert = /nosuch/c.pem\ntls_key = /nosuch/k.pem", "/nosuch/c.pem: not readable"),
        ("", "state_dir = /nosuch/state", "/nosuch/state: missing"),
    ],
)
def test_what_is_wrong_with_the_options(tmp_path: Path, state: Path, default: str, sopa: str, says: str) -> None:
    assert any(says in line for line in wrong(controller(configured(tmp_path, state, default, sopa))))


def test_a_token_that_others_can_read(tmp_path: Path, state: Path) -> None:
    (state / "token").chmod(0o644)
    [line] = wrong(controller(configured(tmp_path, state)))
    assert line.endswith(f"Mend: chmod 600 {state}/token")


def test_no_configuration_file(tmp_path: Path) -> None:
    [line] = wrong(controller(str(tmp_path / "nosuch.conf")))
    assert "nosuch.conf" in line


def test_a_host_without_anything(tmp_path: Path) -> None:
    token = tmp_path / "agent-token"
    result = run("host", "--iface", "lo", "--agent-token-file", str(token), "--controller", NOWHERE)
    lines = wrong(result)
    assert any("no address of 10.0.0.0/8" in line for line in lines)
    assert any(f"{token}: missing" in line for line in lines)
    assert any("no controller" in line for line in lines)
    result = run("host", "--iface", "nosuch0", "--agent-token-file", str(token), "--controller", NOWHERE)
    assert any("nosuch0: no such interface" in line for line in wrong(result))


def test_no_switch_here(tmp_path: Path) -> None:
    result = run("switch", "--db", f"unix:{tmp_path}/db.sock")
    assert result.exit_code == 1
    assert "is Open vSwitch running here?" in result.output
