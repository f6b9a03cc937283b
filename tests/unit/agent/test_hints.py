"""Hints of applications, without an agent: what counts of them, and the socket by which they come."""

from __future__ import annotations

import asyncio
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
from sopa_ryu.agent.hint_protocol import Accepted, Hint, HintError, Refusal, read_hint, write_hint
from sopa_ryu.agent.hint_socket import HintSocket

PEER = IPv4Address("10.1.0.2")
USER, OTHER = 1000, 1001
MS = 1_000_000
SEGMENT, HEADERS = 1448, 66
HINT = Hint(PEER, 5001, 40000, 100_000)


def unsent(payload: int = 0, written: int = 7, own_port: int = 40000, user: int = USER, **others: Any) -> Unsent:
    frames = payload + -(-payload // SEGMENT) * HEADERS
    its = Unsent(int(PEER), frames, payload, written % (1 << 32), user, own_port, 5001, SEGMENT, HEADERS)
    return its._replace(**others)


class Host:
    """The hints of a host, and the outcomes."""

    def __init__(self) -> None:
        self.hints = Hints()
        self.outcomes: list[Accepted | HintError] = []

    def give(self, hint: Hint = HINT, *found: Unsent, user: int = USER, now: int = 0) -> Accepted | HintError:
        self.hints.ask(hint, user, self.outcomes.append)
        assert self.hints.destinations >= {hint.destination}
        self.hints.note(found or [unsent()], now)
        return self.outcomes.pop()

    def demanded(self, *found: Unsent, now: int = 0) -> int:
        return self.hints.note(found, now).get(PEER, 0)

    def counted(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.hints.counted.items() if count}


def reason(outcome: Accepted | HintError) -> Refusal | None:
    return outcome.reason if isinstance(outcome, HintError) else None


# -- what counts ----------------------------------------------------------------------------------------------------------------


def test_what_is_hinted_is_demanded_before_it_is_written_and_once_in_all() -> None:
    host = Host()
    assert host.give() == Accepted(40000, 100_000)
    every = unsent().frames(100_000)
    assert host.demanded(unsent()) == every
    assert abs(host.demanded(unsent(30_000, 7 + 30_000)) - every) <= HEADERS
    assert abs(host.demanded(unsent(30_000, 7 + 60_000)) - unsent().frames(70_000)) <= HEADERS  # half of it has left
    assert host.demanded(unsent(40_000, 7 + 100_000)) == unsent().frames(40_000)
    assert host.demanded(unsent(0, 7 + 100_000)) == 0
    assert host.counted() == {"accepted": 1, "used": 1}
    assert host.hints.destinations == set()


def test_what_is_written_and_not_sent_is_part_of_a_hint() -> None:
    host = Host()
    assert host.give(HINT, unsent(60_000)) == Accepted(40000, 100_000)
    assert host.hints.left == 40_000
    assert host.give(HINT, unsent(200_000)) == Accepted(40000, 100_000)
    assert host.demanded(unsent(200_000)) == unsent().frames(200_000)


@given(
    st.integers(1, 10**6), st.integers(0, 2**32 - 1), st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**5)))
)
def test_a_demand_is_what_sockets_hold_or_the_hint_whichever_is_more(
    size: int, first: int, steps: list[tuple[int, int]]
) -> None:
    host = Host()
    host.give(HINT._replace(size=size), unsent(0, first))
    written = held = 0
    for more, sent in steps:
        written += more
        held = max(0, held + more - sent)
        demanded = host.demanded(unsent(held, first + written))
        assert demanded >= unsent().frames(held)
        still = max(held, held + size - written)
        assert 0 <= demanded - unsent().frames(still) <= HEADERS


def test_a_hint_ends_when_nothing_is_written_for_its_time() -> None:
    host = Host()
    host.give(HINT._replace(within_ms=50))
    assert host.demanded(unsent(), now=49 * MS) > 0
    assert host.demanded(unsent(1000, 1007), now=49 * MS) > 0
    assert host.demanded(unsent(1000, 1007), now=98 * MS) > unsent().frames(1000)
    assert host.demanded(unsent(1000, 1007), now=99 * MS) == unsent().frames(1000)
    assert host.counted() == {"accepted": 1, "expired": 1}


@pytest.mark.parametrize("found", [(), (unsent(user=OTHER),), (unsent(own_port=40001),)])
def test_a_hint_ends_with_its_connection(found: tuple[Unsent, ...]) -> None:
    host = Host()
    host.give()
    assert host.demanded(*found) == 0
    assert host.counted() == {"accepted": 1, "gone": 1}


def test_a_later_hint_replaces_the_one_before() -> None:
    host = Host()
    host.give()
    host.give(HINT._replace(size=10))
    assert host.hints.left == 10


def test_what_a_link_cannot_carry_in_the_window_is_cut() -> None:
    host = Host()
    host.give(HINT._replace(size=1 << 60))
    assert host.hints.left == 1 << 60  # the rate is not known before the first slot
    host.hints.limit = 50_000
    assert host.demanded(unsent()) == unsent().frames(50_000)
    assert host.give(HINT) == Accepted(40000, 50_000)
    assert host.counted() == {"accepted": 2, "cut": 1}


def test_a_hint_is_about_a_connection_of_the_user_who_gives_it() -> None:
    host = Host()
    assert reason(host.give(user=OTHER)) is Refusal.USER
    assert reason(host.give(HINT, unsent(own_port=1))) is Refusal.CONNECTION
    assert reason(host.give(HINT, unsent(destination=int(PEER) + 1))) is Refusal.CONNECTION
    assert host.demanded(unsent()) == 0
    assert host.hints.refused == {Refusal.USER: 1, Refusal.CONNECTION: 2}
    any_port = HINT._replace(own_port=0)
    assert host.give(any_port, unsent(own_port=1), unsent(own_port=2, user=OTHER)) == Accepted(1, 100_000)
    refused = host.give(any_port, unsent(own_port=1), unsent(own_port=2))
    assert reason(refused) is Refusal.AMBIGUOUS
    assert "(1, 2)" in str(refused)
    assert host.give(user=0) == Accepted(40000, 100_000)  # root


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


# -- lines ----------------------------------------------------------------------------------------------------------------------


def test_a_hint_is_read_as_it_was_written() -> None:
    for its in (HINT, Hint(IPv4Address("255.255.255.255"), 65535, 0, 2**63 - 1, 60_000)):
        assert read_hint(write_hint(its)) == its


# -- the socket -----------------------------------------------------------------------------------------------------------------


class Agent:
    """What takes hints, in place of an agent: it accepts all."""

    def __init__(self) -> None:
        self.hints: list[tuple[Hint, int]] = []
        self.refused: list[Refusal] = []

    def take(self, hint: Hint, user: int, answer: Callable[[Accepted | HintError], None]) -> None:
        if hint.port == 1:
            raise HintError(Refusal.ARBITER, "none")
        self.hints.append((hint, user))
        answer(Accepted(hint.own_port, hint.size))


def listening(path: Path, body: Callable[[Agent], Awaitable[None]]) -> Agent:
    """Have a socket of hints listen while `body` runs."""
    agent = Agent()

    async def main() -> None:
        task = asyncio.create_task(HintSocket(path, agent.take, agent.refused.append).run())
        try:
            async with asyncio.timeout(60):
                await body(agent)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    return agent


def test_the_kernel_says_who_gives_a_hint_and_any_user_may(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 20) / ("name" * 10)  # longer than an address of a Unix socket

    async def body(agent: Agent) -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert await asyncio.to_thread(tell, path, HINT) == Accepted(40000, 100_000)
        with pytest.raises(HintError) as refused:
            await asyncio.to_thread(tell, path, HINT._replace(port=1))
        assert refused.value.reason is Refusal.ARBITER

    agent = listening(path, body)
    assert agent.hints == [(HINT, os.getuid())]
    assert agent.refused == [Refusal.ARBITER]
    assert not list(path.parent.iterdir())
    with pytest.raises(HintError, match="no agent with --policy cfr answers"):
        tell(path, HINT)


def test_what_a_program_can_have_the_agent_do_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hints"
    monkeypatch.setattr(hint_socket, "SILENT_SECONDS", 60)

    def talk(sent: bytes) -> bytes:
        with connect(path, 60) as its:
            its.sendall(sent)
            if sent:
                its.shutdown(socket.SHUT_WR)
            said = b""
            while piece := its.recv(4096):
                said += piece
        return said

    async def body(agent: Agent) -> None:
        assert b"malformed" in await asyncio.to_thread(talk, b"x" * 100_000)
        assert b"malformed" in await asyncio.to_thread(talk, b"{}\n" * 10)
        monkeypatch.setattr(hint_socket, "SILENT_SECONDS", 0.2)
        assert await asyncio.to_thread(talk, b"") == b""  # says nothing
        monkeypatch.setattr(hint_socket, "SILENT_SECONDS", 60)
        several = write_hint(HINT) * 3
        assert (await asyncio.to_thread(talk, several)).count(b"own_port") == 3
        many = [connect(path, 60) for _ in range(hint_socket.MAX_OF_USER)]
        try:
            assert b"full" in await asyncio.to_thread(talk, b"")
        finally:
            for each in many:
                each.close()

    agent = listening(path, body)
    assert len(agent.hints) == 3
    assert set(agent.refused) == {Refusal.MALFORMED, Refusal.FULL}


def test_a_killed_agents_socket_is_replaced_and_another_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "hints"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def body(agent: Agent) -> None:
        await asyncio.to_thread(tell, path, HINT)
        with pytest.raises(FileExistsError, match="another process listens"):
            await asyncio.to_thread(HintSocket, path, agent.take, agent.refused.append)
        await asyncio.to_thread(tell, path, HINT)

    assert len(listening(path, body).hints) == 2
    assert not list(tmp_path.iterdir())
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="no socket"):
        listening(path, body)
    assert path.read_text() == "a file"
