"""Room for the option of MCS in the headers that TCP writes: one program of the process, for the namespaces of its interfaces."""

from __future__ import annotations

import os
import struct
import threading

from sopa_ryu.agent.kernel import cgroup, libbpf
from sopa_ryu.agent.kernel.build import MCS_OPS
from sopa_ryu.agent.kernel.libbpf import AttachError, BpfMapError

PROGRAM = "sopa_mcs_ops"
_NAMESPACES, _SETTINGS = "mcs_namespaces", "mcs_settings_of"
OTHERS = 0
"""In place of the cookie of a network namespace: all those that no interface with MCS is in, as those of containers."""
_TAKEN = (
    "another interface in this network namespace has --policy mcs, of this agent or of another one: "
    "give each interface with MCS a network namespace of its own"
)
_OTHERS_TAKEN = (
    "another interface has --policy mcs with --forwarded spray, of this agent or of another one: leave it out at all but one, "
    "which serves all containers"
)


class Room:
    """The program that has TCP leave room, attached while an interface's programs fill it.

    The kernel detaches it when the process ends. Another program may detach it before, and `is_left` says so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # interfaces are taken, kept and given back in threads
        self._object = libbpf.Object(MCS_OPS)
        self._link = -1
        self._hosts: dict[int, int] = {}  # by namespace

    def leave(self, namespace: int, hosts: int, settings: int) -> None:
        """Have the sockets of a network namespace leave room in the headers of connections to some hosts.

        Args:
            namespace: Its cookie, or `OTHERS`.
            hosts: Descriptor of the map ``mcs_hosts`` of its interface's programs.
            settings: Of their map ``mcs_settings``.

        Raises:
            AttachError: If another interface has MCS for these sockets, or the kernel refuses.
            BpfLoadError, BpfMapError: If the kernel refuses the program, or has no room.
        """
        with self._lock:
            if self._hosts.get(namespace, hosts) != hosts:
                raise AttachError(_taken(namespace))
            try:
                if not self._object.loaded:
                    self._object.load()
                if namespace not in self._hosts:
                    self._check_free(namespace)
                    libbpf.update(self._object.map_fd(_SETTINGS), _key(namespace), struct.pack("=I", settings))
                    libbpf.update(self._object.map_fd(_NAMESPACES), _key(namespace), struct.pack("=I", hosts))
                    self._hosts[namespace] = hosts
                if not self._attached():
                    self._detach()
                    self._link = cgroup.attach_sock_ops(self._object.program_fd(PROGRAM))
            except BaseException:
                self._forget(namespace)
                raise

    def end(self, namespace: int) -> None:
        """Have TCP write the headers of a namespace as ever. May be repeated."""
        with self._lock:
            self._forget(namespace)

    def is_left(self) -> bool:
        """Return False if another program has detached the one that leaves room.

        Raises:
            AttachError: If the kernel refuses the question.
        """
        with self._lock:
            return self._attached()

    @property
    def program_fd(self) -> int:
        """The descriptor of the program, while room is left."""
        return self._object.program_fd(PROGRAM)

    def _attached(self) -> bool:
        return self._link >= 0 and cgroup.is_attached(self._link)

    def _check_free(self, namespace: int) -> None:
        """Two programs would reserve two options for one packet, and two interfaces' programs each know half of a connection."""
        for program in cgroup.sock_ops_programs():
            if libbpf.program_name(program) == PROGRAM and _serves(program, namespace):
                raise AttachError(_taken(namespace))

    def _forget(self, namespace: int) -> None:
        if self._hosts.pop(namespace, None) is not None:
            for name in (_NAMESPACES, _SETTINGS):
                libbpf.delete(self._object.map_fd(name), _key(namespace))
        if not self._hosts:
            self._detach()
            self._object.close()

    def _detach(self) -> None:
        if self._link >= 0:
            os.close(self._link)
            self._link = -1


def _taken(namespace: int) -> str:
    return _OTHERS_TAKEN if namespace == OTHERS else _TAKEN


def _serves(program: int, namespace: int) -> bool:
    """Return True if a process' program leaves room in headers of that namespace's sockets."""
    try:
        namespaces = libbpf.open_program_map(program, _NAMESPACES)
    except BpfMapError:  # its process has ended meanwhile, or it is another program of that name
        return False
    try:
        return libbpf.lookup(namespaces, _key(namespace), 4) is not None
    finally:
        os.close(namespaces)


def _key(namespace: int) -> bytes:
    return struct.pack("=Q", namespace)


ROOM = Room()
"""That of this process: Linux attaches 64 programs to the machine's sockets, and one serves all interfaces."""
