"""The packages as files of a root: what they need, contain and leave."""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.packages.roots import CHROOT, Root

NAMES = ("sopa-agent", "sopa-controller", "sopa-tools")
MAX_AGENT_BYTES = 60_000_000
NOT_NEEDED = re.compile(
    r"gcc|g\+\+|cpp|clang|llvm|make|chromium|mininet|openvswitch|python3-(scipy|numpy|ryu|pip)|.*-dev$|systemd$"
)
COMMANDS = ("agent", "arbiter", "cluster", "demo", "experiment", "health", "lab", "relay", "status", "token", "trace")
PACKAGE_OF = {"relay": "sopa-controller", "lab": "sopa-tools", "demo": "sopa-tools", "experiment": "sopa-tools"}
"""The package with the least that has a command, of those that not all have."""
IMPORT_ALL = """
import importlib, pathlib, sys
if "sopa-agent" not in sys.prefix:
    import sopa_ryu.manager
    sopa_ryu.manager.make_ryu_importable()
site = pathlib.Path(importlib.import_module("sopa_ryu").__file__).parents[1]
files = [file for name in ("topologies", "flowrules", "sopa_ryu", "experiments") for file in sorted((site / name).rglob("*.py"))]
for file in files:
    name = ".".join(file.relative_to(site).with_suffix("").parts).removesuffix(".__init__")
    if name.endswith("__main__"):
        continue
    importlib.import_module(name)
"""


def test_an_agent_installs_on_a_bare_root_without_a_compiler(directory: Path, bare: Path, debs: dict[str, Path]) -> None:
    root = Root(Path(mkdtemp(dir=directory)), [bare, CHROOT])
    before = root.installed()
    root.install(debs["sopa-agent"])
    new = root.installed() - before
    assert {"sopa-agent", "python3", "libbpf1"} <= new
    assert [name for name in new if NOT_NEEDED.match(name)] == []
    assert root.run("sopa", "--version").stdout == f"sopa, version {debs['sopa-agent'].name.split('_')[1]}\n"


@pytest.mark.parametrize("package", NAMES)
def test_a_package_alone_works_and_leaves_nothing(package: str, new_root: Callable[..., Root], debs: dict[str, Path]) -> None:
    root = new_root(lab=package == "sopa-tools")
    files, accounts = root.files(), root.accounts()
    root.install(debs[package])

    # all that it contains can be imported, without what only other packages have
    python = f"/usr/lib/{package}/bin/python3"
    root.run(python, "-c", IMPORT_ALL)
    names = {path.name for path in (root.path / f"usr/lib/{package}/lib").glob("python3.*/site-packages/*")}
    assert ("ryu" in names) == (package != "sopa-agent")
    assert ("numpy" in names) == (package != "sopa-agent")
    assert ({"scipy", "matplotlib", "experiments", "networkx"} & names != set()) == (package == "sopa-tools")

    inside = (root.path / f"usr/lib/{package}").rglob("*")
    size = sum(file.stat().st_size for file in inside if file.is_file() and not file.is_symlink())
    print(f"{package}: {size / 1e6:.1f} MB in /usr/lib, bytecode included")
    assert package != "sopa-agent" or size < MAX_AGENT_BYTES
    assert list((root.path / f"usr/lib/{package}").rglob("sopa_egress.o"))

    # the documented commands of its part
    asked = root.run("sopa", "status", "--controller", "127.0.0.1:1", check=False)  # a lab may be published at 8080
    assert (asked.returncode, "no answer from http://127.0.0.1:1" in asked.stderr) == (1, True)
    assert "Usage: sopa agent" in root.run("sopa", "agent", "--help").stdout
    shown = root.run("sopa", "--help").stdout
    page = root.run("zcat", "/usr/share/man/man1/sopa.1.gz").stdout
    for command in COMMANDS:
        done = root.run("sopa", command, "--help", check=False)
        assert f"\n.SH SOPA {command.upper()}\n" in page
        its = PACKAGE_OF.get(command, package)
        if package in (its, "sopa-tools"):
            assert f"Usage: sopa {command}" in done.stdout
            assert f"\n  {command} " in shown
        else:
            assert (done.returncode, f"{command} is in the Debian package {its}" in done.stderr) == (2, True)
            assert f"\n  {command} " not in shown
    if package == "sopa-agent":
        assert not (root.path / "usr/bin/ryu-manager").exists()
        said = root.run("sopa", "doctor", "controller", check=False).stderr
        assert "is in the Debian package sopa-controller" in said
        assert root.run("sopa", "parser", "status", "--iface", "nosuch0", check=False).returncode == 1
    else:
        assert "--sopa-k" in root.run("ryu-manager", "--help").stdout
    for file in ("bash-completion/completions/sopa", "zsh/vendor-completions/_sopa", "fish/vendor_completions.d/sopa.fish"):
        root.run("test", "-s", f"/usr/share/{file}")

    # the commands wrote no bytecode, or another file, beside those that the installation wrote
    assert root.run("dpkg", "--verify", package).stdout == ""

    root.apt("purge", "--autoremove", package)
    assert root.accounts() == accounts
    left = {name for name, its in root.files().items() if files.get(name) != its}
    # contents of these are compared above
    assert left <= {"etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"}
    assert set(files) <= set(root.files())


def test_all_three_on_one_machine(new_root: Callable[..., Root], debs: dict[str, Path]) -> None:
    root = new_root(lab=True)
    files, accounts = root.files(), root.accounts()
    root.install(*(debs[name] for name in NAMES))
    for name in reversed(NAMES):
        target = root.run("readlink", "--canonicalize", "/usr/bin/sopa").stdout.strip()
        assert target == f"/usr/lib/{name}/bin/sopa"
        root.run("sopa", "--version")
        root.apt("purge", name)
    assert root.accounts() == accounts
    assert set(root.files()) == set(files)


def test_a_lab_of_the_package(new_root: Callable[..., Root], debs: dict[str, Path]) -> None:
    root = new_root(lab=True)
    root.install(debs["sopa-tools"])
    (root.path / "root/script").write_text("h0_0_2 ping -c 2 h2_1_3\nsh sopa status\n")
    done = root.run("sopa", "lab", "--script", "/root/script")
    assert "2 received" in done.stdout + done.stderr
    assert "20 of 20 switches" in done.stdout


def test_units_start_commands_and_name_documents_that_are_there(new_root: Callable[..., Root], debs: dict[str, Path]) -> None:
    root = new_root()
    root.install(debs["sopa-agent"], debs["sopa-controller"])
    units = sorted((root.path / "lib/systemd/system").glob("sopa-*.service"))
    assert units
    for unit in units:
        text = unit.read_text()
        for command in re.findall(r"^Exec(?:Start|Stop)=(\S+)", text, re.M):
            root.run("test", "-x", command)
        for document in re.findall(r"^Documentation=file:(\S+)", text, re.M):
            root.run("test", "-s", document)
