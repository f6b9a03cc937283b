"""How a client that has several URLs notices that the other end of its channel is gone: pings, and a bound on their answers.

A process that was killed closes its channels. One that is stopped, or cut off by the network, says nothing, and TCP would wait for
minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from sopa_ryu.channel.addresses import patience_seconds, ping_seconds


class SilentError(TimeoutError):
    """The other end of a channel has not answered a ping in time."""


@asynccontextmanager
async def watched(channel: ClientConnection, hosts: Callable[[], int]) -> AsyncIterator[None]:
    """Ping the other end of a channel while the context lasts, and break the channel off once it does not answer.

    Args:
        hosts: Returns how many hosts the fabric has, which decides how often (`addresses.ping_seconds`).

    Raises:
        SilentError: If the channel was broken off; the context meets `ConnectionClosed` then.
    """
    pinging = asyncio.create_task(_ping(channel, hosts))
    try:
        yield
    except ConnectionClosed as error:
        if pinging.done() and not pinging.cancelled() and (seconds := pinging.result()):
            raise SilentError(f"it has not answered a ping for {seconds:g} s") from error
        raise
    finally:
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)


async def _ping(channel: ClientConnection, hosts: Callable[[], int]) -> float:
    """Ping until there is no answer, and break the channel off; return for how long one was awaited, 0 if the channel has ended."""
    while True:
        await asyncio.sleep(ping_seconds(hosts()))
        patience = patience_seconds(hosts())
        answered = asyncio.ensure_future(_answer(channel))
        # not asyncio.timeout: after a pause of this process the answer counts, if it is there
        try:
            await asyncio.wait([answered], timeout=patience)
            if not answered.done():
                channel.transport.abort()
                return patience
        finally:
            answered.cancel()
        if not answered.result():
            return 0.0


async def _answer(channel: ClientConnection) -> bool:
    """Wait for the answer to a ping; return False if the channel is closed."""
    try:
        await (await channel.ping())
    except ConnectionClosed:
        return False
    return True
