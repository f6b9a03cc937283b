"""``make alerts``: Prometheus scrapes a lab by the shipped rules. Nothing fires while all is well; each fault fires what names it.

``one`` is a lab with a controller, ``three`` one with three, relays, an arbiter and gateways. Both may run at the same time.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import httpx

from experiments.emulation.bad_links import BadLinks
from experiments.emulation.processes import AgentProcess
from experiments.emulation.sopa_lab import REST_PORT, SopaLab
from experiments.schemes.scheme import Slots
from sopa_ryu.pki import openssl
from tests.helpers.sopa_lab import run
from topologies import Clos, Host
from topologies.lab.faults import kill_switch, restore_switch
from topologies.lab.isolation import isolated

RULES = Path(__file__).parents[2] / "deploy/prometheus/sopa.rules.yml"
TREE = Clos(pods=2, edges=2, aggregations=2, cores=4, hosts=2, gateways=["h0_1_3", "h1_1_3"])
MBIT, SCRAPE_SECONDS = 4.0, 15
FAULT_SECONDS = 120.0
"""An alert has fired after so long, and is gone so long after the fault has ended."""
AGENTS_PORT, AGENT_PORT, ARBITER_PORT, ETCD_PORT = 9158, 9159, 9161, 2379
PROMETHEUS = "http://127.0.0.1:9090/api/v1"
STATE_BYTES = 200_000_000


@dataclass
class Fault:
    """What breaks, the alert that is expected, a part of what it says, and how it is broken (True) and healed."""

    kind: str
    alert: str
    names: str
    set: Callable[[bool], object]


class Watched:
    """A lab that Prometheus scrapes."""

    def __init__(self, controllers: int, stack: ExitStack) -> None:
        # probes take 1% of a link: without a limit they find loss within a minute; slots need one
        self.stack, self.cluster = stack, controllers > 1
        directory = Path("/run/sopa")
        directory.mkdir(parents=True, exist_ok=True)
        self.state, self.authority = directory / "controller.state", directory / "ca.pem"
        options, more = [], {}
        if self.cluster:
            more = {"slots": Slots(1), "controllers": controllers}
        else:
            self.state.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "none", self.state], check=True)
            self.set_days(365)
            options = [f"--ca-certs={self.authority}"]
        agent_options = ["--policy=cfr"] if self.cluster else []
        self.lab = stack.enter_context(
            SopaLab(
                TREE,
                MBIT if self.cluster else None,
                agents=False,
                agent_options=agent_options,
                controller_options=options,
                say=say,
                **more,
            )
        )
        *most, last = self.lab.labelling
        self.agents = self._agents(most, "agents", AGENTS_PORT)
        self.agent = self._agents([last], "agent", AGENT_PORT)
        self.bad = stack.enter_context(BadLinks(self.lab.lab))

    def _agents(self, hosts: list[Host], name: str, port: int) -> AgentProcess:
        metrics = [f"--metrics-port={port}", f"--metrics-host={self.lab.agents_address}"]
        return self.stack.enter_context(self.lab.agent_of(hosts, name, metrics))

    def set_days(self, days: int) -> None:
        """Let the authority of switches' databases end so many days from now."""
        its = self.authority
        new = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=switches"]
        openssl("req", *new, "-days", str(days), "-keyout", its.with_suffix(".key"), "-out", its)

    # -- Prometheus -----------------------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, list[str]]:
        """Return the targets of each job of docs/alarms.md."""
        agents = [f"{self.lab.agents_address}:{port}" for port in (AGENTS_PORT, AGENT_PORT)]
        if (parts := self.lab.cluster) is None:
            return {"sopa": [f"127.0.0.1:{REST_PORT}"], "sopa-agent": agents}
        found = {
            job: [f"{parts.network.address(name)}:{port}" for name in parts.parts if name.startswith(kind)]
            for job, kind, port in (
                ("sopa", "controller", REST_PORT),
                ("sopa-relay", "relay", REST_PORT),
                ("sopa-etcd", "etcd", ETCD_PORT),
            )
        }
        return {**found, "sopa-agent": agents}

    @contextmanager
    def scraped(self) -> Iterator[None]:
        """Run Prometheus in this namespace."""
        file, seconds = self.lab.directory / "prometheus.json", f"{SCRAPE_SECONDS}s"
        jobs = [{"job_name": job, "static_configs": [{"targets": its}]} for job, its in self.jobs().items()]
        intervals = {"scrape_interval": seconds, "evaluation_interval": seconds}
        file.write_text(json.dumps({"global": intervals, "rule_files": [str(RULES)], "scrape_configs": jobs}))
        command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.lab.directory / 'tsdb'}"]
        with file.with_suffix(".log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as prometheus:
            try:
                yield
            finally:
                prometheus.terminate()

    def firing(self) -> dict[str, str]:
        """Return what the alerts say that fire, by their labels: a value in it may be another one each time."""
        try:
            alerts = httpx.get(f"{PROMETHEUS}/alerts").json()["data"]["alerts"]
        except (httpx.TransportError, ValueError):
            return {}  # it begins
        firing = [its for its in alerts if its["state"] == "firing"]
        return {json.dumps(its["labels"]): f"{its['labels']['alertname']}: {its['annotations']['summary']}" for its in firing}

    # -- faults ---------------------------------------------------------------------------------------------------------

    def faults(self) -> Iterator[Fault]:
        """Yield those of this lab."""
        lab = self.lab
        if not self.cluster:
            yield Fault("link", "SopaFailures", "e0_0-a0_0 down", lambda bad: lab.lab.set_link("e0_0-a0_0", not bad))
            yield Fault(
                "switch", "SopaSwitchesMissing", "a1_0 ", lambda bad: (kill_switch if bad else restore_switch)(lab.lab, "a1_0")
            )
            yield Fault("lossy link", "SopaSuspectLink", "e0_0-a0_1 ", lambda bad: self._loss("e0_0-a0_1", bad))
            yield Fault("agent", "SopaAgentDown", f":{AGENT_PORT}", partial(_killed, self.agent))
            yield Fault("certificate", "SopaCertificateEnds", str(self.authority), lambda bad: self.set_days(10 if bad else 365))
            yield Fault("full disk", "SopaStateDirectoryFull", f":{REST_PORT}", self._full)
            return
        assert lab.cluster is not None
        assert lab.arbiter is not None
        leader = str(lab.cluster.leader())
        yield Fault("leader", "SopaMemberAway", leader, partial(self._part, leader))
        other = next(name for name in ("controller1", "controller2", "controller3") if name != lab.cluster.leader())
        yield Fault("standby", "SopaMemberAway", other, partial(self._part, other))
        yield Fault("relay", "SopaRelayDown", str(lab.cluster.network.address("relay1")), partial(self._part, "relay1"))
        yield Fault("etcd node", "SopaEtcdNodeDown", str(lab.cluster.network.address("etcd1")), partial(self._part, "etcd1"))
        yield Fault("gateway", "SopaGatewayAway", "h0_1_3", self._gateway)
        yield Fault("arbiter", "SopaArbiterGone", "arbiter", partial(_killed, lab.arbiter))

    def _loss(self, link: str, bad: bool) -> None:
        self.bad.set_loss(link, link.split("-")[1], 0.05 if bad else 0.0, 1)
        if not bad:
            self.lab.rest.change("DELETE", f"/drains/{link}")

    def _full(self, bad: bool) -> None:
        file = self.state / "filler"
        if bad:
            subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=1M"], check=False, capture_output=True)
        else:
            file.unlink()

    def _part(self, name: str, bad: bool) -> None:
        assert self.lab.cluster is not None
        (self.lab.cluster.kill if bad else self.lab.cluster.restart)(name)

    def _gateway(self, bad: bool) -> None:
        host = TREE.host("h0_1_3")
        run(self.lab, "h0_1_3", "ip", "link", "set", self.lab.lab.interface(host, 0), "down" if bad else "up")
        if not bad:
            run(self.lab, "h0_1_3", "ip", "route", "replace", "default", "via", str(TREE.gateway(host)))


def _killed(process: Any, bad: bool) -> None:
    if bad:
        process.stop(signal.SIGKILL)
    else:
        process.start()


def say(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def watch(its: Watched, minutes: float, only: list[str]) -> int:
    """Return how many of the looks at the alerts were not as they should be."""
    wrong = _quiet(its, 60 * minutes)
    for fault in its.faults():
        if only and fault.kind not in only:
            continue
        begin = time.monotonic()
        fault.set(True)
        seen: dict[str, tuple[str, float]] = {}
        while time.monotonic() < begin + FAULT_SECONDS:
            for labels, alert in its.firing().items():
                seen.setdefault(labels, (alert, time.monotonic() - begin))
            time.sleep(1.0)
        right = len(seen) == 1 and all(one.startswith(f"{fault.alert}: ") and fault.names in one for one, _ in seen.values())
        for alert, after in seen.values():
            say(f"{fault.kind}: {alert} after {after:.0f} s")
        begin = time.monotonic()
        fault.set(False)
        while its.firing() and time.monotonic() < begin + FAULT_SECONDS:
            time.sleep(1.0)
        left = its.firing().values()
        say(f"{fault.kind}: {'right' if right and not left else 'WRONG'}, gone after {time.monotonic() - begin:.0f} s", *left)
        wrong += not right or bool(left)
        wrong += _quiet(its, 30.0)
    return wrong


def _quiet(its: Watched, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := its.firing():
            say(f"WRONG, while all is well: {', '.join(found.values())}")
            return 1
        time.sleep(5.0)
    say(f"no alert in {seconds:.0f} s while all is well")
    return 0


def lab(controllers: int, minutes: float, only: list[str]) -> int:
    """Watch a lab, inside `isolated`."""
    with ExitStack() as stack:
        its = Watched(controllers, stack)
        its.lab.rest.wait_until(lambda: its.lab.rest.agents_know(len(its.lab.labelling)), "all agents had acknowledged", 120.0)
        with its.scraped():
            return watch(its, minutes, only)


@click.command()
@click.argument("controllers", type=click.Choice(["one", "three"]))
@click.option("--minutes", default=10.0, show_default=True, help="For so long all is well first.")
@click.option("--only", multiple=True, help="A kind of fault; repeatable. All without it.")
def main(controllers: str, minutes: float, only: tuple[str, ...]) -> None:
    """Let parts of a lab fail, and look at the alerts that Prometheus gives by the shipped rules (root)."""
    wrong = isolated(lambda: lab(3 if controllers == "three" else 1, minutes, [*only]))
    say(f"alerts of {controllers}: {f'{wrong} wrong' if wrong else 'as they should be'}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
