"""A proxy of etcd's JSON gateway that is slow to write, loses, repeats, reorders and delays, as a test says."""

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from topologies.lab.etcd import EtcdPlace

FAULTS = ("lost", "unanswered", "repeated", "late", "kept", "refused")
"""Of a request: it does not arrive, nor its answer, it is done twice, some time later, answered later, or with an error."""
EVENTS = ("repeated", "swapped", "late", "ended", "halved")
"""Of what a watch says."""
ERRORS = ((14, "etcdserver: no leader"), (14, "etcdserver: request timed out"), (8, "etcdserver: too many requests"),
          (5, "etcdserver: requested lease not found"), (2, "error"), (13, "[[[["),
          (11, "etcdserver: mvcc: required revision has been compacted"))  # fmt: skip


WRITES = ("txn", "lease/grant", "lease/revoke")


class LyingEngine:
    """A proxy of the JSON gateway in front of each node, as a context manager.

    What it does to the next requests is in `faults`, by path. A write reaches its node `seconds` after the client has sent it, as
    with a slow disk, also if the client has given it up meanwhile.
    """

    def __init__(self, places: Sequence[EtcdPlace]) -> None:
        self.faults: dict[str, list[tuple[str, float]]] = {}
        self.events: list[str] = []
        self.seconds = 0.0
        self._servers = [self._server(place) for place in places]

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def address(self, name: str = "sopa", first: int = 0) -> str:
        """Return the address for ``--sopa-cluster``; ``first`` is the node that a client begins with."""
        nodes = [f"127.0.0.1:{server.server_address[1]}" for server in self._servers]
        return f"etcd://{','.join(nodes[first:] + nodes[:first])}/{name}"

    def _server(self, place: EtcdPlace) -> ThreadingHTTPServer:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body, self.close_connection = self.rfile.read(int(self.headers["Content-Length"])), True
                with contextlib.suppress(OSError, HTTPException):
                    self.close_connection = not engine.serve(self, place, body)

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def serve(self, client: BaseHTTPRequestHandler, place: EtcdPlace, body: bytes) -> bool:
        """Do what is to be done with a request; return False to close its connection."""
        path = client.path.removeprefix("/v3/").removeprefix("kv/")
        waiting = self.faults.get(path)
        fault, seconds = waiting.pop() if waiting else ("", 0.0)
        if path in WRITES:
            time.sleep(self.seconds)  # how slow the disk is
        if fault == "late":
            time.sleep(seconds)  # how late
        if fault == "lost":
            return False
        if fault == "refused":
            code, message = ERRORS[int(10 * seconds) % len(ERRORS)]
            return _answer(client, 503, json.dumps({"error": message, "message": message, "code": code}).encode())
        with contextlib.closing(HTTPConnection(place.host, place.client_port, timeout=None if path == "watch" else 60)) as node:
            for _ in range(2 if fault == "repeated" and path != "watch" else 1):
                node.request("POST", client.path, body, {"Grpc-Metadata-hasleader": "true"})
                answer = node.getresponse()
                if path == "watch":
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
        kept: list[bytes] = []
        for line in iter(answer.readline, b""):
            lines, kept = [line, *kept], []
            how = self.events.pop() if self.events and b'"events"' in line else ""
            if how == "swapped":
                lines, kept = [], lines
            elif how == "halved":
                lines = [line[: len(line) // 2]]
            elif how == "late":
                time.sleep(1.5)  # how late
            for each in lines * (1 + (how == "repeated")):
                client.wfile.write(b"%x\r\n%b\r\n" % (len(each), each))
            if how in ("halved", "ended"):
                break
        return False


def _answer(client: BaseHTTPRequestHandler, status: int, body: bytes) -> bool:
    client.send_response(status)
    client.send_header("Content-Length", str(len(body)))
    client.end_headers()
    client.wfile.write(body)
    return True
