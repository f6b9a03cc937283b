"""The contracts of a running controller with real switches behind it: REST, metrics, feed, push channel, queries, flow entries.

One fabric goes through all situations, one after the other, and is healthy again after each. Switches are Open vSwitch's with the
dummy datapath, so that root is needed, but no packet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.southbound import lldp
from tests.contract.plain import added_and_removed, shared
from tests.contract.values import HEALTHY, NUMBER, TEXT, compact, masked
from topologies import FatTree
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

PARTS = ("rest", "openapi", "metrics", "queries", "channel", "live", "switches", "rest-k2")
WITH_SITUATIONS = ("rest",)
"""Parts whose answers are stored once where they are as in the healthy fabric."""
ROOT = "/sopa/v1"
UNCHECKED_HEADERS = {"connection", "content-length", "date"}
"""Headers of the HTTP server, or that follow from the body."""
SETTINGS = ("--sopa-hold-down=0", "--sopa-hold-down-max=0", "--sopa-lldp-interval=600", "--sopa-stats-interval=0.5")
"""Nothing is held down, so that healing is immediate; cabling is `unchecked` all the time, as no packet flows."""

STATE = (
    "/fabric",
    "/failures",
    "/wiring",
    "/drains",
    "/changes?limit=1",
    "/switches",
    "/links?offset=16",
    "/paths?src=10.0.0.2&dst=10.2.1.3",
    "/paths?src=h0_0_2&dst=h0_1_3",
    "/paths?src=h1_0_2&dst=h3_1_2",
)
"""What is asked in every situation."""
MAX_VALUES = 20
"""Of a metric's label with more values only the name is recorded."""
QUESTIONS = (
    "/hosts",
    "/agents",
    "/process",
    "/switches/e0_0/rules",
    "/switches/a0_0/rules",
    "/switches/c0_0/rules",
    "/paths?src=10.0.0.2&dst=10.0.0.3",
    "/paths?src=h0_0_2&dst=h0_0_2",
    "/paths?src=h0_0_2&dst=10.1.1.3&packets=6",
    "/paths?src=h0_0_2&dst=h1_1_3&packets=6&protocol=17&sport=4000&dport=53&seed=7",
    "/paths?src=h0_0_2&dst=h1_1_3&packets=6&sport=40000",
    "/paths",
    "/paths?src=10.0.0.2",
    "/paths?src=10.0.0.2&dst=",
    "/paths?src=10.0.0.2&dst=10.0.0.300",
    "/paths?src=10.0.0.2&dst=10.0.0",
    "/paths?src=10.0.0.2&dst=e0_0",
    "/paths?src=10.0.0.2&dst=192.0.2.1",
    "/paths?src=10.0.0.2&dst=10.0.0.4",
    "/paths?src=10.0.0.2&dst=h9_0_2",
    "/paths?src=10.0.0.2&src=10.0.0.2&dst=10.0.1.2",
    "/paths?src=10.0.0.2&dst=10.0.1.2&colour=red",
    "/paths?src=10.0.0.2&dst=10.0.1.2&packets=0",
    "/paths?src=10.0.0.2&dst=10.0.1.2&packets=10001",
    "/paths?src=10.0.0.2&dst=10.0.1.2&packets=1&sport=65536",
    "/paths?src=10.0.0.2&dst=10.0.1.2&packets=1&protocol=256",
    "/paths?src=10.0.0.2&dst=10.0.1.2&packets=1&seed=4294967296",
    "/switches?limit=2",
    "/switches?limit=2&offset=18",
    "/links?limit=3",
    "/hosts?offset=100",
    "/hosts?limit=0",
    "/hosts?limit=1001",
    "/hosts?offset=-1",
    "/hosts?k=4",
    "/fabric?k=4",
    "/switches/e9_0/rules",
    "/switches/h0_0_2/rules",
    "/switches/e0_0",
    "/nothing",
    "/agents/10.0.0.2",
    "/live",
)
"""What is asked of the healthy fabric alone."""
OTHER_REQUESTS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("GET", "/", {}),
    ("GET", "/nothing", {}),
    ("GET", "/web/", {}),
    ("POST", "/", {}),
    ("HEAD", f"{ROOT}/fabric", {}),
    ("OPTIONS", f"{ROOT}/fabric", {}),
    ("POST", f"{ROOT}/fabric", {}),
    ("GET", f"{ROOT}/drains/c0_0", {}),
    ("POST", f"{ROOT}/drains/c0_0", {}),
    ("DELETE", f"{ROOT}/drains", {}),
    ("POST", f"{ROOT}/agents/10.0.0.2", {}),
    ("POST", f"{ROOT}/live", {}),
    ("POST", "/metrics", {}),
    ("PUT", f"{ROOT}/drains/c0_0", {}),
    ("PUT", f"{ROOT}/drains/c0_0", {"Authorization": "Bearer wrong"}),
    ("PUT", f"{ROOT}/drains/c0_0", {"Authorization": "Basic b3A6b3A="}),
    ("DELETE", f"{ROOT}/drains/c0_0", {}),
    ("PUT", f"{ROOT}/drains/c0_0", {"Content-Length": "65537"}),
)
OPERATORS_REQUESTS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("PUT", "/drains/c9_0", {}),
    ("PUT", "/drains/nothing", {}),
    ("PUT", "/drains/h0_0_2", {}),
    ("PUT", "/drains/h0_0_2-e0_0", {}),
    ("PUT", "/drains/c0_0-a0_0", {}),
    ("PUT", "/drains/c0_0?force=1", {}),
    ("PUT", "/drains/c0_0", {"If-Match": '"other"'}),
    ("DELETE", "/drains/c0_0", {}),
)
QUERIES = (
    "status",
    "failures",
    "wiring",
    "agents",
    "agents --missing",
    "rules c0_0",
    "rules e0_0 --differences",
    "paths h0_0_2 10.2.1.3",
    "paths h0_0_2 h1_1_3 --packets 6 --protocol udp --sport 4000 --dport 53 --seed 7",
    "paths h0_0_2 h9_0_2",
)
"""Commands that are run with and without --json."""
USAGE = (
    "--version",
    "--help",
    "-h",
    "",
    "nothing",
    "status --nothing",
    "status --controller 127.0.0.1:8080",
    "status --controller http://127.0.0.1:9",
    "paths h0_0_2",
    "paths h0_0_2 h1_0_2 --sport 1",
    "rules e0_0/../../fabric",
    "rules e9_0",
    "drain",
    "drain c9_0",
    "drain h0_0_2-e0_0",
    "restore c0_0",
    "drain c0_0 --token-file /nowhere",
    "status --ca-file /nowhere",
    "completion bash",
    "completion zsh",
    "completion fish",
    "completion",
    "agent",
    "agent --iface nothing0 --controller nowhere",
    "experiment run nothing --out /nowhere/out",
    "lab --k 3",
    "demo --k 3",
)


class Answer(NamedTuple):
    """An HTTP answer: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes


def awaited(ask: Callable[[], Any], wanted: Callable[[Any], bool], what: str, seconds: float = 20) -> Any:
    """Return the first answer that is wanted; `AssertionError` with the last one if none comes in time."""
    deadline = time.monotonic() + seconds
    while not wanted(last := ask()):
        assert time.monotonic() < deadline, f"{what} in {seconds} s; the last answer: {last}"
        time.sleep(0.02)
    return last


class Running:
    """A controller and its switches, asked from outside."""

    def __init__(
        self, tree: FatTree, controller: ControllerProcess, ovs: PrivateOvs, dummy: DummyFabric | None
    ) -> None:
        self.tree = tree
        self.controller = controller
        self.ovs = ovs
        self.dummy = dummy
        self.version = 1

    # -- questions ----------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request as it is written."""
        connection = HTTPConnection(urlsplit(self.controller.url).netloc, timeout=20)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            answered = connection.getresponse()
            named = {name.lower(): value for name, value in answered.getheaders()}
            return Answer(answered.status, named, answered.read())
        finally:
            connection.close()

    def body(self, path: str) -> Any:
        """The body of a GET below ``/sopa/v1``."""
        return json.loads(self.request("GET", ROOT + path).body)

    def answer(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """A whole answer, masked."""
        given = self.request(method, path, headers)
        kept = {name: value for name, value in given.headers.items() if name not in UNCHECKED_HEADERS}
        kind = kept.get("content-type", "")
        if "json" in kind:
            body = masked(json.loads(given.body), self.version) if given.body else None
        else:
            body = TEXT if given.body else None
        return {"status": given.status, "headers": masked(kept), "body": body}

    def state(self) -> dict[str, Any]:
        """What is asked in every situation, and what queries of it end with."""
        self.settled()
        told = {f"GET {path}": self.answer("GET", ROOT + path) for path in STATE}
        for words in ("status", "failures", "paths h0_0_2 10.2.1.3", "wiring"):
            told[f"sopa {words}"] = self.sopa(*words.split())["exit"]
        return told

    def settled(self) -> None:
        """Wait until the last version is in force at every switch that is connected."""

        def confirmed(changes: list[dict[str, Any]]) -> bool:
            return not changes or changes[0]["installed_ms"] is not None

        awaited(lambda: self.body("/changes?limit=1")["changes"], confirmed, "no confirmed version")

    def rated(self) -> None:
        """Wait until the rates of all links are known: from the second poll of each switch on."""

        def known(links: list[dict[str, Any]]) -> bool:
            return all(link["up_bits_per_second"] is not None for link in links)

        awaited(lambda: self.body("/links")["links"], known, "no rates")

    def failing(self, *names: str) -> None:
        """Wait until exactly these links and switches have failed or are drained."""
        awaited(
            lambda: sorted(failure["name"] for failure in self.body("/failures")["failures"]),
            lambda found: found == sorted(names),
            f"failures are not {names}",
        )

    @cached_property
    def operator(self) -> dict[str, str]:
        """The header that carries the operators' token."""
        return {"Authorization": f"Bearer {self.controller.token_file.read_text().strip()}"}

    @cached_property
    def agent(self) -> dict[str, str]:
        """The header that carries the agents' token."""
        return {"Authorization": f"Bearer {self.controller.agent_token_file.read_text().strip()}"}

    def sopa(self, *words: str) -> dict[str, Any]:
        """What a command answers: exit status, and of its output JSON, or whether there is any."""
        assert self._commands.stdin
        assert self._commands.stdout
        self._commands.stdin.write(json.dumps(words) + "\n")
        self._commands.stdin.flush()
        line = self._commands.stdout.readline()
        assert line, f"sopa {' '.join(words)} has failed: see the output"
        done = json.loads(line)
        return {**done, "stdout": self._output(done["stdout"]), "stderr": TEXT if done["stderr"] else ""}

    @cached_property
    def _commands(self) -> subprocess.Popen[str]:
        """A process that runs commands."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SOPA_")}
        own |= {"SOPA_CONTROLLER": self.controller.url, "SOPA_TOKEN_FILE": str(self.controller.token_file)}
        command = [sys.executable, "-m", "tests.contract.worker"]
        pipe = subprocess.PIPE
        here = Path(__file__).parents[2]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=own, cwd=here)

    def close(self) -> None:
        """End what was started to ask."""
        self._commands.communicate(timeout=20)

    def _output(self, text: str) -> Any:
        try:
            return masked([json.loads(line) for line in text.splitlines()], self.version) if text else ""
        except ValueError:
            return TEXT

    def flows(self) -> dict[str, list[str]]:
        """Each switch's entries and groups as Open vSwitch has them, without the version in the cookies."""
        self.settled()
        found = {}
        for switch in self.tree.switches():
            name = self.tree.name(switch)
            lines = self.ovs.ofctl("dump-flows", name, "--no-stats").splitlines()
            lines += self.ovs.ofctl("dump-groups", name).splitlines()
            unversioned = (
                re.sub(r"(cookie=0x[0-9a-f]{1,8})[0-9a-f]{8}\b", r"\1<version>", line.strip()) for line in lines
            )
            found[name] = sorted(line for line in unversioned if "actions=" in line or "group_id=" in line)
        return found

    # -- acts ---------------------------------------------------------------------------------------------------------

    def port(self, name: str) -> tuple[Any, int]:
        """The lower end of a link between switches: the switch, and its port."""
        lower, upper = (self.tree.switch(end) for end in name.split("-"))
        return lower, self.tree.port(lower, upper)

    def connect_to_controller(self, *switches: str) -> None:
        """Have switches connect, all at the same moment."""
        commands = [["--", "set-controller", name, self.controller.openflow] for name in switches]
        self.ovs.vsctl(*(word for command in commands for word in command))

    def set_link(self, name: str, up: bool) -> None:
        """Pull or plug a cable."""
        assert self.dummy
        self.dummy.set_port(*self.port(name), up)

    def set_live(self, name: str, live: bool) -> None:
        """Have BFD find a link dead behind its carrier, or alive."""
        assert self.dummy
        self.dummy.set_live(*self.port(name), live)

    def drain(self, method: str, name: str) -> dict[str, Any]:
        """Drain or restore, with the operators' token."""
        return self.answer(method, f"{ROOT}/drains/{name}", self.operator)

    def hear(self, at: str, port: int, dpid: int, sender_port: int) -> None:
        """Have a probe of a datapath's port arrive at a switch's port."""
        frame = lldp.frame(dpid, sender_port)
        self.ovs.appctl("netdev-dummy/receive", f"{at}-eth{port}", frame.hex())


@contextmanager
def running(k: int, directory: Path, *options: str, connect_switches: bool = True) -> Iterator[Running]:
    """A controller; with it every switch of a fat-tree, connected and with its rules unless it is said otherwise."""
    tree = FatTree(k)
    openflow, rest = free_ports(2)
    directory.mkdir(parents=True, exist_ok=True)
    with (
        ControllerProcess(k, directory / "controller.log", openflow, rest, options=[*SETTINGS, *options]) as controller,
        PrivateOvs(directory / "ovs", dummy=True) as ovs,
    ):
        dummy = DummyFabric(tree, ovs, controller.openflow if connect_switches else None)
        its = Running(tree, controller, ovs, dummy)
        if connect_switches:
            controller.wait_connected(tree.switch_count)
            its.version = its.body("/fabric")["version"]
        with contextlib.closing(its):
            yield its


# -- the situations ---------------------------------------------------------------------------------------------------


def collect(directory: Path) -> dict[str, Any]:
    """Return every part, by name."""
    rest: dict[str, dict[str, Any]] = {}
    with running(4, directory / "k4") as its:
        its.rated()
        rest[HEALTHY] = its.state()
        rest["healthy, asked more"] = asked(its)
        parts = {
            "openapi": masked(json.loads(its.request("GET", "/openapi.json").body)),
            "metrics": metrics(its),
            "queries": queries(its),
            "channel": channel(its),
            "live": live(its),
        }
        entries = its.flows()
        parts["switches"] = {HEALTHY: shared(entries)}
        for situation, act, undo, names in situations(its):
            its.failing()
            its.rated()
            its.version = its.body("/fabric")["version"]
            more = act() or {}
            its.failing(*names)
            rest[situation] = {**its.state(), **more}
            if len(names) > 1:
                parts["switches"][situation] = added_and_removed(entries, its.flows())
            undo()
        its.failing()
        parts["switches"]["healthy again"] = added_and_removed(entries, its.flows())
        rest["gone and back"] = {"GET /fabric": its.answer("GET", f"{ROOT}/fabric")}
    return {"rest": compact(rest), **parts, "rest-k2": small(directory)}


Situation = tuple[str, Callable[[], dict[str, Any] | None], Callable[[], object], tuple[str, ...]]


def situations(its: Running) -> Iterator[Situation]:
    """Each situation: its name, what leads to it, what leads out of it, and what has failed in it."""
    yield (
        "a link is down",
        lambda: its.set_link("a0_0-c0_1", False),
        lambda: its.set_link("a0_0-c0_1", True),
        ("a0_0-c0_1",),
    )
    yield (
        "a link is silent",
        lambda: its.set_live("e0_0-a0_1", False),
        lambda: its.set_live("e0_0-a0_1", True),
        ("e0_0-a0_1",),
    )
    yield (
        "a switch and a link are drained",
        lambda: {"PUT c1_0": its.drain("PUT", "c1_0"), "PUT e2_1-a2_0": its.drain("PUT", "e2_1-a2_0")},
        lambda: [its.drain("DELETE", name) for name in ("c1_0", "e2_1-a2_0")],
        ("c1_0", "e2_1-a2_0"),
    )
    yield (
        "a switch is gone",
        lambda: gone(its, "a2_1"),
        lambda: its.connect_to_controller("a2_1"),
        ("a2_1",),
    )
    yield (
        "cables lead elsewhere",
        lambda: elsewhere(its),
        lambda: pulled_and_plugged(its, "a1_0-c0_0", "a3_1-c1_1"),
        ("a1_0-c0_0", "a3_1-c1_1"),
    )
    yield "several have failed", lambda: several(its), lambda: several_undone(its), (
        "a1_0-c0_1",
        "a3_0-c0_0",
        "c1_1",
        "e0_1-a0_0",
    )  # fmt: skip


def gone(its: Running, name: str) -> dict[str, Any]:
    its.ovs.vsctl("del-controller", name)
    its.failing(name)
    return {
        "GET rules": its.answer("GET", f"{ROOT}/switches/{name}/rules"),
        "sopa rules": its.sopa("rules", name),
        "sopa status --json": its.sopa("status", "--json"),
    }


def elsewhere(its: Running) -> None:
    """Have another switch's probe arrive at one link, and a foreign device's at another."""
    its.hear("a1_0", 3, its.tree.dpid(its.tree.switch("c0_1")), 2)
    its.failing("a1_0-c0_0")
    its.hear("a3_1", 4, 0xFFFFFF, 1)


def pulled_and_plugged(its: Running, *names: str) -> None:
    """Forget what was heard at links' lower ends."""

    def reasons() -> dict[str, str]:
        return {failure["name"]: failure["reason"] for failure in its.body("/failures")["failures"]}

    for name in names:
        its.set_link(name, False)
    awaited(reasons, lambda found: found == dict.fromkeys(names, "down"), f"{names} are not down")
    for name in names:
        its.set_link(name, True)


def several(its: Running) -> dict[str, Any]:
    its.set_link("a1_0-c0_1", False)
    its.failing("a1_0-c0_1")
    its.set_live("e0_1-a0_0", False)
    its.failing("a1_0-c0_1", "e0_1-a0_0")
    told = {"PUT c1_1": its.drain("PUT", "c1_1")}
    its.drain("PUT", "a3_0-c0_0")
    its.settled()
    return told | {
        "GET /switches/e0_1/rules": its.answer("GET", f"{ROOT}/switches/e0_1/rules"),
        "GET /changes?limit=4": its.answer("GET", f"{ROOT}/changes?limit=4"),
        "sopa failures --json": its.sopa("failures", "--json"),
        "sopa status --json": its.sopa("status", "--json"),
        "metrics": failures_counted(its),
    }


def several_undone(its: Running) -> None:
    its.set_live("e0_1-a0_0", True)
    its.set_link("a1_0-c0_1", True)
    its.drain("DELETE", "c1_1")
    its.drain("DELETE", "a3_0-c0_0")


def asked(its: Running) -> dict[str, Any]:
    """The questions to the healthy fabric alone."""
    told = {f"GET {path}": its.answer("GET", ROOT + path) for path in QUESTIONS}
    for method, path, headers in OTHER_REQUESTS:
        told[f"{method} {path} {dict(headers) or ''}".strip()] = its.answer(method, path, headers)
    for method, path, headers in OPERATORS_REQUESTS:
        named = f"{method} {path} {dict(headers) or ''}".strip()
        told[f"{named}, with the token"] = its.answer(method, ROOT + path, {**headers, **its.operator})
    etag = its.request("GET", f"{ROOT}/fabric").headers["etag"]
    told["GET /fabric, unchanged"] = its.answer("GET", f"{ROOT}/fabric", {"If-None-Match": etag})
    etag = its.request("GET", f"{ROOT}/drains").headers["etag"]
    told["DELETE /drains/c0_0, unchanged"] = its.answer(
        "DELETE", f"{ROOT}/drains/c0_0", {**its.operator, "If-Match": etag}
    )
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    for path in ("/agents/10.0.0.2", "/agents/h9_0_2", "/agents/nothing"):
        told[f"WebSocket {path}, no token"] = its.answer("GET", ROOT + path, upgrade)
    told["WebSocket /live, foreign page"] = its.answer(
        "GET", f"{ROOT}/live", {**upgrade, "Origin": "http://elsewhere.example"}
    )
    return told


def metrics(its: Running) -> dict[str, Any]:
    """Every family with its type, its samples' names and labels; labels with few values with these."""
    answer = its.request("GET", "/metrics")
    families: dict[str, Any] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        samples: dict[str, dict[str, set[str]]] = {}
        for sample in family.samples:
            labels = samples.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
        most = MAX_VALUES if family.name.startswith("sopa_") else 0  # others are Python's own
        families[family.name] = {
            "type": family.type,
            "help": TEXT if family.documentation else "",
            "samples": {
                name: {label: sorted(values) if len(values) <= most else TEXT for label, values in labels.items()}
                for name, labels in samples.items()
            },
        }
    return {"status": answer.status, "content-type": answer.headers["content-type"], "families": families}


def failures_counted(its: Running) -> dict[str, float]:
    """The samples that count failures and drains, above zero."""
    families = text_string_to_metric_families(its.request("GET", "/metrics").body.decode())
    return {
        f"{sample.name} {json.dumps(sample.labels, sort_keys=True)}": sample.value
        for family in families
        for sample in family.samples
        if ("failures" in sample.name or "drain" in sample.name or "switches" in sample.name) and sample.value
    }


def queries(its: Running) -> dict[str, Any]:
    """The commands that ask a controller, and how wrong ones end."""
    told = {}
    for query in QUERIES:
        for words in (query, f"{query} --json"):
            told[words] = its.sopa(*words.split())
    for words in USAGE:
        told[words] = its.sopa(*words.split())
    for words in ("drain c0_0 a0_0-c0_1 --json", "status", "status --json", "restore c0_0 a0_0-c0_1 --json"):
        told[f"then: {words}"] = its.sopa(*words.split())
    for words in ("drain c0_0", "drain c0_0 --wait 0", "restore c0_0"):
        told[f"then: {words}"] = its.sopa(*words.split())
    told["watch --json --last 2"] = watched(its)
    return told


def watched(its: Running) -> dict[str, Any]:
    """The lines of ``sopa watch`` until it has told how the fabric is."""
    command = [str(Path(sys.executable).with_name("sopa")), "watch", "--json", "--last", "2"]
    watch = subprocess.Popen(
        [*command, "--controller", its.controller.url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert watch.stdout
    lines = [watch.stdout.readline() for _ in range(3)]
    watch.send_signal(signal.SIGINT)
    rest, _ = watch.communicate(timeout=10)
    return {"exit": watch.returncode, "stdout": masked([json.loads(line) for line in lines], its.version), "rest": rest}


# -- WebSockets -------------------------------------------------------------------------------------------------------


def channel(its: Running) -> list[dict[str, Any]]:
    """A model agent's talk with the controller: each message in order, and how wrong ones end."""
    its.settled()
    its.failing()
    its.version = its.body("/fabric")["version"]
    log: list[dict[str, Any]] = []
    where = f"{its.controller.url.replace('http', 'ws')}{ROOT}/agents/"

    def opened(host: str = "10.0.0.2") -> ClientConnection:
        return connect(where + host, additional_headers=its.agent, proxy=None, ping_interval=None)

    def heard(talk: ClientConnection, why: str) -> dict[str, Any]:
        while (message := json.loads(talk.recv(timeout=10)))["type"] == "ping":
            pass
        log.append({"after": why, "controller sends": masked(message, its.version)})
        found: dict[str, Any] = message
        return found

    def said(talk: ClientConnection, message: dict[str, Any]) -> None:
        talk.send(json.dumps(message))

    def agents(why: str, wanted: Callable[[Any], bool]) -> None:
        body = awaited(lambda: its.body("/agents"), wanted, why)
        log.append({"after": why, "GET /agents": masked(body, its.version)})

    with opened() as talk:
        first = heard(talk, "connect")
        ack = {"type": "ack", "epoch": first["epoch"], "refused": 0}
        agents("snapshot, not acknowledged", lambda body: body["total"] == 1)
        said(talk, {**ack, "version": first["version"]})
        agents("snapshot acknowledged", lambda body: body["behind"] == 0)
        its.drain("PUT", "c0_0")
        said(talk, {**ack, "version": heard(talk, "drain")["version"]})
        its.drain("PUT", "a0_0-c0_1")
        last = heard(talk, "another drain")
        agents("not acknowledged", lambda body: body["agents"][0]["lag"] == 1)
        said(talk, {**ack, "version": last["version"], "refused": 2})
        agents("acknowledged, with refused messages", lambda body: body["behind"] == 0)
        log.append({"GET /hosts": masked(its.body("/hosts?limit=2"), its.version)})
        its.settled()
        changes = awaited(
            lambda: its.body("/changes?limit=2"),
            lambda body: body["changes"][0]["acknowledged_ms"] is not None,
            "no acknowledged version",
        )
        log.append({"GET /changes": masked(changes, its.version)})
        said(talk, {"type": "resync"})
        said(talk, {**ack, "version": heard(talk, "resync")["version"], "refused": 2})
        with opened("h1_0_2") as other:
            heard(other, "another host's agent, by name")
            agents("two agents", lambda body: body["total"] == 2)
        agents("it has left", lambda body: body["total"] == 1)
        with ThreadPoolExecutor() as second:
            claim = second.submit(opened)
            # the controller asks the first agent whether it is still there
            log.append({"after": "another claims its place", "controller sends": json.loads(talk.recv(timeout=10))})
            said(talk, {**ack, "version": last["version"], "refused": 2})
            refused = claim.exception(timeout=10)
        assert isinstance(refused, InvalidStatus)
        body = masked(json.loads(refused.response.body))
        log.append({"a second agent of one host": refused.response.status_code, "body": body})
        agents("claim rejected", lambda body: body["refused"]["claims"] == 1)
        its.drain("DELETE", "c0_0")
        its.drain("DELETE", "a0_0-c0_1")
        heard(talk, "restore")
        heard(talk, "restored, too")
    agents("no agent", lambda body: body["total"] == 0)
    for name, text in (
        ("no JSON", "{"),
        ("no object", "[]"),
        ("an unknown type", '{"type": "later"}'),
        ("a version that does not exist yet", json.dumps({**ack, "version": 1 << 40})),
        ("a field missing", '{"type": "ack"}'),
        ("another epoch", json.dumps({**ack, "epoch": 1, "version": 1})),
    ):
        with opened() as talk:
            heard(talk, f"connect, to send {name}")
            talk.send(text)
            said(talk, {"type": "resync"})
            try:
                after = json.loads(talk.recv(timeout=10))["type"]
                log.append({name: "goes on", "then": after, "refused": its.body("/agents")["refused"]})
            except ConnectionClosed as closed:
                received = closed.rcvd
                log.append({name: "closed", "code": received and received.code, "reason": TEXT if received else None})
        awaited(lambda: its.body("/agents")["total"], lambda total: total == 0, "the agent is still there")
    return log


def live(its: Running) -> Any:
    """The first message of the page's feed."""
    its.failing()
    its.version = its.body("/fabric")["version"]
    with connect(f"{its.controller.url.replace('http', 'ws')}{ROOT}/live", proxy=None) as feed:
        message = json.loads(feed.recv(timeout=10))
    message["links"] = [[rate if rate is None else NUMBER for rate in link] for link in message["links"]]
    return masked(message, its.version)


# -- a k=2 fabric: starts and refusals --------------------------------------------------------------------------------


def small(directory: Path) -> dict[str, Any]:
    """What happens at a start, to a switch that refuses its rules, and to a link that is held down."""
    told: dict[str, Any] = {}
    others = ("e1_0", "a0_0", "a1_0", "c0_0")
    slow = "--sopa-settle=600", "--sopa-hold-down=30", "--sopa-hold-down-max=60", "--sopa-stats-interval=0"
    with running(2, directory / "k2-held", *slow, connect_switches=False) as its:
        told["nobody is connected"] = state_of_small(its)
        its.connect_to_controller("e0_0")
        awaited(lambda: its.body("/fabric")["connected"], lambda count: count == 1, "e0_0 is not connected")
        told["it waits for switches"] = state_of_small(its)
        its.connect_to_controller(*others)
        its.controller.wait_connected(5)
        its.version = its.body("/fabric")["version"]
        its.set_link("e0_0-a0_0", False)
        its.failing("e0_0-a0_0")
        its.set_link("e0_0-a0_0", True)
        awaited(
            lambda: its.body("/failures")["failures"][0]["held_seconds"],
            lambda held: held is not None,
            "it is not held",
        )
        told["a link is back and held down"] = state_of_small(its)
    with running(2, directory / "k2", "--sopa-settle=3", "--sopa-stats-interval=0", connect_switches=False) as its:
        its.connect_to_controller("e0_0", "e1_0", "a0_0", "c0_0")
        its.failing("a1_0")
        awaited(lambda: its.body("/fabric")["connected"], lambda count: count == 4, "four switches are not connected")
        its.version = its.body("/fabric")["version"]
        told["one has not connected"] = state_of_small(its)
        its.ovs.vsctl(
            "--", "--id=@full", "create", "Flow_Table", "flow_limit=1", "overflow_policy=refuse",
            "--", "set", "Bridge", "a1_0", "flow_tables:1=@full",
        )  # fmt: skip
        its.connect_to_controller("a1_0")
        awaited(
            lambda: its.body("/failures")["failures"][0]["reason"],
            lambda reason: reason not in ("not connected", "down"),
            "a1_0 does not refuse",
        )
        its.version = its.body("/fabric")["version"]
        told["one refuses its rules"] = state_of_small(its)
        its.ovs.vsctl(
            "add-br", "other", "--", "set", "Bridge", "other", "datapath_type=dummy", "protocols=OpenFlow13",
            "other-config:datapath-id=0000000000ffff00", "--", "set-controller", "other", its.controller.openflow,
        )  # fmt: skip
        awaited(
            lambda: [datapath["dpid"] for datapath in its.body("/fabric")["rejected"]],
            lambda found: "0000000000ffff00" in found,
            "the foreign datapath is not rejected",
        )
        told["a foreign datapath"] = state_of_small(its)
    return told


def state_of_small(its: Running) -> dict[str, Any]:
    """What is asked of the k=2 fabric in each situation."""
    paths = ("/fabric", "/failures", "/switches", "/links", "/paths?src=10.0.0.2&dst=10.1.0.2")
    told: dict[str, Any] = {f"GET {path}": its.answer("GET", ROOT + path) for path in paths}
    told["sopa status"] = its.sopa("status")["exit"]
    return told
