"""Reads that controllers answer: real HTTP servers, of which each counts what it is asked."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
from webob import Request, Response, dec

from sopa_ryu.cluster.relay import upstream
from sopa_ryu.cluster.relay.upstream import NoControllerError, Upstream
from sopa_ryu.front.turns import Turns
from sopa_ryu.rest.operations import Problem
from tests.helpers.wsgi import served


class Server:
    """A controller's REST interface that answers every path with the same bytes."""

    def __init__(self) -> None:
        self.body, self.etag, self.url = b"{}", '"1"', ""
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.tokens: set[str | None] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @dec.wsgify
    def __call__(self, request: Request) -> Response:
        self.asked.append((request.path_qs, request.headers.get("If-None-Match"), request.headers.get("Via")))
        self.tokens.add(request.headers.get("Authorization"))
        self.may_answer.wait(20)
        headers = [("Content-Type", "application/json"), ("ETag", self.etag), ("Set-Cookie", "not for readers")]
        return Response(self.body, headerlist=headers, conditional_response=True)


@pytest.fixture
def server() -> Iterator[Server]:
    controller = Server()
    with served(controller) as controller.url:
        yield controller


def asking(urls: list[str], ask: Callable[[Upstream], Awaitable[None]], token: str | None = None) -> Upstream:
    async def run() -> Upstream:
        its = Upstream(lambda: urls, "r1", ssl.create_default_context, token)
        await ask(its)
        await its.close()
        return its

    return asyncio.run(run())


PATH = "/sopa/v1/links?limit=1"


def test_readers_share_an_answer_and_then_ask_for_changes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(its: Upstream) -> None:
        server.may_answer.clear()
        waiting = [asyncio.create_task(its.get(PATH)) for _ in range(5)]
        while not server.asked:
            await asyncio.sleep(0.01)
        server.may_answer.set()
        answers = await asyncio.gather(*waiting)
        assert {(each.status, each.body) for each in answers} == {(200, b"{}")}
        assert dict(answers[0].headers) == {"Content-Type": "application/json", "Etag": '"1"'}
        await its.get(PATH)
        assert server.asked == [(PATH, None, "1.1 sopa-relay-r1")]
        monkeypatch.setattr(upstream, "SHARE_SECONDS", 0.0)
        assert (await its.get(PATH)).body == b"{}"
        server.body, server.etag = b"[]", '"2"'
        assert (await its.get(PATH)).body == b"[]"
        assert [known for _, known, _ in server.asked] == [None, '"1"', '"1"']

    monkeypatch.setattr(upstream, "SHARE_SECONDS", 60.0)
    assert asking([server.url], ask, "T").counted == {"shared": 5, "unchanged": 1, "fetched": 2, "failed": 0}
    assert server.tokens == {"Bearer T"}


def test_another_controller_is_asked_if_the_leader_does_not_answer_and_readers_are_told_if_none_does(server: Server) -> None:
    async def ask(its: Upstream) -> None:
        assert (await its.get("/a")).body == b"{}"
        del urls[1:]
        with pytest.raises(NoControllerError, match=r"http://127\.0\.0\.1:1: ") as told:
            await its.get("/b")
        assert told.value.status == 503

    urls = ["http://127.0.0.1:1", "nonsense", server.url]
    asking(urls, ask)


def test_what_is_kept_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "MAX_KEPT", 3)
    monkeypatch.setattr(upstream, "MAX_BODY_BYTES", 1000)

    async def ask(its: Upstream) -> None:
        for number in range(10):
            await its.get(f"/{number}")
        assert list(its._kept) == ["/7", "/8", "/9"]
        assert its._kept_bytes == 6
        server.body = b"x" * 1001
        with pytest.raises(Problem, match="more than 1000 bytes"):
            await its.get("/long")

    asking([server.url], ask)


def test_clients_have_their_answers_in_turn_and_one_at_a_time() -> None:
    async def run() -> list[str]:
        turns, made = Turns(), []
        many = [asyncio.create_task(turns.make("a", lambda: made.append("a"))) for _ in range(5)]
        one = asyncio.create_task(turns.make("b", lambda: made.append("b")))
        many[1].cancel()
        await one
        between = list(made)
        await asyncio.gather(*many, return_exceptions=True)
        assert len(made) == 5
        return between

    assert asyncio.run(run()) == ["a", "b"]


def test_a_reader_that_leaves_as_it_gets_its_turn_holds_up_nobody() -> None:
    async def run() -> list[str]:
        turns, made = Turns(), list[str]()
        leaves = asyncio.create_task(turns.make("a", lambda: made.append("left")))
        stays = [asyncio.create_task(turns.make(client, partial(made.append, client))) for client in ("a", "b", "a")]
        await asyncio.sleep(0)  # all wait, and the first one is about to be given its turn
        asyncio.get_running_loop().call_soon(leaves.cancel)
        await asyncio.gather(*stays)
        return made

    assert sorted(asyncio.run(run())) == ["a", "a", "b"]
