"""A relay's own key in the engine, ``relays/NAME``: bound to a lease, and kept current."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from sopa_ryu.cluster.engine import Condition, Engine, EngineError, Patience, Written
from sopa_ryu.cluster.records import RELAYS, RecordError, RelayRecord, read, write

LOG = logging.getLogger("sopa.relay")

LEASE_SECONDS = 5
RENEWALS = 4
"""So many in the time of a lease."""
SPACING_SECONDS = 0.1
RETRY_SECONDS = 1.0
TAKEN_SECONDS = 2.0 * LEASE_SECONDS
"""A name that is taken for longer is not that of a relay which was killed and has been started again."""


class Registration:
    """The key of one relay, by a client of the engine for the threads of this object alone.

    ``is_held`` is true while the lease is held, by what the engine has answered last.
    """

    def __init__(self, engine: Engine, name: str, describe: Callable[[], RelayRecord]) -> None:
        self.is_held = False
        self._engine = engine
        self._key = RELAYS + name
        self._describe = describe
        self._changed = asyncio.Event()
        self._lease = 0
        self._said = ""
        self._patience = Patience(most=LEASE_SECONDS / 2)  # the lease has to be renewed in between

    def changed(self) -> None:
        """Write the key soon, since what the relay has to say may have changed."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Register, and register again whenever the lease is lost, until cancelled."""
        while True:
            pause = SPACING_SECONDS
            try:
                await self._hold()
            except EngineError as error:
                self._say(f"the engine does not let this relay register: {error}. It goes on serving", error.cause)
                if error.late:
                    self._patience.late()
                pause = RETRY_SECONDS
            self.is_held = False
            await asyncio.sleep(pause)

    async def leave(self) -> None:
        """End the lease, and with it the key."""
        lease, self._lease, self.is_held = self._lease, 0, False
        if not lease:
            return
        try:
            await asyncio.to_thread(self._engine.revoke, lease)
        except EngineError as error:
            LOG.warning("cannot revoke the lease: %s. The engine forgets this relay in %d s", error, LEASE_SECONDS)

    async def _hold(self) -> None:
        """Get a lease, write the key with it and keep both until the lease is gone; raises `EngineError`."""
        self._lease = await asyncio.to_thread(self._engine.grant, LEASE_SECONDS, self._patience.seconds)
        period = max(1, self._engine.granted) / RENEWALS
        renewed = time.monotonic()
        entered = await self._enter(self._lease, period)
        if entered is None:
            return
        written, revision = entered
        self.is_held = True
        if self._said:
            LOG.warning("this relay is registered with the engine again")
            self._said = ""
        while True:
            await self._wait(renewed + period - time.monotonic())
            if time.monotonic() >= renewed + period:
                sent = time.monotonic()
                if not await asyncio.to_thread(self._engine.renew, self._lease):
                    self._say("the engine has ended this relay's lease: it registers again, and goes on serving")
                    return
                renewed = sent
            record = self._describe()
            if record != written:
                # so that a write that its node has kept back does not come after a later one
                condition = Condition(self._key, modified=revision)
                done = await self._write(record, condition, self._lease)
                if done is None:
                    self._say("the engine has ended this relay's lease: it registers again, and goes on serving")
                    return
                written, revision = record, done.revision
                await asyncio.sleep(SPACING_SECONDS)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._changed.wait()
            self._changed.clear()

    async def _enter(self, lease: int, period: float) -> tuple[RelayRecord, int] | None:
        """Write the key once no other relay has it; return what was written and its revision, or None if the lease ended before."""
        began = time.monotonic()
        while True:
            record = self._describe()
            allowed = await asyncio.to_thread(self._may_write, record.url)
            if allowed is not None:
                done = await self._write(record, allowed, lease)
                if done is not None:
                    return record, done.revision
                continue
            if not await asyncio.to_thread(self._engine.renew, lease):
                return None
            if time.monotonic() - began > TAKEN_SECONDS:
                name = self._key.removeprefix(RELAYS)
                self._say(
                    f"another relay is registered as {name}. This one is not listed, and goes on serving. Give each its own --name"
                )
            await asyncio.sleep(min(period, RETRY_SECONDS))

    async def _write(self, record: RelayRecord, condition: Condition, lease: int) -> Written | None:
        began, puts = time.monotonic(), {self._key: write(record)}
        done = await asyncio.to_thread(self._engine.write, puts, [condition], lease, seconds=self._patience.seconds)
        self._patience.took(time.monotonic() - began)
        return done

    def _may_write(self, url: str) -> Condition | None:
        """Return on which condition the key may be written: it is free, or this relay's from before it was killed; else None."""
        kept = self._engine.read().keys.get(self._key)
        if kept is None:
            return Condition(self._key, created=0)
        try:
            record = read(self._key, kept.value)
            own = isinstance(record, RelayRecord) and record.url == url
        except RecordError:
            own = True  # of nobody
        return Condition(self._key, modified=kept.modified) if own else None

    def _say(self, problem: str, cause: str = "") -> None:
        if (cause or problem) != self._said:
            LOG.error("%s", problem)
            self._said = cause or problem
