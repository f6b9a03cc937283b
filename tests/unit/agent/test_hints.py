"""Hints of applications, without an agent: what counts of them, and the socket by which they come."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.agent import hint_socket
from sopa_ryu.agent.cfr_demand import Unsent
from sopa_ryu.agent.cfr_hints import MAX_HINTS, MAX_OF_USER, Hints
from sopa_ryu.agent.hint_client import tell
from sopa_ryu.agent.hint_place import connect
from sopa_ryu.agent.hint_protocol import Accepted, Hint, HintError, Refusal, write_hint
from sopa_ryu.agent.hint_socket import HintSocket
from tests.helpers.golden import Step, play, scripts

PEER = IPv4Address("10.1.0.2")
USER = 1000
MS = 1_000_000
SEGMENT, HEADERS = 1448, 66
HINT = Hint(PEER, 5001, 40000, 100_000)


def unsent(payload: int = 0, written: int = 7, own_port: int = 40000, user: int = USER, **others: Any) -> Unsent:
    frames = payload + -(-payload // SEGMENT) * HEADERS
    its = Unsent(int(PEER), frames, payload, written % (1 << 32), user, own_port, 5001, SEGMENT, HEADERS)
    return its._replace(**others)


def socket_of(text: str) -> Unsent:
    """Return what a connection has: the own port, the bytes that wait and that were written, ``40000:1000/5000@1001``."""
    port, _, rest = text.partition(":")
    bytes_, _, user = rest.partition("@")
    payload, _, written = bytes_.partition("/")
    return unsent(int(payload or 0), 7 + int(written or 0), int(port), int(user or USER))


class Host:
    """The hints of a host by a script, and what they lead to."""

    def __init__(self) -> None:
        self.do_host()

    def do_host(self) -> None:
        self.hints, self.outcomes = Hints(), list[Accepted | HintError]()

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command)(*step.words, **step.options) or ""
        counted = [f"{name} {count}" for name, count in self.hints.counted.items() if count]
        refused = [f"{reason.name.lower()} {count}" for reason, count in self.hints.refused.items()]
        return f"{said}\n{self.hints.left} bytes left; {', '.join(counted + refused) or 'nothing counted'}"

    def do_hint(
        self, *sockets: str, size: str = "100000", own: str = "40000", user: str = "1000", ms: str = "50", to: str = ""
    ) -> str:
        hint = Hint(IPv4Address(to or PEER), 5001, int(own), int(size), int(ms))
        self.hints.ask(hint, int(user), self.outcomes.append)
        assert self.hints.destinations >= {hint.destination}
        self.hints.note([*map(socket_of, sockets)] or [unsent()], 0)
        match self.outcomes.pop():
            case Accepted(port, size_of):
                return f"accepted: port {port}, {size_of} bytes"
            case error:
                return f"refused: {error}"

    def do_limit(self, size: str) -> None:
        self.hints.limit = int(size)

    def do_look(self, *sockets: str, at: str = "0") -> str:
        """Look at the connections so many milliseconds after the hint; say what is demanded."""
        found = [*map(socket_of, sockets)]
        frames = sum(its.bytes for its in found)
        demanded = self.hints.note(found, int(at) * MS).get(PEER, 0)
        assert bool(self.hints.destinations) is bool(self.hints.left)
        return f"demanded: {demanded} bytes in frames, {demanded - frames} more than wait"


@pytest.mark.parametrize("script", scripts(__file__, "hints"), ids=lambda path: path.stem)
def test_hints(script: Path, request: pytest.FixtureRequest) -> None:
    play(script, Host().handle, record=request.config.option.record)


BYTES = st.integers(0, 10**5)


@given(st.integers(1, 10**6), st.integers(0, 2**32 - 1), st.lists(st.tuples(BYTES, BYTES)))
def test_a_demand_is_the_more_of_what_sockets_hold_and_the_hint(
    size: int, first: int, steps: list[tuple[int, int]]
) -> None:
    hints, written, held = Hints(), 0, 0
    hints.ask(HINT._replace(size=size), USER, lambda outcome: None)
    hints.note([unsent(0, first)], 0)
    for more, sent in steps:
        written += more
        held = max(0, held + more - sent)
        demanded = hints.note([unsent(held, first + written)], 0).get(PEER, 0)
        assert demanded >= unsent().frames(held)
        still = max(held, held + size - written)
        assert 0 <= demanded - unsent().frames(still) <= HEADERS


def test_the_number_of_hints_is_bounded_for_each_user_and_in_all() -> None:
    hints, outcomes = Hints(), list[Accepted | HintError]()
    for n in range(MAX_HINTS):
        hints.ask(HINT._replace(own_port=n + 1), n // MAX_OF_USER, outcomes.append)
        if n % MAX_OF_USER == MAX_OF_USER - 1:
            with pytest.raises(HintError) as refused:
                hints.ask(HINT, n // MAX_OF_USER, outcomes.append)
            assert refused.value.reason is Refusal.FULL
    hints.note([unsent(own_port=n + 1, user=n // MAX_OF_USER) for n in range(MAX_HINTS)], 0)
    assert hints.counted["accepted"] == len(outcomes) == MAX_HINTS
    with pytest.raises(HintError):
        hints.ask(HINT, 77, outcomes.append)


def listening(path: Path, body: Callable[[], Awaitable[None]]) -> tuple[list[tuple[Hint, int]], list[Refusal]]:
    """Have a socket of hints listen while `body` runs; return the hints that came, with their users, and what was refused."""
    hints, refused = list[tuple[Hint, int]](), list[Refusal]()

    def take(hint: Hint, user: int, answer: Callable[[Accepted | HintError], None]) -> None:
        if hint.port == 1:
            raise HintError(Refusal.ARBITER, "none")
        hints.append((hint, user))
        answer(Accepted(hint.own_port, hint.size))

    async def main() -> None:
        task = asyncio.create_task(HintSocket(path, take, refused.append).run())
        try:
            async with asyncio.timeout(60):
                await body()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    return hints, refused


def test_the_kernel_says_who_gives_a_hint_and_any_user_may(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 20) / ("name" * 10)  # longer than an address of a Unix socket

    async def body() -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert await asyncio.to_thread(tell, path, HINT) == Accepted(40000, 100_000)
        with pytest.raises(HintError) as refused:
            await asyncio.to_thread(tell, path, HINT._replace(port=1))
        assert refused.value.reason is Refusal.ARBITER

    assert listening(path, body) == ([(HINT, os.getuid())], [Refusal.ARBITER])
    assert not list(path.parent.iterdir())
    with pytest.raises(HintError, match="no agent with --policy cfr answers"):
        tell(path, HINT)


def test_what_a_program_can_have_the_agent_do_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hints"

    async def said(sent: bytes, silent_seconds: float = 60) -> bytes:
        """Return what is answered to a program, which says nothing more and waits."""
        monkeypatch.setattr(hint_socket, "SILENT_SECONDS", silent_seconds)
        reader, writer = await asyncio.open_unix_connection(sock=connect(path, 60))
        writer.write(sent)
        if sent:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def body() -> None:
        for wrong in (b"x" * 100_000, b"{}\n" * 10):
            assert b"malformed" in await said(wrong)
        assert await said(b"", 0.2) == b""
        assert (await said(write_hint(HINT) * 3)).count(b"own_port") == 3
        with contextlib.ExitStack() as many:
            for _ in range(hint_socket.MAX_OF_USER):
                many.enter_context(connect(path, 60))
            assert b"full" in await said(b"")

    hints, refused = listening(path, body)
    assert len(hints) == 3
    assert set(refused) == {Refusal.MALFORMED, Refusal.FULL}


def test_a_killed_agents_socket_is_replaced_and_another_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "hints"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def body() -> None:
        await asyncio.to_thread(tell, path, HINT)
        with pytest.raises(FileExistsError, match="another process listens"):
            await asyncio.to_thread(HintSocket, path, lambda *hint: None, list[Refusal]().append)
        await asyncio.to_thread(tell, path, HINT)

    assert len(listening(path, body)[0]) == 2
    assert not list(tmp_path.iterdir())
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="no socket"):
        listening(path, body)
    assert path.read_text() == "a file"
