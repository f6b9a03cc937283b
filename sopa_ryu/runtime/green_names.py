"""Names of machines, looked up without blocking other green threads: by eventlet's own resolver, loaded for the first of them.

It takes a sixth of a controller's start, and a controller is mostly given addresses.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import eventlet.green.socket
import eventlet.patcher

_blocking = eventlet.patcher.original("socket")


def install() -> None:
    """Have green sockets look names up. Before it, eventlet is imported with EVENTLET_NO_GREENDNS; after it, it patches sockets."""
    eventlet.green.socket.getaddrinfo = getaddrinfo


def getaddrinfo(host: str | bytes | None, *args: Any, **options: Any) -> Any:
    """As of module socket."""
    if host is None or _is_address(host):
        return _blocking.getaddrinfo(host, *args, **options)
    from eventlet.support import greendns

    return greendns.getaddrinfo(host, *args, **options)


def _is_address(host: str | bytes) -> bool:
    try:
        ip_address((host.decode() if isinstance(host, bytes) else host).partition("%")[0])
    except ValueError:
        return host in ("", b"")
    return True
