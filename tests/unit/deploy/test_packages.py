"""What the Debian packages will contain: the lock file, and the environments as they follow from imports."""

import importlib.util
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import setuptools

import sopa_ryu

ROOT = Path(__file__).parents[3]
DEBIAN = ROOT / "deploy/debian"
Followed = dict[str, tuple[set[str], set[str]]]  # by package: its own modules, and the other packages that those import


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
def followed(environment: ModuleType) -> Followed:
    return {name: environment.followed(package) for name, package in environment.PACKAGES.items()}


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    return loaded(ROOT / "scripts/lock.py")


def test_the_lock_file_fits_the_requirements(lock: ModuleType) -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/lock.py", "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lock.wanted()) == sum(line[:1].isalnum() for file in lock.LISTS for line in file.read_text().splitlines())


def test_packages_have_the_files_beside_modules_that_the_distribution_has(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, dict[str, list[str]]] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **its: given.update(its))
    loaded(ROOT / "setup.py")
    packaged: set[Path] = set()
    for name, patterns in environment._FILES.items():
        packaged.update(*((ROOT / name.replace(".", "/")).glob(pattern) for pattern in patterns))
    for name, patterns in given["package_data"].items():
        wanted = {file for pattern in patterns for file in (ROOT / name).glob(pattern)}
        left = {file for file in wanted - packaged if file.parent.name != "bench"}  # benches are run in a checkout
        assert {file.name for file in left} <= {"py.typed"}


@pytest.mark.parametrize("change", [("click==", "click==1"), ("--hash=sha256:", "", 1), ("click==", "#click==")])
def test_a_wrong_lock_file_is_noticed(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    file = tmp_path / "requirements.lock"
    file.write_text(lock.LOCK.read_text().replace(*change))
    monkeypatch.setattr(lock, "LOCK", file)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["lock.py", "--check"])
    with pytest.raises(SystemExit, match="does not fit"):
        lock.main()


def test_environments_have_what_is_locked(environment: ModuleType, followed: Followed, lock: ModuleType) -> None:
    locked = lock.pins(lock.LOCK.read_text())
    for name, (own, others) in followed.items():
        for found in environment.distributions(others):
            assert locked[lock.normal(found.metadata["Name"])] == found.version
        wanted = {"sopa_ryu.cli.agent", "sopa_ryu.agent.runner", "sopa_ryu.cli.query", "sopa_ryu.agent.put_back"}
        assert wanted - own <= ({"sopa_ryu.agent.put_back"} if name == "sopa-controller" else set())


def test_environments_have_what_they_start(environment: ModuleType, followed: Followed) -> None:
    modules = environment.modules()
    for name, (own, others) in followed.items():
        assert ("ryu" in others) == (name != "sopa-agent")
        started = {found for module in own for found in re.findall(r'"-m",\s*"([\w.]+)"', modules[module].read_text())}
        assert started & modules.keys() <= own
        assert ("sopa_ryu.health.worker" in own) == (name != "sopa-agent")
        assert {target.partition(":")[0] for target in environment.PACKAGES[name].commands.values()} <= own
    assert followed["sopa-tools"][0] == set(modules)


def test_an_agents_environment_is_what_an_agent_and_queries_import(followed: Followed) -> None:
    own, others = followed["sopa-agent"]
    assert others == {"click", "httpx", "msgspec", "prometheus_client", "pyroute2", "rich", "websockets", "yaml"}
    assert not any(name.startswith(("experiments", "topologies.lab", "sopa_ryu.web")) for name in own)


def test_what_a_package_lacks_is_imported_inside_functions_only(environment: ModuleType, followed: Followed) -> None:
    modules = environment.modules()
    for name, (own, _) in followed.items():
        for absent in environment.PACKAGES[name].absent:
            outside = re.compile(rf"^(from {re.escape(absent)}|import {re.escape(absent)}\b)", re.M)
            assert [module for module in own if outside.search(modules[module].read_text())] == []


def test_units_and_configuration_are_in_the_packages() -> None:
    listed = " ".join(file.read_text() for file in DEBIAN.glob("*.install"))
    units = [f"systemd/{file.name}" for file in (ROOT / "deploy/systemd").iterdir()]
    assert [name for name in (*units, "agent.env", "relay.env", "sopa.conf") if f"deploy/{name}" not in listed] == []
    assert "deploy/fabrics usr/share/sopa-controller" in listed


def test_an_upgrade_does_not_stop_the_controller() -> None:
    # without the option, debhelper stops it before, and --no-start has nothing start it again
    [line] = re.findall(r"^\tdh_installsystemd .*", (DEBIAN / "rules").read_text(), re.M)
    assert "--no-start --no-stop-on-upgrade" in line


def test_each_build_of_other_files_has_a_higher_version_and_a_checkout_says_its_commit(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()

    for name in ("scripts/version.sh", "sopa_ryu/__init__.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    assert sopa_ryu.commit_of(tmp_path) == ""
    run("git", "init", "-q")
    made = ["0.1.0"]
    for message in ("first", "second"):
        run("git", "add", ".")
        run("git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", message)
        made.append(run("scripts/version.sh"))
        assert made[-1].endswith(sopa_ryu.commit_of(tmp_path))
        (tmp_path / "file").write_text(message)
        made.append(run("scripts/version.sh"))
    run("git", "-c", "user.name=x", "-c", "user.email=x", "stash", "-uq")
    run("git", "pack-refs", "--all")
    run("git", "worktree", "add", "-q", f"../{tmp_path.name}-other")
    assert sopa_ryu.commit_of(tmp_path) == sopa_ryu.commit_of(tmp_path.with_name(f"{tmp_path.name}-other")) == made[3][-10:]
    run("git", "tag", f"v{made[1].partition('~')[0]}")
    made.append(run("scripts/version.sh"))
    for before, after in pairwise(made):
        run("dpkg", "--compare-versions", before, "lt", after)
