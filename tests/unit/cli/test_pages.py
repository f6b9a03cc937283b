"""A list that is longer than a page is read whole, and anew if it has changed meanwhile."""

import httpx

from sopa_ryu.cli.client import Controller


def reading(versions: list[int]) -> tuple[list[str], int]:
    """Return the list of two pages whose answers are of these versions, and how many were asked for."""
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        version = versions[len(asked)]
        second = "offset" in request.url.params
        asked.append(version)
        link = {} if second else {"Link": f'<{request.url.path}?offset=2>; rel="next"'}
        items = [f"{name} of {version}" for name in (("c",) if second else ("a", "b"))]
        return httpx.Response(200, headers=link, json={"version": version, "epoch": 1, "total": 3, "changes": items})

    client = Controller("http://192.0.2.1")
    client._client = httpx.Client(transport=httpx.MockTransport(answer))
    return client.listing("/changes", "changes")["changes"], len(asked)


def test_a_list_has_the_items_of_all_pages() -> None:
    assert reading([1, 1]) == (["a of 1", "b of 1", "c of 1"], 2)


def test_a_list_that_has_changed_between_pages_is_read_again() -> None:
    assert reading([1, 2, 2, 2]) == (["a of 2", "b of 2", "c of 2"], 4)
