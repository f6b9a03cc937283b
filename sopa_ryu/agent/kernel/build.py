"""Compile the eBPF objects, at installation and before the tests: ``python -m sopa_ryu.agent.kernel.build``."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sopa_ryu.runtime.atomic_file import replaced

SOURCES = Path(__file__).parents[1] / "bpf"
EGRESS, OPTION, PARSER = SOURCES / "sopa_egress.o", SOURCES / "sopa_option.o", SOURCES / "sopa_parser.o"
MCS, MCS_OPS, CFR = SOURCES / "sopa_mcs.o", SOURCES / "sopa_mcs_ops.o", SOURCES / "sopa_cfr.o"
PROBE, SPREAD = SOURCES / "sopa_probe.o", SOURCES / "sopa_spread.o"
EMPTY = SOURCES / "empty.o"
SRV6 = SOURCES / "sopa_srv6.o"
OBJECTS = (EGRESS, OPTION, SRV6, MCS, MCS_OPS, CFR, PARSER, PROBE, SPREAD, EMPTY)
# v3 has 32-bit registers and atomics that return a value: Linux 5.12
FLAGS = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror")


class BuildError(RuntimeError):
    """The eBPF objects cannot be compiled here; the message says what is missing."""


def build(targets: Sequence[Path] = OBJECTS, *, force: bool = False) -> list[Path]:
    """Compile each object that is older than a source, or all of them.

    Args:
        targets: Objects, each in the directory of its source; the agent's by default.

    Returns:
        The objects that were compiled.

    Raises:
        BuildError: If clang or a header is missing, or the sources do not compile.
    """
    stale = [target for target in targets if force or not _is_current(target)]
    for target in stale:
        _compile(target)
    return stale


def _is_current(target: Path) -> bool:
    sources = [*SOURCES.glob("*.h"), target.with_suffix(".c"), Path(__file__)]
    return target.exists() and all(source.stat().st_mtime <= target.stat().st_mtime for source in sources)


def _compile(target: Path) -> None:
    clang = shutil.which("clang")
    if clang is None:
        raise BuildError("clang is missing: apt install clang libbpf-dev")
    try:
        with replaced(target) as fresh:  # a running agent may be loading the old one
            command = [clang, *FLAGS, f"-I/usr/include/{_multiarch()}", "-c", str(target.with_suffix(".c")), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                hint = "\n(apt install libbpf-dev linux-libc-dev)" if "file not found" in done.stderr else ""
                raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}{hint}")
    except OSError as error:
        raise BuildError(f"cannot write {target}: {error.strerror}") from error


def _multiarch() -> str:
    """Return Debian's name of this architecture, the directory of <asm/types.h>."""
    if gcc := shutil.which("gcc"):
        done = subprocess.run([gcc, "-print-multiarch"], capture_output=True, text=True, check=False)
        if name := done.stdout.strip():
            return name
    return f"{platform.machine()}-linux-gnu"


if __name__ == "__main__":
    try:
        for path in build(force="--force" in sys.argv[1:]):
            print(f"built {path}")
    except BuildError as problem:
        sys.exit(f"sopa: {problem}")
