"""The Unix socket by which applications tell what they are going to send; the kernel says who asks (SO_PEERCRED, unix(7)).

The agent's loop runs before everything that is not real-time, so what any local program can have it do is bounded: connections,
lines, and how often it turns to either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sopa_ryu.agent.hint_place import connect, short
from sopa_ryu.agent.hint_protocol import MAX_LINE_BYTES, Accepted, Hint, HintError, Refusal, read_hint, write_answer

LOG = logging.getLogger("sopa.agent")

MODE = 0o666
"""Any user may connect; what a hint may be about depends on who it is."""
MAX_CONNECTIONS, MAX_OF_USER = 64, 16
SILENT_SECONDS = 10.0
"""A connection that says nothing for so long, or does not read its answer, is closed."""
ANSWER_SECONDS = 5.0
RATE, BURST = 500.0, 50
"""Connections and lines a second; more wait."""
_PEER = struct.Struct("=iII")  # struct ucred
_CHECK_SECONDS = 1.0

Take = Callable[[Hint, int, Callable[[Accepted | HintError], None]], None]


class HintSocket:
    """The socket, and its conversations.

    Parameters
    ----------
    path : Path
        What a killed agent has left there is replaced.
    take : callable
        Called with each hint, the user's id, and what is to be called with the outcome; raises `HintError` if it refuses the hint.
    refuse : callable
        Called with the reason of each refusal that `take` does not know of.

    Raises
    ------
    OSError
        If it cannot be made, or another agent listens there.
    """

    def __init__(self, path: Path, take: Take, refuse: Callable[[Refusal], None]) -> None:
        self.path = path
        self._take, self._refuse = take, refuse
        self._users: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = 0.0
        self._socket = _listen(path)
        self._inode = path.lstat().st_ino

    async def run(self) -> NoReturn:
        """Listen until cancelled, and remove the socket then."""
        try:
            while True:
                await self._accept()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._socket.close()
            with contextlib.suppress(OSError):
                if self.path.lstat().st_ino == self._inode:
                    self.path.unlink()

    async def _accept(self) -> None:
        await self._turn()
        try:
            connection, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        except OSError as error:  # no free file
            LOG.warning("hints at %s wait: %s", self.path, error.strerror)
            await asyncio.sleep(1.0)
            return
        task = asyncio.create_task(self._attend(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self) -> None:
        """Wait until it may turn to the next connection or line."""
        now = time.monotonic()
        self._next = max(self._next, now - BURST / RATE) + 1 / RATE
        await asyncio.sleep(self._next - now)

    async def _attend(self, connection: socket.socket) -> None:
        _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        is_full = self._users[user] >= MAX_OF_USER or self._users.total() >= MAX_CONNECTIONS
        self._users[user] += 1
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE_BYTES)
            if is_full:
                self._refuse(Refusal.FULL)
                await self._say(writer, HintError(Refusal.FULL, "too many programs give hints at a time"))
                return
            while line := await self._line(reader):
                await self._turn()
                answer = await self._answer(line, user)
                await self._say(writer, answer)
                if isinstance(answer, HintError) and answer.reason is Refusal.MALFORMED:
                    return
        except (OSError, TimeoutError):
            pass  # it has left, or says nothing
        finally:
            self._users[user] -= 1
            if writer is not None:
                writer.close()
            else:
                connection.close()

    @staticmethod
    async def _line(reader: asyncio.StreamReader) -> bytes:
        """Return the next line, empty at the end."""
        async with asyncio.timeout(SILENT_SECONDS):
            try:
                return await reader.readline()
            except ValueError:
                return b"too long"

    async def _answer(self, line: bytes, user: int) -> Accepted | HintError:
        decided: asyncio.Future[Accepted | HintError] = asyncio.get_running_loop().create_future()

        def answer(outcome: Accepted | HintError) -> None:
            if not decided.done():
                decided.set_result(outcome)

        try:
            self._take(read_hint(line), user, answer)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await decided
        except HintError as error:
            self._refuse(error.reason)
            return error
        except TimeoutError:
            self._refuse(Refusal.FAILED)
            return HintError(Refusal.FAILED, "the agent cannot look at the sockets: see its log")

    @staticmethod
    async def _say(writer: asyncio.StreamWriter, answer: Accepted | HintError) -> None:
        writer.write(write_answer(answer))
        async with asyncio.timeout(SILENT_SECONDS):
            await writer.drain()


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens at a path; whoever connects finds it with its mode, or not at all."""
    _check_free(path)
    made = path.with_name(f"{path.name}.{os.getpid()}")
    its = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        its.setblocking(False)
        made.unlink(missing_ok=True)
        with short(made) as address:
            its.bind(address)
        try:
            _allow(made)
            its.listen(MAX_CONNECTIONS)
            made.rename(path)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
    except BaseException:
        its.close()
        raise
    return its


def _check_free(path: Path) -> None:
    """Raise `OSError` if there is something else than what a killed agent has left."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{path} is there, and no socket: name another path (--hints)")
    with contextlib.suppress(ConnectionRefusedError):
        connect(path, _CHECK_SECONDS).close()
        raise FileExistsError(f"another process listens at {path}: end it, or name another path (--hints)")


def _allow(path: Path) -> None:
    """Let every user connect; a link that somebody has put in the socket's place is not followed."""
    its = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(its).st_mode):
            raise FileExistsError(
                f"{path} was replaced by another program: name a path in a directory of root's (--hints)"
            )
        os.chmod(f"/proc/self/fd/{its}", MODE)
    finally:
        os.close(its)
