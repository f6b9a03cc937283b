"""An etcd that loses, repeats, reorders and delays what members ask and it answers, forgets its history, and has foreign values."""

import base64
import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sopa_ryu.cluster import records
from tests.faults.cluster_history import Committed, wrong_commits
from tests.fuzz.declared import Declared
from tests.fuzz.members import TREE, Members, silent, wait
from tests.fuzz.target import Broken
from tests.helpers.slow_writes import SlowWrites
from topologies.lab.etcd import EtcdPlace

RANGE, TXN, GRANT, KEEPALIVE, REVOKE, WATCH = PATHS = ("range", "txn", "lease/grant", "lease/keepalive", "lease/revoke", "watch")
FAULTS = ("lost", "unanswered", "repeated", "late", "kept", "refused")
"""Of a request: it does not arrive, nor its answer, it is done twice, some time later, answered later, or with an error."""
ERRORS = ((14, "etcdserver: no leader"), (14, "etcdserver: request timed out"), (8, "etcdserver: too many requests"),
          (5, "etcdserver: requested lease not found"), (2, "error"), (13, "[[[["),
          (11, "etcdserver: mvcc: required revision has been compacted"))  # fmt: skip
LINKS = [TREE.name(link) for link in TREE.switch_links()]
KEYS = ("charter", "term", "leader", "view", "drains", "members/m0", "members/m9", "relays/r1", "relays/", "notes")
WORDS = ["m0", "m1", "m9", "r1", *LINKS, "down", "drained", "http://192.0.2.1:8080", "leader", "standby", "mac"]
CHANGES_BEFORE_COMPACTION = 3


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: faults of the next requests, of what watches say, foreign values, compactions, and links that fail meanwhile."""
    declared = Declared(draw, WORDS, [0, 1, 7, 1 << 53, (1 << 63) - 1])
    while True:
        match draw.choices(("fault", "events", "put", "compact", "expire", "link", "wait"), (6, 3, 2, 1, 0.5, 4, 1))[0]:
            case "fault":
                seconds = draw.choice((0.3, 1.5, 4.0))
                yield f"fault {draw.choice(PATHS)} {draw.choice(FAULTS)} {draw.choice((1, 1, 3, 20))} {seconds}"
            case "events":
                yield f"events {draw.choice(('repeated', 'swapped', 'late', 'ended', 'halved'))} {draw.choice((1, 3))}"
            case "put":
                key = draw.choice(KEYS)
                kind = records.kind_of(key) or records.Term
                value = json.dumps(declared.message(kind)) if draw.random() < 0.9 else "no JSON"
                yield f"put {key} {value}"
            case "link":
                yield f"link {draw.choice(('down', 'up'))} {draw.choice(LINKS)}"
            case "wait":
                yield f"wait {draw.choice((0.5, 2.0))}"
            case other:
                yield other


class LyingEngine(SlowWrites):
    """A proxy of the JSON gateway in front of each node. What it does to the next requests is in `faults`, by path."""

    def __init__(self, places: Sequence[EtcdPlace]) -> None:
        super().__init__(places)
        for listener in self._listeners:
            listener.close()
        self.faults: dict[str, list[tuple[str, float]]] = {}
        self.events: list[str] = []
        self._servers = [self._server(place) for place in places]
        self._listeners = [server.socket for server in self._servers]

    def __enter__(self) -> "LyingEngine":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _server(self, place: EtcdPlace) -> ThreadingHTTPServer:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path = self.path.removeprefix("/v3/").removeprefix("kv/")
                with contextlib.suppress(OSError, HTTPException):
                    if engine.serve(self, place, path, body):
                        return
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def serve(self, client: BaseHTTPRequestHandler, place: EtcdPlace, path: str, body: bytes) -> bool:
        """Do what is to be done with a request; return False to close its connection."""
        waiting = self.faults.get(path)
        fault, seconds = waiting.pop() if waiting else ("", 0.0)
        if fault == "late":
            time.sleep(seconds)  # how late
        if fault == "lost":
            return False
        if fault == "refused":
            code, message = ERRORS[int(10 * seconds) % len(ERRORS)]
            return _answer(client, 503, json.dumps({"error": message, "message": message, "code": code}).encode())
        with contextlib.closing(HTTPConnection(place.host, place.client_port, timeout=None if path == WATCH else 60)) as node:
            for _ in range(2 if fault == "repeated" and path != WATCH else 1):
                node.request("POST", client.path, body, {"Grpc-Metadata-hasleader": "true", "Content-Type": "application/json"})
                answer = node.getresponse()
                if path == WATCH:
                    return self._pass_on(client, answer)
                said = answer.read()
        if fault == "kept":
            time.sleep(seconds)  # how late
        return fault != "unanswered" and _answer(client, answer.status, said)

    def _pass_on(self, client: BaseHTTPRequestHandler, answer: Any) -> bool:
        """Pass on what a watch says, line by line."""
        client.send_response(answer.status)
        client.send_header("Transfer-Encoding", "chunked")
        client.end_headers()
        kept = b""
        for line in iter(answer.readline, b""):
            lines = [line, kept] if kept else [line]
            kept = b""
            match self.events.pop() if self.events and b'"events"' in line else "":
                case "repeated":
                    lines.append(line)
                case "swapped":
                    kept, lines = line, []
                case "late":
                    time.sleep(1.5)  # how late
                case "ended":
                    return False
                case "halved":
                    client.wfile.write(b"%x\r\n%b\r\n" % (len(line) // 2, line[: len(line) // 2]))
                    return False
            for each in lines:
                client.wfile.write(b"%x\r\n%b\r\n" % (len(each), each))
        return False


def _answer(client: BaseHTTPRequestHandler, status: int, body: bytes) -> bool:
    client.send_response(status)
    client.send_header("Content-Type", "application/json")
    client.send_header("Content-Length", str(len(body)))
    client.end_headers()
    client.wfile.write(body)
    return True


class LyingEtcd(Members):
    """The engine lies; who leads may change, but two never lead, and what is committed only rises."""

    leads_on = False
    proxy = LyingEngine

    def begun(self) -> None:
        self._engine = self.cluster.slow
        assert isinstance(self._engine, LyingEngine)
        self._down: set[str] = set()
        self._put: set[str] = set()
        self._commits: list[Committed] = []

    def may_fail(self, name: str) -> bool:
        return name in LINKS

    def play(self, step: str) -> None:
        engine = self._engine
        match step.split(maxsplit=2):
            case ["fault", path, rest]:
                fault, count, seconds = rest.split()
                engine.faults[path] = [(fault, float(seconds))] * int(count)
            case ["events", how, count]:
                engine.events = [how] * int(count)
            case ["put", key, value]:
                self._put.add(key)
                self._ask("kv/put", key=_encoded(f"/sopa/{key}"), value=_encoded(value))
            case ["compact"]:
                revision = self._ask("kv/range", key=_encoded("/sopa/view"))["header"]["revision"]
                self._ask("kv/compaction", revision=revision)
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
        for key in self._put:
            self._ask("kv/deleterange", key=_encoded(f"/sopa/{key}"))
        foreign = self._put & {records.VIEW, records.TERM, records.LEADER, records.CHARTER, records.DRAINS}
        self._commits.clear()
        for name in [*self._down, *(LINKS[:1] if foreign else ())]:  # the leader writes a deleted view with the next version
            self.cluster.set_link(name, up=False)
            self.cluster.set_link(name, up=True)
        self._down.clear()
        self._put.clear()

    def check(self) -> None:
        super().check()
        led = [self._leads(name) for name in (*self.cluster.members, *self.cluster.members)]
        before, after = led[: len(led) // 2], led[len(led) // 2 :]
        both = [term for term, again in zip(before, after, strict=True) if term and term == again]
        if len(both) > 1:
            raise Broken(f"two members lead at once, with terms {both}")
        view = self.cluster.key(records.VIEW)
        if not self._put and isinstance(view, dict):
            self._commits.append(Committed(0, view["term"], view["version"]))
            different = [commit for commit, _ in itertools.groupby(self._commits)]
            if problems := wrong_commits(different):
                raise Broken("; ".join(problems))

    def _leads(self, name: str) -> int:
        """Return the term in which a member says that it leads; 0 if it does not say so."""
        body = self.cluster.fabric(name)
        return int(body["epoch"]) if body.get("cluster", {}).get("role") == "leader" else 0

    def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask the engine itself."""
        place = self.cluster.etcd.places[0]
        with silent, contextlib.closing(HTTPConnection(place.host, place.client_port, timeout=20)) as node:
            node.request("POST", f"/v3/{path}", json.dumps(body))
            found: dict[str, Any] = json.loads(node.getresponse().read())
            return found
        return {}


def _encoded(said: str) -> str:
    return base64.b64encode(said.encode(errors="replace")).decode()
