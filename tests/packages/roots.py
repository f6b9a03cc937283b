"""Roots of Debian for a test: an overlay on one that debootstrap has made, with what apt installs in it."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

WORK = Path(__file__).parents[2] / "build/deb"
CHROOT = WORK / os.environ.get("SOPA_CHROOT", "chroot")
"""The Debian that scripts/test_deb.sh has made: that of the packages."""
ARCHIVES = WORK / f"archives-{CHROOT.name}"
MINUTES = 20 * 60
OUTSIDE = "SOPA_MOUNTS_OUTSIDE"
"""The mount namespace in which scripts/test_deb.sh was started: mounts here must be in another."""
# What differs after any installation: caches, logs, apt's and dpkg's own state, files of the machine, and of its users.
_IGNORED = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/apt", "var/log", "root", "etc/resolv.conf")
_OWN_STATE = re.compile(
    r"var/lib/dpkg/(status|available|diversions|statoverride|lock|triggers|info/format)|etc/.*-$|etc/\.pwd\.lock"
)
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    **{name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")},
}


class Root:
    """A root of Debian: an overlay in a mount namespace that ends with the tests."""

    def __init__(self, directory: Path, below: Sequence[Path] = (CHROOT,)) -> None:
        # otherwise mounts would stay
        assert os.readlink("/proc/self/ns/mnt") != os.environ[OUTSIDE]
        self.path, self.upper = directory / "root", directory / "upper"
        for made in (self.path, self.upper, directory / "work", ARCHIVES):
            made.mkdir(parents=True, exist_ok=True)
        self._options = f"lowerdir={':'.join(map(str, below))},upperdir={self.upper},workdir={directory / 'work'}"
        self.mount()
        _done("mount", "-t", "proc", "proc", self.path / "proc")
        _done("mount", "--rbind", "/sys", self.path / "sys")
        _done("mount", "--rbind", "/dev", self.path / "dev")
        _done("mount", "-t", "tmpfs", "tmpfs", self.path / "run")
        _done("mount", "--bind", ARCHIVES, self.path / "var/cache/apt/archives")
        (self.path / "run/lock").mkdir()
        shutil.copyfile("/etc/resolv.conf", self.path / "etc/resolv.conf")
        policy = self.path / "usr/sbin/policy-rc.d"  # there is no init
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)

    def mount(self) -> None:
        """Mount the files alone."""
        _done("mount", "-t", "overlay", "overlay", "-o", self._options, self.path)

    def unmount(self) -> None:
        _done("umount", "--recursive", self.path)

    def command(self, *words: str | Path, netns: str | None = None, user: str = "root") -> list[str]:
        """Return a command line that runs a command in this root, and in a network namespace."""
        enter = ["nsenter", f"--net={netns}"] if netns else []
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        inside = ["chroot", *([f"--userspec={user}:{user}"] if user != "root" else []), str(self.path)]
        return [*enter, *inside, "env", "-i", *environment, *map(str, words)]

    def run(self, *words: str | Path, netns: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in this root; if it must succeed, a failure shows its output."""
        done = subprocess.run(self.command(*words, netns=netns), capture_output=True, text=True, check=False, timeout=MINUTES,
                              stdin=subprocess.DEVNULL)  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def apt(self, *words: str | Path, netns: str | None = None) -> str:
        """Run apt-get in this root, without recommended packages, and return its output."""
        options = ["--yes", "--quiet", "--no-install-recommends", "--option=APT::Sandbox::User=root"]
        done = self.run("apt-get", *options, *words, netns=netns)
        return done.stdout + done.stderr

    def install(self, *packages: Path, netns: str | None = None) -> str:
        for package in packages:
            shutil.copyfile(package, self.path / "tmp" / package.name)
        return self.apt("install", *(f"./tmp/{package.name}" for package in packages), netns=netns)

    def installed(self) -> set[str]:
        return set(self.run("dpkg-query", "--show", "--showformat=${Package}\n").stdout.split())

    def accounts(self) -> list[str]:
        return [line for name in ("passwd", "group") for line in (self.path / "etc" / name).read_text().splitlines()]

    def files(self) -> dict[str, tuple[object, ...]]:
        """Return every file, link and directory, with owner, mode, and size or target."""
        return dict(self._files(""))

    def _files(self, below: str) -> Iterator[tuple[str, tuple[object, ...]]]:
        for entry in os.scandir(self.path / below):
            name = f"{below}/{entry.name}".lstrip("/")
            if name in _IGNORED or _OWN_STATE.match(name):
                continue
            its = entry.stat(follow_symlinks=False)
            what = os.readlink(entry.path) if entry.is_symlink() else its.st_size if stat.S_ISREG(its.st_mode) else None
            yield name, (oct(its.st_mode), its.st_uid, its.st_gid, what)
            if entry.is_dir(follow_symlinks=False):
                yield from self._files(name)


def higher(package: Path, directory: Path) -> Path:
    """The same package with a higher version."""
    name, version, architecture = package.stem.split("_")
    source, file = directory / name, directory / f"{name}_{version}+1_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, source], check=True)
    control = source / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {version}\n", f"Version: {version}+1\n"))
    [module] = source.rglob("sopa_ryu/__init__.py")
    module.write_text(module.read_text().replace(f'"{version}"', f'"{version}+1"'))
    subprocess.run(["dpkg-deb", "--build", "-Zgzip", "-z1", source, file], check=True, capture_output=True)
    return file


def _done(*words: str | Path) -> None:
    subprocess.run(words, check=True)
