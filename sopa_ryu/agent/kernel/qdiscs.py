"""The qdiscs of an interface, by netlink, in the calling thread's network namespace (`netns.inside`).

Those that the kernel makes for classes by itself are hidden from an ordinary dump, and pyroute2 cannot ask for them: hence a
plain socket.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
"""The parents of an interface's qdisc, and of what is not one: ingress and clsact."""
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_TC = struct.Struct("=BBHiIII")  # struct tcmsg
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_GETQDISC, _ERROR, _DONE = 38, 2, 3
_REQUEST, _DUMP = 0x1, 0x300
_KIND, _OPTIONS, _INVISIBLE = 1, 2, 10  # TCA_KIND, TCA_OPTIONS, TCA_DUMP_INVISIBLE
_HTB_INIT = 2
_HTB_GLOBAL = struct.Struct("=III")  # the beginning of struct tc_htb_glob
_TYPE = 0x3FFF  # without NLA_F_NESTED
_MAX_BYTES = 1 << 16


class Qdisc(NamedTuple):
    """A qdisc.

    Args:
        handle, parent: Its number, 0 of one that the kernel has made, and the class in which it is, or `ROOT`; the upper 16
            bits of a class are those of its qdisc.
        default_class: Of htb: the class of packets that no filter has given one, 0 if they pass by all classes.
    """

    kind: str
    handle: int
    parent: int
    default_class: int = 0


def qdiscs(ifindex: int) -> list[Qdisc]:
    """Return the qdiscs of an interface, hidden ones included.

    Raises:
        OSError: If the kernel refuses.
    """
    body = _TC.pack(0, 0, 0, ifindex, 0, 0, 0) + _ATTRIBUTE.pack(_ATTRIBUTE.size, _INVISIBLE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.send(_HEADER.pack(_HEADER.size + len(body), _GETQDISC, _REQUEST | _DUMP, 1, 0) + body)
        return [qdisc for index, qdisc in _answers(asked) if index == ifindex]


def _answers(asked: socket.socket) -> Iterator[tuple[int, Qdisc]]:
    while True:
        messages = asked.recv(_MAX_BYTES)
        while len(messages) >= _HEADER.size:
            length, kind, *_ = _HEADER.unpack_from(messages)
            body, messages = messages[_HEADER.size : length], messages[(length + 3) & ~3 :]
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -struct.unpack_from("=i", body)[0]
                raise OSError(number, f"qdiscs cannot be read: {os.strerror(number)}")
            yield _TC.unpack_from(body)[3], _read(body)


def _read(body: bytes) -> Qdisc:
    _, _, _, _, handle, parent, _ = _TC.unpack_from(body)
    its = _attributes(body[_TC.size :])
    kind = its.get(_KIND, b"").split(b"\0")[0].decode(errors="replace")
    default = _attributes(its.get(_OPTIONS, b"")).get(_HTB_INIT, b"") if kind == "htb" else b""
    minor = _HTB_GLOBAL.unpack_from(default)[2] if len(default) >= _HTB_GLOBAL.size else 0
    return Qdisc(kind, handle, parent, handle | minor if minor else 0)


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _TYPE] = data[_ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]
    return found
