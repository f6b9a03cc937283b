"""A controller with real switches of the dummy datapath, asked and changed from outside."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sopa_ryu.southbound import lldp
from tests.contract.values import TEXT, masked
from tests.helpers import fabrics
from tests.helpers.commands import ask
from tests.helpers.waiting import eventually
from topologies import FatTree, Switch
from topologies.identity import PREFIX6

ROOT = "/sopa/v1"
ASKED = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
UNCHECKED_HEADERS = {"connection", "content-length", "date"}
"""Headers of the HTTP server, or that follow from the body."""
SETTINGS = ("--sopa-hold-down=0", "--sopa-hold-down-max=0", "--sopa-lldp-interval=600", "--sopa-stats-interval=0.5")
"""Nothing is held down, so that healing is immediate; cabling is `unchecked` all the time, as no packet flows."""


class Answer(NamedTuple):
    """An HTTP answer: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Running(fabrics.Fabric):
    version: int = 1

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        with closing(HTTPConnection(urlsplit(self.controller.url).netloc, timeout=60)) as connection:
            connection.request(method, path, headers=dict(headers or {}))
            answered = connection.getresponse()
            named = {name.lower(): value for name, value in answered.getheaders()}
            return Answer(answered.status, named, answered.read())

    def body(self, path: str) -> Any:
        return json.loads(self.request("GET", ROOT + path).body)

    def answer(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        given = self.request(method, path, headers)
        kept = {name: value for name, value in given.headers.items() if name not in UNCHECKED_HEADERS}
        kind = kept.get("content-type", "")
        body = None if not given.body else masked(json.loads(given.body), self.version) if "json" in kind else TEXT
        return {"status": given.status, "headers": masked(kept), "body": body}

    def state(self) -> dict[str, Any]:
        """Return the answers to what is asked in every situation, and the exit status of queries."""

        def answers() -> dict[str, Any]:
            self.settled()
            found = {f"GET {path}": self.answer("GET", ROOT + path) for path in ASKED["state"]}
            for words in ("status", "failures", "paths h0_0_2 10.2.1.3", "wiring"):
                found[f"sopa {words}"] = self.sopa(*words.split())["exit"]
            return found

        return eventually(answers, _undisturbed)

    def settled(self) -> None:
        """Wait until the last version is in force at every switch that is connected."""

        changes = lambda: self.body("/changes?limit=1")["changes"]  # noqa: E731
        eventually(changes, lambda found: not found or found[0]["installed_ms"] is not None)
        # a controller that got no processor for 2 s takes that for a fault until it has heard its switches
        eventually(lambda: self.body("/fabric")["management"]["fault"], False)

    def rated(self) -> None:
        """Wait until the rates of all links are known: from the second poll of each switch on."""

        # a rate is known for 3 s after a poll: on a busy machine it takes a while until all are known together
        rates = lambda: [link["up_bits_per_second"] for link in self.body("/links")["links"]]  # noqa: E731
        eventually(rates, lambda found: None not in found)

    def failing(self, *names: str) -> None:
        """Wait until exactly these links and switches have failed or are drained."""
        eventually(lambda: sorted(self.reasons()), sorted(names))

    @cached_property
    def operator(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.controller.token_file.read_text().strip()}"}

    def sopa(self, *words: str) -> dict[str, Any]:
        """Run a command; return its exit status and its output: JSON, or whether there is any."""
        done = ask(self.controller, *words)
        stdout: Any = TEXT if done.stdout else ""
        with suppress(ValueError):
            stdout = masked([json.loads(line) for line in done.stdout.splitlines()], self.version) or ""
        return {"exit": done.exit_code, "stdout": stdout, "stderr": TEXT if done.stderr else ""}

    def reasons(self) -> dict[str, str]:
        return {failure["name"]: failure["reason"] for failure in self.body("/failures")["failures"]}

    def set_link(self, name: str, up: bool) -> None:
        """Pull or plug a cable.

        Open vSwitch reports a port that goes down in one PORT_STATUS or in two (`LIVE`, then the port), as it comes: each is
        made to happen by itself, so that the number of versions is always the same.
        """
        self.set_live(name, up)
        if up:
            super().set_link(name, up)
            return
        eventually(lambda: self.reasons().get(name), "silent")
        super().set_link(name, up)
        eventually(lambda: self.reasons().get(name), "down")

    def set_neighbours(self, name: str, live: bool) -> None:
        """Have the neighbours of a switch find it dead, or alive, one after the other, so that there is one order of reports."""
        switch = self.tree.switch(name)
        for neighbour in self.tree.ports(switch).values():
            assert isinstance(neighbour, Switch)
            fabrics.set_live(self.dummy, neighbour, self.tree.port(neighbour, switch), live)
            link = self.tree.name(self.tree.link(switch, neighbour))
            eventually(lambda link=link: self.reasons().keys().isdisjoint((link, name)), live)

    def set_live(self, name: str, live: bool) -> None:
        lower, upper = map(self.tree.switch, name.split("-"))
        fabrics.set_live(self.dummy, lower, self.tree.port(lower, upper), live)

    def drain(self, method: str, name: str) -> dict[str, Any]:
        return self.answer(method, f"{ROOT}/drains/{name}", self.operator)

    def hear(self, at: str, port: int, dpid: int, sender_port: int) -> None:
        """Have a probe of a datapath's port arrive at a switch's port."""
        self.ovs.appctl("netdev-dummy/receive", f"{at}-eth{port}", lldp.frame(dpid, sender_port).hex())


def _undisturbed(answers: dict[str, Any]) -> bool:
    """Tell whether the machine did not stand still meanwhile: switches are not heard then, and rates are too old to be known."""
    fault, links = answers["GET /fabric"]["body"]["management"]["fault"], answers["GET /links?offset=16"]["body"]["links"]
    return not fault and all(link["up_bits_per_second"] is not None for link in links)


@contextmanager
def running(directory: Path) -> Iterator[Running]:
    """Run a controller and every switch of a k=4 fat-tree; wait until they are connected and have their rules."""
    with fabrics.running(FatTree(4, str(PREFIX6)), directory, *SETTINGS) as made:
        its = Running(made.tree, made.controller, made.ovs, made.dummy)
        its.version = its.body("/fabric")["version"]
        yield its
