"""An etcd that loses, repeats, reorders and delays what members ask and it answers, forgets its history, and has foreign values."""

import base64
import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

from sopa_ryu.cluster import records
from tests.faults.cluster_history import Committed, wrong_commits
from tests.fuzz.declared import Declared
from tests.fuzz.members import TREE, Members, silent, wait
from tests.fuzz.peers import Broken
from tests.helpers.lying_engine import EVENTS, FAULTS

PATHS = ("range", "txn", "lease/grant", "lease/keepalive", "lease/revoke", "watch")
LINKS = [TREE.name(link) for link in TREE.switch_links()]
SINGLE = (records.CHARTER, records.TERM, records.LEADER, records.VIEW, records.DRAINS)
KEYS = (*SINGLE, "members/m0", "members/m9", "relays/r1", "relays/", "notes")
WORDS = ["m0", "m1", "m9", "r1", *LINKS, "down", "drained", "http://192.0.2.1:8080", "leader", "standby", "mac"]


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: faults of the next requests, of what watches say, foreign values, compactions, and links that fail meanwhile."""
    declared = Declared(draw, WORDS, [0, 1, 7, 1 << 53, (1 << 63) - 1])
    while True:
        match draw.choices(("fault", "events", "put", "compact", "expire", "link", "wait"), (6, 3, 2, 1, 0.5, 4, 1))[0]:
            case "fault":
                which = f"{draw.choice(PATHS)} {draw.choice(FAULTS)} {draw.choice((1, 1, 3, 20))}"
                yield f"fault {which} {draw.choice((0.3, 1.5, 4.0))}"
            case "events":
                yield f"events {draw.choice(EVENTS)} {draw.choice((1, 3))}"
            case "put":
                key = draw.choice(KEYS)
                kind = records.kind_of(key) or records.Term
                yield f"put {key} {json.dumps(declared.message(kind)) if draw.random() < 0.9 else 'no JSON'}"
            case "link":
                yield f"link {draw.choice(('down', 'up'))} {draw.choice(LINKS)}"
            case "wait":
                yield f"wait {draw.choice((0.5, 2.0))}"
            case other:
                yield other


class LyingEtcd(Members):
    """The engine lies; who leads may change, but two never lead, and what is committed only rises."""

    leads_on = False

    def begun(self) -> None:
        self._engine = self.cluster.proxy
        self._down: set[str] = set()
        self._put: set[str] = set()
        self._commits: list[Committed] = []

    def may_fail(self, name: str) -> bool:
        return name in LINKS

    def play(self, step: str) -> None:
        match step.split(maxsplit=2):
            case ["fault", path, rest]:
                fault, count, seconds = rest.split()
                self._engine.faults[path] = [(fault, float(seconds))] * int(count)
            case ["events", how, count]:
                self._engine.events = [how] * int(count)
            case ["put", key, value]:
                self._put.add(key)
                self._ask("kv/put", key=_encoded(f"/sopa/{key}"), value=_encoded(value))
            case ["compact"]:
                self._ask("kv/compaction", revision=self._ask("kv/range", key=_encoded("/sopa/view"))["header"]["revision"])
            case ["expire"]:
                for lease in self._ask("lease/leases").get("leases", ()):
                    self._ask("lease/revoke", ID=lease["ID"])
            case ["link", way, name]:
                self.cluster.set_link(name, way == "up")
                (self._down.discard if way == "up" else self._down.add)(name)
            case ["wait", seconds]:
                wait(seconds)
        time.sleep(0.3)  # for what the members make of it

    def behave(self) -> None:
        self._engine.faults.clear()
        self._engine.events.clear()
        for key in self._put - {records.DRAINS}:
            self._ask("kv/deleterange", key=_encoded(f"/sopa/{key}"))
        if records.DRAINS in self._put:  # what is deleted the leader writes again
            nothing = records.write(records.DrainsRecord(1, (), {}))
            self._ask("kv/put", key=_encoded(f"/sopa/{records.DRAINS}"), value=_encoded(nothing))
        for name in {*self._down, *(LINKS[:1] if self._put & {*SINGLE} else ())}:  # a deleted view is written with the next version
            self.cluster.set_link(name, up=False)
            self.cluster.set_link(name, up=True)
        for noted in (self._put, self._down, self._commits):
            noted.clear()

    def check(self) -> None:
        super().check()
        before, after = ([self._led(name) for name in self.cluster.members] for _ in range(2))
        both = [term for term, again in zip(before, after, strict=True) if term and term == again]
        if len(both) > 1:
            raise Broken(f"two members lead at once, with terms {both}")
        if not self._put and (view := self.cluster.key(records.VIEW)):
            self._commits.append(Committed(0, view["term"], view["version"]))
            if problems := wrong_commits([commit for commit, _ in itertools.groupby(self._commits)]):
                raise Broken("; ".join(problems))

    def _led(self, name: str) -> int:
        """Return the term in which a member says that it leads; 0 if it does not say so."""
        body = self.cluster.fabric(name)
        return int(body["epoch"]) if body.get("cluster", {}).get("role") == "leader" else 0

    def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask the engine itself."""
        place = self.cluster.etcd.places[0]
        found: dict[str, Any] = {}
        with silent, contextlib.closing(HTTPConnection(place.host, place.client_port, timeout=20)) as node:
            node.request("POST", f"/v3/{path}", json.dumps(body))
            found = json.loads(node.getresponse().read())
        return found


def _encoded(said: str) -> str:
    return base64.b64encode(said.encode(errors="replace")).decode()
