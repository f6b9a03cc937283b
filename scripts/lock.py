"""The lock file of all that the packages contain: name, version and SHA-256 of every file that pip installs.

``python scripts/lock.py`` writes deploy/requirements.lock anew, after a change of requirements.txt or requirements-build.txt; the
files are those that pip chooses on this machine (Debian 12, amd64). ``--check`` compares the versions only, without a network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy/requirements.lock"
LISTS = (ROOT / "requirements-build.txt", ROOT / "requirements.txt")
_HEAD = "# Written by scripts/lock.py from requirements-build.txt and requirements.txt: do not edit.\n"


def normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Return the versions, by normal name, of a list of requirements or of a lock file."""
    found = re.findall(r"^([\w.-]+)==([^\s\\#]+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def wanted() -> dict[str, str]:
    """Return the versions that the lists of requirements name."""
    return {name: version for file in LISTS for name, version in pins(file.read_text()).items()}


def locked() -> str:
    """Return the text of a lock file: what pip chooses for the lists of requirements, with its hashes."""
    # Metadata of sdists is made here, by what requirements-build.txt names.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--no-build-isolation", "--report=-"]
    for file in LISTS:
        command += ["--requirement", str(file)]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    lines = []
    for item in report["install"]:
        its, archive = item["metadata"], item["download_info"]["archive_info"]
        lines.append(f"{normal(its['name'])}=={its['version']} --hash=sha256:{archive['hashes']['sha256']}\n")
    return _HEAD + "".join(sorted(lines))


def main() -> None:
    """Write the lock file, or with --check end with a message if it does not fit."""
    if "--check" not in sys.argv[1:]:
        LOCK.write_text(locked())
    text = LOCK.read_text()
    names, versions = pins(text), wanted()
    unequal = sorted(name for name in {*names, *versions} if names.get(name) != versions.get(name))
    if unequal or text.count("--hash=sha256:") != len(names):
        sys.exit(f"{LOCK.relative_to(ROOT)} does not fit {', '.join(unequal)}: .venv/bin/python scripts/lock.py")


if __name__ == "__main__":
    main()
