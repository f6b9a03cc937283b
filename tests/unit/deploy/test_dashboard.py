"""The Grafana dashboard, checked without Grafana: its panels show something, and say what it means."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sopa_ryu.agent.agent_metrics import AgentMetrics
from tests.helpers.prometheus_names import DASHBOARD, dashboard, dashboard_expressions, metric_names, panels

COLUMNS = 24
BUILT_IN = {"__interval", "__range", "__rate_interval"}
UNITS = {"none", "short", "s", "bps", "Bps", "pps", "cps", "percentunit"}

SHOWN = [panel for panel in panels() if panel["type"] != "row"]

each_panel = pytest.mark.parametrize("panel", SHOWN, ids=lambda panel: panel["title"])
each_expression = pytest.mark.parametrize("expr", dashboard_expressions())


def variables() -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard()["templating"]["list"]}


def parts(value: Any) -> Iterator[Any]:
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(each)


def used(text: str) -> set[str]:
    """Return the variables in a text, in either of Grafana's notations; ``{{label}}`` is none."""
    return {first or second for first, second in re.findall(r"\$(?:(\w+)|\{(\w+)(?::\w+)?\})", text)}


def test_it_is_one_that_grafana_imports_as_new_and_its_rows_go_from_the_whole_to_the_parts() -> None:
    its = dashboard()
    assert (its["id"], its["uid"], its["title"], its["schemaVersion"]) == (None, "sopa", "SOPA", 39)
    assert "sopa" in its["tags"]
    rows = [panel["title"] for panel in panels() if panel["type"] == "row"]
    assert rows == ["Fabric", "Failures", "Agents", "Links", "Cluster", "Loss and slots"]
    for member in ("id", "title"):
        assert [value for value, count in Counter(panel[member] for panel in panels()).items() if count > 1] == []
    order = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in panels()]
    assert order == sorted(order), "every row is followed by its panels"


def test_no_panel_covers_another_or_sticks_out() -> None:
    covered: dict[tuple[int, int], str] = {}
    for panel in panels():
        where, title = panel["gridPos"], panel["title"]
        assert where["w"] > 0, title
        assert where["h"] > 0, title
        assert 0 <= where["x"] <= where["x"] + where["w"] <= COLUMNS, title
        columns, lines = range(where["x"], where["x"] + where["w"]), range(where["y"], where["y"] + where["h"])
        for cell in itertools.product(columns, lines):
            assert covered.setdefault(cell, title) == title, cell


@each_panel
def test_a_panel_says_what_it_shows_in_a_unit_that_grafana_knows(panel: dict[str, Any]) -> None:
    assert re.fullmatch(r".+\. .+\.", panel["description"])  # and what a bad value means
    heatmap = panel["type"] == "heatmap"
    unit = None if heatmap else panel["fieldConfig"]["defaults"]["unit"]
    assert heatmap or unit in UNITS
    assert not heatmap or panel["options"]["yAxis"]["unit"] == "s"
    assert not heatmap or panel["options"]["cellValues"]["unit"] in UNITS
    for target in panel["targets"]:
        expr, names = target["expr"], metric_names(target["expr"])
        assert ("8 * " in expr) == (unit == "bps")
        if unit == "bps":
            assert any(name.endswith("_bytes_total") for name in names)
        elif unit == "percentunit":
            assert " / " in expr
        elif unit == "pps":
            assert "rate(" in expr
            assert all(re.search("packets|drops|trains", name) for name in names)
        elif unit == "s":
            assert all("_seconds" in name for name in names - {"sopa_cluster_leader"})


@each_panel
def test_a_panel_asks_the_chosen_prometheus_each_question_once_and_names_its_lines(panel: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert panel["targets"]
    assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(panel["targets"])
    for member in ("refId", "expr"):
        assert len({target[member] for target in panel["targets"]}) == len(panel["targets"])
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(legends)) == len(legends)
    for target in panel["targets"]:
        grouped = re.match(r"(?:8 \* )?sum by \(([^)]*)\)", target["expr"])
        if grouped and panel["type"] != "heatmap":
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named == {label.strip() for label in grouped[1].split(",")}


@each_expression
def test_an_expression_lets_who_looks_choose_how_much_and_asks_what_counts_for_its_rate(expr: str) -> None:
    assert set(re.findall(r"\btopk\(([^,]*),", expr)) <= {"$top"}
    rated = re.findall(r"\b(?:rate|increase)\((\w+)", expr)
    assert all(name.endswith(("_total", "_bucket")) for name in rated)
    counts = {name for name in metric_names(expr) if name.endswith(("_total", "_bucket", "_sum", "_count"))}
    assert counts == set(rated)


@pytest.mark.parametrize("expr", [target["expr"] for panel in SHOWN for target in panel["targets"]])
def test_every_metric_is_of_the_job_that_exports_it(expr: str) -> None:
    exported = {family.name for family in AgentMetrics([]).collect()}
    found = re.findall(r"(?<![\w:])(sopa_\w+|up)\b(?!\s*[(,])(?:\{([^}]*)\})?", expr)
    assert {name for name, _ in found} - {"up"} == metric_names(expr)
    for name, matchers in found:
        jobs = set(re.findall(r'\bjob="\$(\w+)"', matchers))
        if name == "up":
            assert len(jobs) == 1
        else:
            assert jobs == {"agent_job" if name.removesuffix("_total") in exported else "job"}, name


def test_every_variable_that_is_used_is_defined_and_the_other_way_round() -> None:
    sources = [each["datasource"] for each in parts(dashboard()) if isinstance(each, dict) and "datasource" in each]
    known = {("prometheus", "${datasource}"), ("grafana", "-- Grafana --")}
    assert {(its["type"], its["uid"]) for its in sources} == known
    its = {variable for text in parts(dashboard()) if isinstance(text, str) for variable in used(text)}
    assert its - BUILT_IN == set(variables())


def test_the_jobs_are_those_of_the_alerts_until_others_are_chosen() -> None:
    its = variables()
    assert list(its)[:3] == ["datasource", "job", "agent_job"]
    assert (its["datasource"]["type"], its["datasource"]["query"]) == ("datasource", "prometheus")
    for name, job in (("job", "sopa"), ("agent_job", "sopa-agent")):
        assert its[name]["current"]["value"] == job
        assert its[name]["query"]["query"] == its[name]["definition"]
        assert f'up{{job="{job}"}}' in (DASHBOARD.parents[1] / "prometheus/sopa.rules.yml").read_text()
    exported = {family.name for family in AgentMetrics([]).collect()}
    assert metric_names(its["agent_job"]["definition"]) <= exported
    assert not metric_names(its["job"]["definition"]) & exported
