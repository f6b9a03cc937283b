"""A relay in front of each node of etcd that keeps writes back, as a node does whose disk is slow: reads and renewals pass."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from topologies.lab.etcd import Place

WRITES = (b"/v3/kv/txn", b"/v3/lease/grant", b"/v3/lease/revoke")
CHUNK = 1 << 16


class SlowWrites:
    """A TCP relay for each node, on a thread of its own, as a context manager.

    A write reaches its node `seconds` after the client has sent it, also if the client has given it up meanwhile.

    Parameters
    ----------
    places : sequence of Place

    Attributes
    ----------
    seconds : float
        0: nothing is kept back.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.seconds = 0.0
        self._places = places
        self._ports: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._end = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def address(self, name: str = "sopa", first: int = 0) -> str:
        """Return the address for ``--sopa-cluster``; ``first`` is the node that a client begins with."""
        ports = self._ports[first:] + self._ports[:first]
        return f"etcd://{','.join(f'127.0.0.1:{port}' for port in ports)}/{name}"

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        servers = []
        for place in self._places:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place = place) -> None:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    await self._relay(reader, writer, place)
                writer.close()

            servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        self._ports = [server.sockets[0].getsockname()[1] for server in servers]
        self._ready.set()
        await self._end.wait()
        for server in servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place) -> None:
        inner, outer = await asyncio.open_connection(place.host, place.client_port)
        back = asyncio.create_task(_answers(inner, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
                body = await reader.readexactly(int(next(lengths).split(b":")[1]))
                if head.split(b" ", 2)[1] in WRITES:
                    await asyncio.sleep(self.seconds)
                outer.write(head + body)
                await outer.drain()
        finally:
            outer.close()
            back.cancel()


async def _answers(inner: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await inner.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
