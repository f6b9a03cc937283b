"""Runs a function in private network, mount and process namespaces, so that nothing it creates outlives it.

Three processes are between the caller and the function, each of which dies with its parent (``PR_SET_PDEATHSIG``)::

    caller --fork--> keeper --unshare, fork--> init (process 1 inside) --fork--> main()

*init* mounts a fresh ``/proc``, ``/sys`` and ``/run`` and reaps orphans. When it ends, for any reason, the kernel kills every
process inside, and the namespaces end with the last of them: interfaces, mounts, sockets and files in ``/run``. So nothing has
to be cleaned up by hand, and two labs cannot see each other.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

GRACE_SECONDS = 10.0  # for main() to end after SIGTERM or SIGHUP, before it is killed

_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x0002_0000, 0x2000_0000, 0x4000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x4_0000
_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_WATCHED = (*_FORWARDED, signal.SIGINT, signal.SIGCHLD)
KEEPER = "SOPA_LAB_KEEPER"  # a process that sees the mounts inside, by its number outside
_VARIABLE = "SOPA_ISOLATED"  # the network namespace's inode number, for is_isolated()
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_PACKAGES = {
    "etcd": "etcd-server",
    "etcdctl": "etcd-client",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "mn": "mininet",
    "mnexec": "mininet",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ovs-appctl": "openvswitch-common",
    "ovs-dpctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-common",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-switch",
    "ping": "iputils-ping",
    "tc": "iproute2",
    "tcpdump": "tcpdump",
}

_libc = ctypes.CDLL(None, use_errno=True)


class NotRootError(PermissionError):
    """The caller is not root, which namespaces, interfaces and Open vSwitch's userspace datapath require."""

    def __init__(self) -> None:
        super().__init__("this needs root, to create namespaces and network interfaces: run it with sudo")


class MissingCommandError(FileNotFoundError):
    """A program that the lab needs is not installed."""


class IsolationError(OSError):
    """The kernel refused a namespace or a mount, for example in an unprivileged container."""


def require(*commands: str) -> None:
    """Check that programs are in ``PATH`` or an ``sbin`` directory; `MissingCommandError` names what to install otherwise."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
    missing = [command for command in commands if shutil.which(command, path=path) is None]
    if missing:
        packages = sorted({_PACKAGES.get(command, command) for command in missing})
        raise MissingCommandError(
            f"not installed: {', '.join(missing)}. `make install` installs them, or: apt install {' '.join(packages)}"
        )


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send ``signum`` to this process when the thread that forked it ends.

    Call it right after a fork, with ``os.getpid()`` from before the fork as ``parent``; a parent that has ended meanwhile is
    detected.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() not in (parent, 0):  # 0: the parent is outside this process namespace
        os._exit(128 + signum)


def isolated(main: Callable[[], int]) -> int:
    """Run ``main`` in a child process in private namespaces, and return its exit status.

    Standard streams and the terminal are shared. SIGTERM and SIGHUP to the caller become ``SystemExit`` (143, 129) in
    ``main``, which has `GRACE_SECONDS` to end; Ctrl-C at the terminal raises KeyboardInterrupt in ``main``. No process,
    interface, mount or file of ``/run`` remains, even if the caller is killed. Calls can be nested.

    The status may also be ``main``'s ``SystemExit`` code; 1 after an exception (shown on stderr), 130 after KeyboardInterrupt,
    128 + n after signal n. Raises `NotRootError`, or `IsolationError` if the kernel refuses the namespaces or a mount.
    """
    if os.geteuid() != 0:
        raise NotRootError
    sys.stdout.flush()
    sys.stderr.flush()
    errors, errors_in = os.pipe()
    caller = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        keeper = os.fork()
        if keeper == 0:
            _guarded(lambda: _keeper(main, caller, mask, errors_in), errors_in)
        os.close(errors_in)
        status = _watch(keeper, GRACE_SECONDS)
        with os.fdopen(errors, "rb") as pipe:
            problem = pipe.read().decode()
        while signal.sigtimedwait((*_FORWARDED, signal.SIGINT), 0):
            pass  # meant for main()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if problem:
        raise IsolationError(problem)
    return status


def is_isolated() -> bool:
    """Return whether this process runs inside `isolated`, where it may change the network."""
    return os.environ.get(_VARIABLE) == _network_namespace()


def _network_namespace() -> str:
    return str(os.stat("/proc/self/ns/net").st_ino)


def _guarded(body: Callable[[], int], errors: int) -> NoReturn:
    """Run a forked process's part; never return into the caller's stack."""
    status = 1
    try:
        status = body()
    except BaseException as error:
        text = str(error) if isinstance(error, IsolationError) else traceback.format_exc()
        os.write(errors, text.encode())
    finally:
        os._exit(status)


def _keeper(main: Callable[[], int], caller: int, mask: set[int | signal.Signals], errors: int) -> int:
    """Create the namespaces and wait; only the children of a process can move into a new process namespace."""
    die_with_parent(caller)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _check(_libc.unshare(_CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWPID), "new network, mount and process namespaces")
    alive, alive_in = os.pipe()
    keeper = os.getpid()
    os.environ[KEEPER] = str(keeper)
    init = os.fork()
    if init == 0:
        os.close(alive_in)
        _guarded(lambda: _init(main, keeper, alive, mask, errors), errors)
    os.close(alive)
    os.close(errors)
    return _watch(init, None)


def _init(main: Callable[[], int], keeper: int, alive: int, mask: set[int | signal.Signals], errors: int) -> int:
    """Run process 1 inside: prepare the namespaces, start main(), reap orphans, end with main()."""
    die_with_parent(keeper)
    if select.select([alive], [], [], 0)[0]:
        return 1  # the keeper's end of the pipe is closed: the keeper died before die_with_parent()
    os.close(alive)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount("sysfs", "/sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount("tmpfs", "/run", "tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755")
    with contextlib.suppress(IsolationError):  # a kernel without BPF: the BPF loader reports it
        _mount("bpf", "/sys/fs/bpf", "bpf", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _loopback_up()
    child = os.fork()
    if child == 0:
        os.close(errors)
        os._exit(_run(main, mask))
    os.close(errors)
    return _watch(child, None, reap_all=True)


def _run(main: Callable[[], int], mask: set[int | signal.Signals]) -> int:
    """Call main() with default signal handling, and convert any ending into an exit status."""
    die_with_parent(1)
    for signum in _FORWARDED:
        signal.signal(signum, _leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - set(_WATCHED))
    os.environ[_VARIABLE] = _network_namespace()
    atexit._clear()  # the caller's functions run in the caller
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(sbin for sbin in _SBIN if sbin not in path)])
    status = 1
    try:
        status = main()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            status = leaving.code or 0
        else:
            print(leaving.code, file=sys.stderr)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status & 0xFF


def _leave(signum: int, _frame: FrameType | None) -> None:
    for other in _FORWARDED:
        signal.signal(other, signal.SIG_IGN)  # a second signal would interrupt the cleanup
    raise SystemExit(128 + signum)


def _watch(child: int, grace: float | None, reap_all: bool = False) -> int:
    """Wait for a child and forward SIGTERM and SIGHUP to it; kill it ``grace`` seconds after the first.

    The signals in `_WATCHED` are blocked here.
    """
    deadline: float | None = None
    forwarded = 0
    while True:
        status: int | None = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, wait_status = os.waitpid(-1 if reap_all else child, os.WNOHANG)
                if pid == child:
                    status = os.waitstatus_to_exitcode(wait_status)
                if pid == 0 or not reap_all:
                    break
        if status is not None:
            return status if status >= 0 else 128 - status
        # a timeout, so that a lost SIGCHLD cannot block this process
        patience = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
        if patience <= 0:
            os.kill(child, signal.SIGKILL)
            deadline, patience = None, 1.0
        received = signal.sigtimedwait(_WATCHED, patience)
        if received is None and forwarded and reap_all:
            # Python may record a signal just before it blocks, and block nevertheless: a second signal wakes it. It is ignored if
            # the first was handled.
            os.kill(child, forwarded)
        if received and received.si_signo in _FORWARDED:
            forwarded = received.si_signo
            os.kill(child, forwarded)
            if grace is not None and deadline is None:
                deadline = time.monotonic() + grace


def _check(result: int, what: str) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise IsolationError(errno, f"cannot create {what}: {os.strerror(errno)}; a container needs to be privileged")


def _mount(source: str, target: str, kind: str | None, flags: int, data: bytes | None = None) -> None:
    kind_or_null = kind.encode() if kind else None
    result = _libc.mount(source.encode(), target.encode(), kind_or_null, ctypes.c_ulong(flags), data)
    _check(result, f"a private mount on {target}")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
