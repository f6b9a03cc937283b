"""How a relay's registration ends."""

import asyncio

import pytest

from sopa_ryu.cluster.relay.registration import Registration


class Held(Registration):
    """One that has its lease, and waits for what it has to say."""

    async def _hold(self) -> None:
        while True:
            await self._wait(60)


@pytest.mark.parametrize("turns", range(6))
def test_a_change_does_not_hide_that_the_relay_ends(turns: int) -> None:
    async def run() -> None:
        registration = Held(None, "r1", dict)  # type: ignore[arg-type]
        task = asyncio.create_task(registration.run())
        await asyncio.sleep(0.01)
        registration.changed()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait([task], timeout=5)
        assert ended

    asyncio.run(run())
