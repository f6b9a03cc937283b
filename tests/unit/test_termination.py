"""The end of a process on asyncio: by a signal, or by a task's error."""

import asyncio
import os
import signal

import pytest

from sopa_ryu.runtime.termination import SIGNALS, cancel, first_signal


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_counts_and_tasks_are_cancelled(number: signal.Signals) -> None:
    async def main() -> tuple[int, bool]:
        task = asyncio.create_task(asyncio.sleep(1000))
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        received = await first_signal([task])
        await cancel([task])
        return received, task.cancelled()

    assert asyncio.run(main()) == (number, True)


def test_the_error_of_a_task_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(1000)), asyncio.create_task(fail())]
        try:
            await first_signal(tasks)
        finally:
            await cancel(tasks)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main())
