"""What systemd is told of a service (sd_notify(3)); nothing where it is not the process' manager."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> bool:
    """Send a state, such as ``READY=1``, to the service manager; return whether there is one that takes it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError:
            return False
    return True
