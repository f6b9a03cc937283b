"""Clients that garble what they send to the leader: REST requests, an agent's WebSocket frames, and LLDP frames at switch ports."""

import json
import random
import socket
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

from sopa_ryu.channel import messages
from sopa_ryu.southbound import lldp
from tests.contract import values
from tests.fuzz.channels import HOSTS, KNOWN, OWN_ADDRESS, WORDS
from tests.fuzz.declared import Declared
from tests.fuzz.garble import garbled, text
from tests.fuzz.members import HONEST, LIAR, TREE, Members, silent
from tests.fuzz.peers import Broken
from tests.helpers.cluster import TOKEN
from topologies import Switch

METHODS = ("GET", "GET", "GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE", "get", "\x01")
PATHS = {
    path: sorted({param["name"] for operation in methods.values() for param in operation.get("parameters", ())})
    for path, methods in values.load("openapi")["paths"].items()
}
GOOD = {"src": "10.0.0.2", "dst": "10.1.0.2", "limit": "3", "offset": "1", "packets": "8", "name": "e0_0"}
HEADERS = ("If-None-Match", "If-Match", "Origin", "Authorization", "Accept", "Expect", "Upgrade", "X-Forwarded-For")
VALUES = ("*", '""', "100-continue", "websocket", "Bearer x", "null", "é")
ALLOWED = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, HTTPStatus.SERVICE_UNAVAILABLE}
REQUESTS, FRAMES, PROBES = 50, 40, 50
"""Of a step, at most."""
OPCODES = (0, 1, 1, 1, 2, 8, 9, 10, 3, 15)
SECONDS, SESSION_SECONDS = 30.0, 2.0
PORTS = [(its, port) for its in TREE.switches() for port in TREE.ports(its) if TREE.name(its) not in (LIAR, HONEST)]
PORTS = [(its, port) for its, port in PORTS if isinstance(TREE.neighbour(its, port), Switch)]
MIN_FRAME, MAX_FRAME, HEADER = 14, 1500, 14


def plan(draw: random.Random, kind: Callable[[random.Random], str]) -> Iterator[str]:
    while True:
        yield kind(draw)


def requests(draw: random.Random) -> str:
    """Return requests, without a token: made from the interface's own description, with wrong parts; with a plus if garbled."""
    drawn = ((_request(draw), draw.random() < 0.3) for _ in range(REQUESTS))
    return " ".join(["requests", *(f"+{garbled(draw, its).hex()}" if more else its.hex() for its, more in drawn)])


def _request(draw: random.Random) -> bytes:
    def value(name: str) -> str:
        return GOOD.get(name, "1") if draw.random() < 0.5 else text(draw)

    path = draw.choice(list(PATHS))
    names = PATHS[path]
    for name in names:
        path = path.replace(f"{{{name}}}", quote(value(name), safe=draw.choice(("", "/%"))))
    if draw.random() < 0.1:
        path += draw.choice(("/", "//", "/" + quote(text(draw)), "?", "#"))
    wanted = [name for name in (*names, "limit", "offset", text(draw)) if draw.random() < 0.6]
    query = "&".join(f"{quote(name)}={quote(value(name))}" for name in wanted)
    headers = {"Host": "localhost", "Connection": "close"}
    headers |= {name: draw.choice(VALUES) * draw.choice((1, 1, 90)) for name in HEADERS if draw.random() < 0.1}
    body = b""
    if draw.random() < 0.2:
        body = draw.randbytes(draw.randrange(200))
        if draw.random() < 0.5:
            headers["Content-Length"] = draw.choice((str(len(body)), "-1", "x", "99999999999", "0"))
        else:
            headers["Transfer-Encoding"] = draw.choice(("chunked", "gzip", "chunked, chunked"))
            body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    head = f"{draw.choice(METHODS)} {path}{'?' if query else ''}{query} HTTP/1.1\r\n"
    head += "".join(f"{name}: {its}\r\n" for name, its in headers.items())
    return head.encode("utf-8", "surrogatepass") + b"\r\n" + body


def session(draw: random.Random) -> str:
    """Return a session of a host's agent: its request, and frames with wrong headers, wrong texts, and half messages."""
    path = f"/sopa/v1/agents/{HOSTS[0]}" if draw.random() < 0.9 else "/sopa/v1/live"
    token = f"Authorization: Bearer {TOKEN}\r\n" if draw.random() < 0.95 else ""
    request = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"{token}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    sent = [garbled(draw, request) if draw.random() < 0.1 else request]
    declared = Declared(draw, WORDS, KNOWN)
    for _ in range(draw.randint(1, FRAMES)):
        data = json.dumps(declared.message(messages.FromAgent)).encode()
        data = garbled(draw, data) if draw.random() < 0.3 else data
        made = _frame(draw.choice(OPCODES) if draw.random() < 0.3 else 1, data, draw.random() < 0.9)
        sent.append(garbled(draw, made) if draw.random() < 0.1 else made)
    return " ".join(["session", *map(bytes.hex, sent)])


def _frame(opcode: int, data: bytes, final: bool) -> bytes:
    """Return one masked WebSocket frame of a client (RFC 6455, section 5.2)."""
    size = len(data)
    long = bytes([0xFE]) + size.to_bytes(2, "big") if size < 1 << 16 else bytes([0xFF]) + size.to_bytes(8, "big")
    return bytes([0x80 * final | opcode]) + (bytes([0x80 | size]) if size < 126 else long) + bytes(4) + data


def probes(draw: random.Random) -> str:
    """Return mutated probes for a switch's port."""
    (switch, port), frames = draw.choice(PORTS), []
    for _ in range(PROBES):
        sender, sender_port = draw.choice(PORTS)
        frame = lldp.frame(TREE.dpid(sender), sender_port)
        head = frame[:HEADER] if draw.random() < 0.9 else garbled(draw, frame[:HEADER])
        frames.append((head + garbled(draw, frame[HEADER:]))[:MAX_FRAME].ljust(MIN_FRAME, b"\0").hex())
    return " ".join([f"probes {TREE.name(switch)}-eth{port}", *frames])


class GarblingClient(Members):
    """Plays what `requests`, `session` and `probes` draw; false probes may make links fail."""

    def begun(self) -> None:
        self._heard = False

    def may_fail(self, _name: str) -> bool:
        return self._heard

    def play(self, step: str) -> None:
        verb, *words = step.split()
        match verb:
            case "requests":
                for word in words:
                    self._ask(bytes.fromhex(word.removeprefix("+")), is_garbled=word[0] == "+")
            case "session":
                # the server may close at any time, and a client that leaves without a close is one of the cases
                with silent, self._connected(SESSION_SECONDS) as client:
                    client.sendall(bytes.fromhex(words[0]))
                    client.recv(65536)
                    for word in words[1:]:
                        client.sendall(bytes.fromhex(word))
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
            case "probes":
                self._heard = True
                self.cluster.ovs.appctl("netdev-dummy/receive", *words)

    def behave(self) -> None:
        """Unplug and plug every cable where false probes were heard, after which they do not count."""
        for up in (False, True) if self._heard else ():
            for switch, port in PORTS:
                self.cluster.dummy.set_port(switch, port, up)

    def _connected(self, seconds: float) -> socket.socket:
        _, host, port = self.cluster.members[self.leader].url.split(":")
        return socket.create_connection((host.strip("/"), int(port)), seconds, source_address=(OWN_ADDRESS, 0))

    def _ask(self, request: bytes, is_garbled: bool) -> None:
        """Send one request, and check its answer."""
        answer = b""
        with self._connected(SECONDS) as client:
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while data := client.recv(1 << 20):
                    answer += data
            except TimeoutError as error:
                raise Broken(f"no end of the answer after {SECONDS:g} s") from error
            except OSError:  # closed by the server, which may be right for what is no HTTP
                return
        head, _, body = answer.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in ALLOWED:
            raise Broken(f"server error: {answer[:2000]!r}")
        if not is_garbled and status >= HTTPStatus.BAD_REQUEST and b"application/problem+json" in head and body:
            problem = json.loads(body)
            if problem["status"] != status or not problem["detail"]:
                raise Broken(f"a problem document without a detail: {answer[:2000]!r}")


REST, AGENTS, LLDP = (partial(plan, kind=kind) for kind in (requests, session, probes))
