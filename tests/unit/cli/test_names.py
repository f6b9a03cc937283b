"""Names of elements at the command line: completed by Tab, and shown with their aliases."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner

from sopa_ryu.cli import client, main, names
from topologies import Aliases

ALIASES = Aliases({"a0_1": "leaf-12", "c1_0": "spine-3", "h0_0_2": "web-1"}, {"a0_1": "B12"})
FAILED = {"name": "a0_1-c1_0", "kind": "link", "reason": "down", "rack": "B12"}


def test_tab_offers_aliases_beside_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {"/fabric": {"k": 4}, "/names": {"names": ALIASES.listed()}}
    monkeypatch.setattr(names, "_ask", lambda _ctx, path: answers[path])
    context = Context(main)
    for complete, begun, offered in (
        (names.switches, "l", ["leaf-12"]),
        (names.hosts, "web", ["web-1"]),
        (names.elements, "leaf-12-", ["leaf-12-c1_0", "leaf-12-spine-3", "leaf-12-c1_1"]),
        (names.elements, "a0_1-s", ["a0_1-spine-3"]),
    ):
        assert [item.value for item in complete(context, None, begun)] == offered  # type: ignore[arg-type]


def test_text_has_aliases_and_json_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"failures": [FAILED], "groups": [{"switch": "c1_0", "links": ["a0_1-c1_0"]}]}
    answers = SimpleNamespace(aliases=ALIASES, listing=lambda *_: body, get=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(client, "Controller", lambda *_: answers)
    text, as_json = (CliRunner().invoke(main, ["failures", *option]).output for option in ([], ["--json"]))
    assert "a0_1-c1_0 (leaf-12-spine-3)" in text
    assert "of c1_0 (spine-3); rack B12" in text
    assert "spine-3" not in as_json


def test_what_is_looked_up_by_name_is_found_with_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"name": "a0_1-c1_0", "lower": {"name": "a0_1", "port": 3}, "upper": {"name": "c1_0", "port": 1}, "failure": None}
    numbers = dict.fromkeys(("up_bits_per_second", "down_bits_per_second", "capacity_bits_per_second"))
    bodies = {
        "/drains": {
            "drains": ["a0_1-c1_0"],
            "details": {"a0_1-c1_0": {"since": 0.0, "actor": "ann", "reason": "fan", "until": None}},
        },
        "/links": {"links": [{**link, **numbers}], "total": 1},
    }
    answers = SimpleNamespace(aliases=ALIASES, listing=lambda path, *_: dict(bodies[path]), get=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(client, "Controller", lambda *_: answers)
    drains, *links = (CliRunner().invoke(main, words).output for words in (["drains"], ["links", "leaf-12"], ["links", "web-1"]))
    assert re.search(r"a0_1-c1_0 \(leaf-12-spine-3\) .* ann .* fan", drains)
    assert ["a0_1-c1_0 (leaf-12-spine-3)" in said for said in links] == [True, False]


def test_doctor_shows_aliases_and_leaves_commands_for_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = "ovs-vsctl set-controller a0_1 tcp:192.0.2.1:6653"
    problem = {"switch": "a0_1", "check": "controller", "problem": "it has no controller", "mend": mend}
    setup = {"checked": 8, "detail": "as planned", "problems": [problem]}
    body = {"switches": {"edge": 8}, "connected": 8, "rejected": [], "setup": setup, "bfd": {"enabled": True, "detail": "on"}}
    answers = SimpleNamespace(aliases=ALIASES, get=lambda *_: body, close=lambda: None)
    monkeypatch.setattr(client, "Controller", lambda *_: answers)
    said = CliRunner().invoke(main, ["doctor", "controller", "--config-file", "/nowhere"]).output
    assert f"WRONG a0_1 (leaf-12): it has no controller. Mend: there: {mend}\n" in said
    assert ALIASES.shown(problem) == {**problem, "switch": "a0_1 (leaf-12)"}
