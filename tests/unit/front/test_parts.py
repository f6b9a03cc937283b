"""A front's parts go on after a programming error in one of them, and its door serves addresses in turn."""

import asyncio
import contextlib
import socket

import pytest

from sopa_ryu.front.door import FrontDoor
from sopa_ryu.runtime import service


def test_a_part_that_crashes_begins_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(service, "RESTART_SECONDS", 0.0)
    begun = 0

    async def run() -> None:
        again = asyncio.Event()

        async def part() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise ZeroDivisionError
            again.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(service.kept(part))
        await again.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert begun == 2
    assert "part crashed, restarting: report the traceback" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_who_connects_without_end_delays_others_by_one_connection_of_its_own() -> None:
    async def served() -> list[str]:
        order: list[str] = []
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for source in ["127.0.0.2"] * 8 + ["127.0.0.1"]:
                stack.enter_context(socket.create_connection(listener.getsockname(), source_address=(source, 0)))
            door = FrontDoor(listener, lambda *_: None)

            async def serve(connection: socket.socket, peer: str) -> None:
                connection.close()
                order.append(peer)

            door._serve = serve  # type: ignore[method-assign]
            door.open()
            while len(order) < 9:
                await asyncio.sleep(0)
            door.close()
        return order

    assert "127.0.0.1" in asyncio.run(served())[:2]
