"""What the Debian packages will contain: the lock file, and the environments as they follow from imports."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
DEBIAN = ROOT / "deploy/debian"
NAMES = ("sopa-agent", "sopa-controller", "sopa-tools")


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def environment() -> ModuleType:
    module = loaded(DEBIAN / "environment.py")
    module.ROOT = ROOT  # it is run in a copy of the checkout in which its directory is debian/
    return module


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    return loaded(ROOT / "scripts/lock.py")


def test_the_lock_file_fits_the_requirements(lock: ModuleType) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/lock.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lock.wanted()) == sum(
        line[:1].isalnum() for file in lock.LISTS for line in file.read_text().splitlines()
    )


@pytest.mark.parametrize("change", [("click==", "click==1"), ("--hash=sha256:", "", 1), ("click==", "#click==")])
def test_a_lock_file_that_does_not_fit_is_noticed(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    file = tmp_path / "requirements.lock"
    file.write_text(lock.LOCK.read_text().replace(*change))
    monkeypatch.setattr(lock, "LOCK", file)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["lock.py", "--check"])
    with pytest.raises(SystemExit, match="does not fit"):
        lock.main()


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_has_what_is_locked_and_no_more(environment: ModuleType, lock: ModuleType, name: str) -> None:
    own, others = environment.followed(environment.PACKAGES[name])
    locked = lock.pins(lock.LOCK.read_text())
    for found in environment.distributions(others):
        assert locked[lock.normal(found.metadata["Name"])] == found.version
    assert {"sopa_ryu.cli.agent", "sopa_ryu.agent.runner", "sopa_ryu.cli.query", "sopa_ryu.agent.put_back"} - own <= (
        set() if name != "sopa-controller" else {"sopa_ryu.agent.put_back"}
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_has_what_its_processes_start(environment: ModuleType, name: str) -> None:
    modules = environment.modules()
    own, _ = environment.followed(environment.PACKAGES[name])
    started = {found for module in own for found in re.findall(r'"-m",\s*"([\w.]+)"', modules[module].read_text())}
    assert started & modules.keys() <= own
    assert ("sopa_ryu.health.worker" in own) == (name != "sopa-agent")


def test_an_agents_environment_is_what_an_agent_and_queries_import(environment: ModuleType) -> None:
    own, others = environment.followed(environment.PACKAGES["sopa-agent"])
    assert others == {"click", "httpx", "prometheus_client", "pyroute2", "rich", "websockets", "yaml"}
    assert not any(name.startswith(("experiments", "topologies.lab", "sopa_ryu.web")) for name in own)


def test_a_package_has_the_modules_of_its_commands(environment: ModuleType) -> None:
    for name in NAMES:
        own, _ = environment.followed(environment.PACKAGES[name])
        assert {target.partition(":")[0] for target in environment.PACKAGES[name].commands.values()} <= own
    own, _ = environment.followed(environment.PACKAGES["sopa-tools"])
    assert own == set(environment.modules())


def test_what_a_package_lacks_is_imported_inside_functions_only(environment: ModuleType) -> None:
    for package in environment.PACKAGES.values():
        own, _ = environment.followed(package)
        for module in own:
            text = environment.modules()[module].read_text()
            for absent in package.absent:
                assert not re.search(rf"^(from {re.escape(absent)}|import {re.escape(absent)}\b)", text, re.M), module


def test_units_and_configuration_are_in_the_packages() -> None:
    listed = " ".join(file.read_text() for file in DEBIAN.glob("*.install"))
    for file in [
        *(ROOT / "deploy/systemd").iterdir(),
        ROOT / "deploy/agent.env",
        ROOT / "deploy/relay.env",
        ROOT / "deploy/sopa.conf",
    ]:
        assert str(file.relative_to(ROOT)) in listed
    assert "deploy/fabrics usr/share/sopa-controller" in listed


def test_an_upgrade_does_not_stop_the_controller() -> None:
    # without the option, debhelper stops it before, and --no-start has nothing start it again
    [line] = re.findall(r"^\tdh_installsystemd .*", (DEBIAN / "rules").read_text(), re.M)
    assert "--no-start --no-stop-on-upgrade" in line
