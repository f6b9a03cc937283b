"""Restrictions of a systemd unit for any command: ``python -m tests.helpers.sandbox UNIT COMMAND...``.

System calls, address families, executable memory, namespaces and capabilities are restricted by seccomp and prctl, as systemd
does it; the file system is not, because that needs systemd. It is for tests on machines that do not run systemd.
"""

import ctypes
import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EQUAL, MASKED_EQUAL = 4, 7  # libseccomp's comparisons
PROT_WRITE, PROT_EXEC = 2, 4
CLONE_NAMESPACES = 0x7E020000 | 0x80
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}
MAX_CAPABILITY = 40
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38


class Comparison(ctypes.Structure):
    """Of a system call's argument with a value: libseccomp's scmp_arg_cmp."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def values(unit: Path, name: str) -> list[str]:
    """Every value of a unit's setting, in order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def allowed_calls(unit: Path) -> set[str]:
    """The system calls that SystemCallFilter leaves."""
    calls: set[str] = set()
    for line in values(unit, "SystemCallFilter"):
        named = set(_calls(line.lstrip("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls | set(_calls(["@default"]))


def _calls(names: list[str]) -> Iterator[str]:
    for name in names:
        if not name.startswith("@"):
            yield name
            continue
        command = ["systemd-analyze", "syscall-filter", name]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        members = re.findall(r"^ {4}([@\w-]+)$", shown, re.MULTILINE)
        assert members, f"{name} has no system calls"
        yield from _calls(members)


def confine(unit: Path) -> None:
    """Allow this process what the unit allows."""
    calls, seccomp = allowed_calls(unit), ctypes.CDLL("libseccomp.so.2")
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ERRNO | errno.EPERM))
    number = seccomp.seccomp_syscall_resolve_name

    def rule(action: int, call: str, *comparisons: Comparison) -> None:
        given = (Comparison * len(comparisons))(*comparisons)
        known = number(call.encode())
        if known != -1:
            result = seccomp.seccomp_rule_add_array(context, action, known, len(comparisons), given)
            assert result == 0, f"{call}: {os.strerror(-result)}"

    [families] = values(unit, "RestrictAddressFamilies")
    known = [int(getattr(socket, name)) for name in families.split()]
    assert values(unit, "MemoryDenyWriteExecute") == values(unit, "RestrictNamespaces") == ["yes"]
    # these are allowed with some arguments only
    part = {"socket", "mmap", "mprotect", "pkey_mprotect", "clone", "unshare", "setns"}
    for call in sorted(calls - part):
        rule(ALLOW, call)
    for family in known:
        rule(ALLOW, "socket", Comparison(0, EQUAL, family, 0))
    rule(ALLOW, "mmap", Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
    rule(ALLOW, "mmap", Comparison(2, MASKED_EQUAL, PROT_WRITE, 0))
    for call in ("mprotect", "pkey_mprotect"):
        rule(ALLOW, call, Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
    rule(ALLOW, "clone", Comparison(0, MASKED_EQUAL, CLONE_NAMESPACES, 0))

    [bounding] = values(unit, "CapabilityBoundingSet")
    kept = {CAPABILITIES[name] for name in bounding.split()}
    for capability in set(range(MAX_CAPABILITY + 1)) - kept:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
