"""Which OpenFlow library runs, and what one gets where none can."""

import pytest

from sopa_ryu.runtime import library
from sopa_ryu.southbound import parsing

BOTH = "an OpenFlow library is not installed: pip install 'sopa-ryu[ryu]' or pip install 'sopa-ryu[os-ken]'"


@pytest.mark.parametrize(
    ("asked", "installed", "result"),
    [
        ("", {"ryu", "os_ken"}, "ryu"),
        ("", {"os_ken"}, "os_ken"),
        ("os_ken", {"ryu", "os_ken"}, "os_ken"),
        ("", set(), BOTH),
        ("ryu", {"os_ken"}, "ryu is not installed: pip install 'sopa-ryu[ryu]'"),
        ("os-ken", {"ryu", "os_ken"}, "SOPA_OPENFLOW must be ryu or os_ken, not os-ken"),
    ],
)
def test_the_choice(monkeypatch: pytest.MonkeyPatch, asked: str, installed: set[str], result: str) -> None:
    monkeypatch.setenv("SOPA_OPENFLOW", asked)
    monkeypatch.setenv("OSKEN_HUB_TYPE", "native")
    monkeypatch.setattr(library, "find_spec", lambda name: name if name in installed else None)
    if result in installed:
        assert library.name.__wrapped__() == result
        return
    with pytest.raises(SystemExit) as caught:
        library.name.__wrapped__()
    assert caught.value.code == result


def test_parsers_that_cannot_be_bounded_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(library.ofproto_v1_3_parser, "struct")
    with pytest.raises(LookupError, match=r"ofproto_v1_3_parser does not use the module struct"):
        parsing.bound()
