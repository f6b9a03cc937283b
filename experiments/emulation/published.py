"""A lab's page and REST on the machine's loopback: connections there are handed to the lab's controller.

A socket belongs to the network namespace in which it was made. So the listening one is made before the lab's namespaces are, and
what accepts its connections may run inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from topologies.lab.isolation import KEEPER

HOST, PORT = "127.0.0.1", 8080
_BYTES = 1 << 16


class PublishError(OSError):
    """The port cannot be had; the text says what to do."""


def listening(port: int | None) -> socket.socket | None:
    """Return a socket that listens on loopback, at a free port if that of the default is taken; None for port 0.

    Raises:
        PublishError: The port that is asked for is taken.
    """
    if port == 0:
        return None
    try:
        return socket.create_server((HOST, PORT if port is None else port))
    except OSError as error:
        if port is not None:
            what = f"cannot publish the lab at {HOST}:{port}: {os.strerror(error.errno or 0)}"
            raise PublishError(f"{what}; choose another port with --publish, or 0 for none") from None
        return socket.create_server((HOST, 0))


class Published:
    """The lab at a listening socket, until the end of ``with``.

    Args:
        listener: Of `listening`, in the machine's namespace.
        target: Return the URL of the controller for a connection that begins.
    """

    def __init__(self, listener: socket.socket, target: Callable[[], str]) -> None:
        self._listener = listener
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Published:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, sock=self._listener), self._loop).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            url = urlsplit(await asyncio.to_thread(self._target))
            its_reader, its_writer = await asyncio.open_connection(url.hostname, url.port)
            with contextlib.closing(its_writer):
                await asyncio.gather(_pass_on(reader, its_writer), _pass_on(its_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError):
            writer.close()


def seen_from_outside(file: Path) -> Path:
    """Return the path by which root of the machine reads a file of the lab's mount namespace."""
    return Path(f"/proc/{os.environ[KEEPER]}/root") / file.relative_to("/")
