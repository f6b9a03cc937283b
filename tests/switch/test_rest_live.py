"""REST and /metrics of a running controller with real switches behind it, as their documents and Prometheus read them."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from sopa_ryu.agent.agent_metrics import AgentMetrics
from sopa_ryu.rest.controller_metrics import of_cluster
from tests.helpers.fabrics import Fabric
from tests.helpers.prometheus_names import dashboard_expressions, metric_names
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.waiting import eventually

RULES = Path(__file__).parents[2] / "deploy/prometheus/sopa.rules.yml"
SUFFIXES = re.compile(r"_(total|bucket|count|sum|info)$")


def scrape(fabric: Fabric) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Every sample by its name: labels and value."""
    answer = httpx.get(f"{fabric.controller.url}/metrics", timeout=60).raise_for_status()
    assert answer.headers["Content-Type"].startswith("text/plain")
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in plain(answer.text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return samples


def ports(fabric: Fabric) -> list[dict[str, str]]:
    return [labels for labels, _ in scrape(fabric).get("sopa_port_receive_bytes_total", [])]


@pytest.fixture
def polled(shared: Fabric) -> Fabric:
    """A fabric whose ports' counters have come: some metrics are there from then on."""
    eventually(lambda: len(ports(shared)), 20 * 4)
    return shared


@pytest.fixture
def exported(polled: Fabric) -> set[str]:
    names = {family.name for family in plain(polled.metrics())}
    names |= {"sopa_cluster_commit_seconds", "sopa_gateway_up"}  # of a member's own, and of a fabric with gateways
    return names | {family.name for family in (*AgentMetrics([]).collect(), *of_cluster(StubCluster()))}


def test_openmetrics_is_spoken_to_who_asks_for_it_and_has_the_same_names(polled: Fabric) -> None:
    accepted = {"Accept": "application/openmetrics-text"}
    answer = httpx.get(f"{polled.controller.url}/metrics", headers=accepted, timeout=60)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    names = {sample.name for family in openmetrics(answer.text) for sample in family.samples}
    assert {name for name in scrape(polled) if name.startswith("sopa_")} == {n for n in names if n.startswith("sopa_")}


def test_every_alert_names_metrics_that_are_exported_and_says_what_to_do(exported: set[str]) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) == 29
    for rule in rules:
        named = set(re.findall(r"\bsopa_\w+", rule["expr"]))
        assert {SUFFIXES.sub("", name) for name in named} <= {SUFFIXES.sub("", name) for name in exported}, rule
        assert named or "up{" in rule["expr"]
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_every_metric_of_the_dashboard_is_exported(exported: set[str]) -> None:
    known = {SUFFIXES.sub("", name) for name in exported}
    for expression in dashboard_expressions():
        assert {SUFFIXES.sub("", name) for name in metric_names(expression)} <= known, expression


@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing_between_the_document_and_the_answers(shared: Fabric, tmp_path: Path) -> None:
    token = shared.controller.token_file.read_text().strip()
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{shared.controller.url}/openapi.json"]
    command += ["--checks=all", "--header", f"Authorization: Bearer {token}", "--max-examples=8", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for name in shared.controller.get("/drains").json()["drains"]:
        shared.controller.change("DELETE", f"/drains/{name}").raise_for_status()
    eventually(lambda: shared.controller.fabric()["failures"], [])
