"""``sopa support``: what is in the archive, and what is not."""

import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main, support

TOKEN = "Gq2-operators-own-token"


def test_the_archive_has_what_can_be_had_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "agent-token").write_text(f"10.0.0.2 {TOKEN[::-1]}\n")
    (tmp_path / "sopa.conf").write_text(f"[sopa]\nk = 4  # 10.0.0.2 {TOKEN}\n")
    monkeypatch.setattr(support, "DEFAULT_TOKEN_FILE", tmp_path / "token")
    monkeypatch.setattr(support, "CONFIGURATION", tmp_path)
    monkeypatch.setattr(support, "MAX_BYTES", 4000)
    said = f"head -c 9000 /dev/zero; echo {TOKEN[::-1]} end"
    monkeypatch.setattr(support, "COMMANDS", {"journal.txt": ["sh", "-c", said], "absent.txt": ["no-such-command"]})
    file = tmp_path / "it.tar.gz"
    words = ["support", "--controller=127.0.0.1:1", f"--output={file}"]
    assert CliRunner().invoke(main, words).exit_code == 0
    with tarfile.open(file) as archive:
        parts = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    assert parts["it/etc/sopa.conf"] == b"[sopa]\nk = 4  # 10.0.0.2 REMOVED\n"
    assert parts["it/journal.txt"].endswith(b"\0REMOVED end\n")
    assert len(parts["it/journal.txt"]) <= 4000
    missing = parts["it/missing.txt"].decode()
    assert "absent.txt: [Errno 2]" in missing
    assert "controller/fabric.json: no answer from http://127.0.0.1:1" in missing
    assert {name for name in parts if "token" in name} == set()
    again = CliRunner().invoke(main, words)
    assert (again.exit_code, "exists: name another file" in again.output) == (1, True)
    nowhere = CliRunner().invoke(main, ["support", f"--output={tmp_path}/nowhere/its.tar.gz"])
    assert (nowhere.exit_code, "cannot be written: No such file" in nowhere.output) == (1, True)
