"""The lock file of all that the packages contain: name, version and SHA-256 of every file that pip installs.

``python scripts/lock.py``, on amd64, writes deploy/requirements.lock anew, after a change of requirements.txt or
requirements-build.txt; the files are those that pip chooses on amd64 and arm64 for the Pythons of Debian 12 and 13. What one needs
is locked for all, without a marker. ``--check`` compares the versions only, without a network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy/requirements.lock"
LISTS = (ROOT / "requirements-build.txt", ROOT / "requirements.txt")
PYTHONS = ("3.11", "3.13")
ARM64 = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)]
"""pip's options for arm64: wheels for glibc 2.36, Debian 12's, and earlier, the latest first."""
_HEAD = "# Written by scripts/lock.py from requirements-build.txt and requirements.txt: do not edit.\n"


def normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Return the versions, by normal name, of a list of requirements or of a lock file."""
    found = re.findall(r"^([\w.-]+)==([^\s\\#;]+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def wanted() -> dict[str, str]:
    """Return the versions that the lists of requirements name."""
    return {name: version for file in LISTS for name, version in pins(file.read_text()).items()}


def chosen(python: str, platform: Sequence[str] = ()) -> dict[str, str]:
    """Return the SHA-256 of the files that pip chooses for a Python, by the normal names of all that is wanted.

    Args:
        python: Its version.
        platform: pip's options for an architecture that is not this machine's.
    """
    # Metadata of sdists is made here, by what requirements-build.txt names. pip knows other Pythons for a target only; a dry run
    # leaves that alone.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--no-build-isolation", "--report=-", f"--python-version={python}", f"--target={ROOT / 'build/none'}"]
    command += platform
    command += [f"{name}=={version}" for name, version in wanted().items()]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    archives = {normal(item["metadata"]["name"]): item["download_info"]["archive_info"] for item in report["install"]}
    return {name: archive["hashes"]["sha256"] for name, archive in archives.items()}


def locked() -> str:
    """Return the text of a lock file: what the lists of requirements name, with the hashes of its files."""
    files = [chosen(python, platform) for python in PYTHONS for platform in ((), ARM64)]
    lines = []
    for name, version in sorted(wanted().items()):
        hashes = sorted({its[name] for its in files})
        lines.append(f"{name}=={version}{''.join(f' --hash=sha256:{its}' for its in hashes)}\n")
    return _HEAD + "".join(lines)


def main() -> None:
    """Write the lock file, or with --check end with a message if it does not fit."""
    if "--check" not in sys.argv[1:]:
        LOCK.write_text(locked())
    text = LOCK.read_text()
    names, versions = pins(text), wanted()
    unequal = sorted(name for name in {*names, *versions} if names.get(name) != versions.get(name))
    if unequal or len(re.findall(r"==\S+ --hash=sha256:", text)) != len(names):
        sys.exit(f"{LOCK.relative_to(ROOT)} does not fit {', '.join(unequal)}: .venv/bin/python scripts/lock.py")


if __name__ == "__main__":
    main()
