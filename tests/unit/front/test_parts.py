"""A front's parts go on after a programming error in one of them."""

import asyncio

import pytest

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
