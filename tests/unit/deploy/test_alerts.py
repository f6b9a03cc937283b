"""What the rules for Prometheus and the dashboard say of fabrics: promtool on what controllers answer at ``/metrics``."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from webob import Request, dec

from sopa_ryu.fabric.suspects import Suspected
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.fabric.traffic import PortCounters
from sopa_ryu.rest.controller_metrics import MAX_NAMED, ControllerMetrics
from sopa_ryu.southbound.port_stats import PortStatsPoller
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.prometheus_names import panels
from tests.helpers.rest import Rest
from tests.helpers.stub_cluster import StubCluster
from topologies import Aliases, FatTree, Switch
from topologies.failures import Reason

RULES = Path(__file__).parents[3] / "deploy/prometheus/sopa.rules.yml"
VARIABLES = {"$job": "sopa", "$agent_job": "sopa-agent", "$__rate_interval": "2m", "$__range": "10m", "$top": "5"}
LENGTHS = {"10m": ("15s", 60), "4d": ("5m", 1200)}
"""How often, and how many times, what is asked for at a time is scraped before."""


def scraped(rest: Rest, poller: PortStatsPoller | None = None) -> list[Any]:
    """Return the samples of a controller's answer."""
    its, poller, fleet = rest.fabric, poller or PortStatsPoller(rest.state, {}, 0), SwitchManager(rest.state)
    metrics = ControllerMetrics(rest.state, fleet, its.agents, poller, "mac", None, its.arbiter, its.health, its.cluster)
    text = Request.blank("/metrics").get_response(dec.wsgify(metrics.page)).text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


class Scraped:
    """Controllers c1, c2, ... of a k=4 fabric as Prometheus sees them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.monkeypatch = directory, monkeypatch

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(*step.words, **step.options) or "")

    def do_controllers(self, count: str) -> None:
        self.dead: set[str] = set()
        self.values: dict[str, str] = {}
        self.rests: dict[str, Rest] = {}
        for name in [f"c{number}" for number in range(1, int(count) + 1)]:
            directory = self.directory / f"{len([*self.directory.iterdir()])}"
            directory.mkdir()
            self.rests[name] = rest = Rest(directory)
            rest.state.bfd["enabled"] = True
            if count != "1":
                rest.fabric.cluster = StubCluster(member=name)
        self.do_cluster(leader="c1")

    def do_cluster(self, leader: str, dead: str = "", away: str = "", lag: str = "0", waiting: str = "0") -> None:
        """Let this member lead, in which others are dead, or away as the members say."""
        self.dead = set(dead.split(","))
        for name, rest in self.rests.items():
            if isinstance(its := rest.fabric.cluster, StubCluster):
                its.leader, its.away, its.lag, its.waiting = leader or None, {away}, int(lag), int(waiting)
            if len(self.rests) > 1 and name != leader:
                rest.state.connected.clear()
            else:
                for switch in rest.state.tree.switches():
                    rest.state.switch_ready(switch, 0)

    def do_all(self, what: str, *words: str) -> None:
        """Let something happen to the view, which all members have."""
        for rest in self.rests.values():
            if what == "drain":
                rest.fabric.drain(words[0])
            elif what == "name":
                rest.state.aliases = Aliases({**rest.state.aliases.names, words[0]: words[1]})
            elif what == "port":
                rest.state.port_changed(rest.state.tree.switch(words[0]), int(words[1]), Reason(words[2]), 1)

    def do_lost(self, switch: str) -> None:
        self.rests["c1"].state.switch_lost(self.rests["c1"].state.tree.switch(switch), 1)

    def do_suspect(self, link: str, loss: str) -> None:
        its = [Suspected(link, True, float(loss), 1.0, 3)]
        self.monkeypatch.setattr(self.rests["c1"].fabric.health.caretaker, "confirmed", lambda: its)

    def do_value(self, series: str, values: str) -> None:
        """Let series of a pattern have other values, ``0+1`` for those that grow."""
        self.values[series] = values

    def series(self, times: int) -> list[dict[str, str]]:
        found: dict[str, str] = {}
        for name, rest in self.rests.items():
            found[f'up{{job="sopa",instance="{name}"}}'] = f"{int(name not in self.dead)}"
            if name in self.dead:
                continue
            for sample in scraped(rest):
                if sample.name.startswith("sopa_") and not sample.name.endswith("_mods_total"):
                    labels = {**sample.labels, "job": "sopa", "instance": name}
                    series = f"{sample.name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"
                    found[series] = next((its for part, its in self.values.items() if re.search(part, series)), f"{sample.value:g}")
        return [{"series": series, "values": f"{its}{'' if '+' in its else '+0'}x{times}"} for series, its in found.items()]

    def ask(self, at: str, name: str, wanted: list[dict[str, Any]]) -> str:
        """Return what promtool says it got, where nothing at all is wanted."""
        interval, times = LENGTHS[at]
        file = self.directory / "test.json"
        tests = [{"interval": interval, "input_series": self.series(times), name: [{"eval_time": at, **each} for each in wanted]}]
        file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": tests}))
        done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
        told = done.stdout + done.stderr
        assert "parse error" not in told, told
        assert "SUCCESS" in told or "FAILED:" in told, told
        return told

    def do_alerts(self, at: str = "10m") -> str:
        """Say which alerts fire, and how severe they are."""
        names = re.findall(r"alert: (\w+)", RULES.read_text())
        got = self.ask(at, "alert_rule_test", [{"alertname": name, "exp_alerts": []} for name in names])
        fired = re.findall(r'Labels:{alertname="(\w+)".* severity="(\w+)".*}\n.* summary="(.*)"}', got)
        assert len(fired) == got.count("Labels:")
        return "\n".join(f"{severity} {name}: {summary}" for name, severity, summary in fired) or "none"

    def do_panels(self) -> str:
        """Say what the panels show of what the controllers answer."""
        shown = {}
        for panel in panels():
            for target in panel.get("targets", ()):
                expr = target["expr"]
                for variable, value in VARIABLES.items():
                    expr = expr.replace(variable, value)
                shown[expr] = f"{panel['title']}, {target['legendFormat']}".removesuffix(", ")
        got = self.ask("10m", "promql_expr_test", [{"expr": expr, "exp_samples": []} for expr in shown])
        found = {json.loads(f'"{expr}"'): its for expr, its in re.findall(r'expr: "(.*)", time: .*\n.*\n +got: ?(.*)', got)}
        assert set(found) <= set(shown)
        return "\n".join(f"{shown[expr]}: {its}" for expr, its in found.items())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: make install")
@each_script(__file__, "alerts")
def test_rules_and_panels_fit_one_controller_and_several(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.play(Scraped(tmp_path, monkeypatch).handle)


def test_what_has_failed_is_named_up_to_a_bound_and_no_drain_hides_a_failure(tmp_path: Path) -> None:
    rest = Rest(tmp_path, FatTree(12))
    rest.state.drain([rest.state.tree.name(link) for link in rest.state.tree.links() if isinstance(link.lower, Switch)][:300], 1)
    rest.state.port_changed(rest.state.tree.switch("e9_5"), 12, Reason.DOWN, 2)
    named = [sample.labels for sample in scraped(rest) if sample.name == "sopa_element_failed"]
    assert len(named) == MAX_NAMED
    assert {"kind": "link", "element": "e9_5-a9_5", "reason": "down", "cause": ""} in named


def test_ports_have_their_labels(tmp_path: Path) -> None:
    rest = Rest(tmp_path)
    rest.state.aliases = Aliases({"a0_1": "leaf-12"}, ports={"a0_1": {3: 'Eth 1\\3 "up"'}})
    poller = PortStatsPoller(rest.state, {}, 60)
    poller.traffic.take(rest.state.tree.switch("a0_1"), dict.fromkeys((3, 4), PortCounters(*range(8))), time.monotonic())
    found = {
        sample.labels["port"]: sample.labels for sample in scraped(rest, poller) if sample.name == "sopa_port_receive_bytes_total"
    }
    own = {"dp_name": "a0_1", "alias": "leaf-12", "level": "aggregation"}
    assert found == {"3": {**own, "port": "3", "port_label": 'Eth 1\\3 "up"'}, "4": {**own, "port": "4"}}
