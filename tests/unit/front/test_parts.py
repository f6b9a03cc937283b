"""A front: parts that crash begin again, its door serves addresses in turn, and the controller soon knows what a host has left."""

import asyncio
import contextlib
import socket
from types import SimpleNamespace

import pytest

from sopa_ryu.front.child import FLUSH_SECONDS, Front
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


def test_that_a_host_has_left_a_link_does_not_wait_for_what_else_changes() -> None:
    due: list[float] = []

    def call_at(at: float, _flush: object) -> SimpleNamespace:
        due.append(at)
        return SimpleNamespace(when=lambda: at, cancel=lambda: due.remove(at))

    front, session = Front.__new__(Front), SimpleNamespace(host="h0_0_2", left=())
    loop = SimpleNamespace(time=lambda: 100.0, call_at=call_at)
    vars(front).update(_loop=loop, _changed=set(), _left={}, _flush_at=None, _free_at=0.0)
    front._note(session)  # type: ignore[arg-type]
    assert due == [100.0 + FLUSH_SECONDS]
    session.left = ("a0_0-c0_1",)
    front._note(session)  # type: ignore[arg-type]
    assert due == [100.0]
    front._flush_at, front._free_at = None, 100.5  # it is sent, and may be again half a second later
    front._note(session)  # type: ignore[arg-type]
    session.left = ()
    front._note(session)  # type: ignore[arg-type]
    assert due == [100.0, 100.5]
