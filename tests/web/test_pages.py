"""The page's files as they are served, without a server."""

import re
from pathlib import Path

import pytest
from webob import Request, Response

from sopa_ryu.web.pages import DIRECTORY, PageError, pages


def get(path: str, **options: object) -> Response:
    return pages()[path](Request.blank(path, **options))


def test_every_file_is_served_by_its_type_and_nothing_else() -> None:
    files = {f"/web/{path.name}" for path in DIRECTORY.iterdir() if path.suffix in (".css", ".js", ".svg")}
    assert pages().keys() == {"/", *files}
    types = {path: page(Request.blank(path)).headers["Content-Type"] for path, page in pages().items()}
    assert types["/"] == "text/html; charset=UTF-8"
    assert types["/web/style.css"] == "text/css; charset=UTF-8"
    assert types["/web/main.js"] == "text/javascript; charset=UTF-8"
    assert types["/web/icon.svg"].startswith("image/svg+xml")


@pytest.mark.parametrize("path", ["/", "/web/main.js"])
def test_the_headers_let_nothing_in_from_elsewhere(path: str) -> None:
    for response in (get(path), get(path, headers={"If-None-Match": f'"{get(path).etag}"'})):
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "*" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"


def test_no_body_is_sent_to_whom_has_it_or_asks_for_none() -> None:
    first = get("/web/style.css")
    assert first.status_int == 200
    again = get("/web/style.css", headers={"If-None-Match": f'"{first.etag}"'})
    assert (again.status_int, again.body, again.etag) == (304, b"", first.etag)
    assert get("/web/style.css", headers={"If-None-Match": '"other"'}).body == first.body
    assert get("/web/style.css").cache_control.no_cache
    head = Request.blank("/", method="HEAD")
    answer = head.get_response(pages()["/"](head))
    assert (answer.status_int, answer.body) == (200, b"")


def test_a_page_without_its_index_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "style.css").touch()
    with pytest.raises(PageError, match=r"index\.html is missing"):
        pages(tmp_path)


def test_the_files_name_nobody_else_and_make_no_html_of_texts() -> None:
    index = (DIRECTORY / "index.html").read_text()
    assert not re.search(r"<(style|script(?![^>]* src=))|\son\w+=|\sstyle=", index)
    named = set(re.findall(r'(?:href|src)="(/web/[^"]+)"', index))
    assert named == pages().keys() - {"/"}
    for path in DIRECTORY.glob("*.js"):
        text = path.read_text()
        html = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
        assert not html, path.name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
