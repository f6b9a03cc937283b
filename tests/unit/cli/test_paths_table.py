"""The table of `sopa paths`: weights are shown where they differ."""

from typing import Any

import pytest

from sopa_ryu.cli.query import _candidates


def body(*weights: float) -> dict[str, Any]:
    candidates = [
        {"up": [index], "option": f"9e04{index:02x}ff", "hops": ["e0_0", f"a0_{index}", "e0_1"], "weight": weight}
        for index, weight in enumerate(weights)
    ]
    return {"candidates": candidates, "excluded": [{"up": [9], "reason": "link e0_0-a0_9 down"}]}


def test_equal_weights_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _candidates("title", body(0.5, 0.5))
    shown = capsys.readouterr().out
    assert "weight" not in shown
    assert "%" not in shown


def test_weights_that_differ_are_shown_as_percentages(capsys: pytest.CaptureFixture[str]) -> None:
    _candidates("title", body(2 / 3, 1 / 3))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:4] == ["path", "up", "label", "weight"] for line in lines)
    assert any("9e0400ff" in line and "66.7%" in line for line in lines)
    assert any("9e0401ff" in line and "33.3%" in line for line in lines)
    assert any("excluded: link e0_0-a0_9 down" in line for line in lines)
