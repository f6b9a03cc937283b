"""Random and garbled REST requests."""

import json
import random
import socket
from http import HTTPStatus
from urllib.parse import quote

from tests.fuzz.garble import garbled, text
from tests.fuzz.target import Broken, Kind, Target

METHODS = ("GET", "GET", "GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE", "get", "\x01")
GOOD = {"src": "10.0.0.2", "dst": "10.2.0.2", "limit": "3", "offset": "1", "packets": "8", "name": "e0_0"}
HEADERS = ("If-None-Match", "If-Match", "Origin", "Authorization", "Accept", "Expect", "Upgrade", "X-Forwarded-For")
VALUES = ("*", '""', "100-continue", "websocket", "Bearer x", "null", "é")
SECONDS = 30.0
ALLOWED = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, HTTPStatus.SERVICE_UNAVAILABLE}


class Rest(Kind):
    """Requests made from the interface's own description, with wrong parts; no operator token, so that nothing changes."""

    def __init__(self, target: Target, draw: random.Random) -> None:
        super().__init__(target, draw)
        document = json.loads(target.fabric.request("GET", "/openapi.json").body)
        self.paths = {
            path: sorted({param["name"] for operation in methods.values() for param in operation.get("parameters", ())})
            for path, methods in document["paths"].items()
        }

    def step(self) -> bytes:
        """Send one request, and check its answer."""
        draw = self.draw
        request = self._request()
        if garble := draw.random() < 0.3:
            request = garbled(draw, request)
        with socket.create_connection(("127.0.0.1", self.target.rest_port), SECONDS) as client:
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                answer = b""
                while data := client.recv(1 << 20):
                    answer += data
            except TimeoutError as error:
                raise Broken(f"no end of the answer after {SECONDS:g} s") from error
            except OSError:  # closed by the server, which may be right for what is no HTTP
                return request
        if answer:
            self._check(answer, garble)
        return request

    def _request(self) -> bytes:
        draw = self.draw
        path = draw.choice(list(self.paths))
        names = self.paths[path]
        for name in names:
            path = path.replace(f"{{{name}}}", quote(self._value(name), safe=draw.choice(("", "/%"))))
        if draw.random() < 0.1:
            path += draw.choice(("/", "//", "/" + quote(text(draw)), "?", "#"))
        wanted = [name for name in (*names, "limit", "offset", text(draw)) if draw.random() < 0.6]
        query = "&".join(f"{quote(name)}={quote(self._value(name))}" for name in wanted)
        headers = {"Host": "localhost", "Connection": "close"}
        for name in HEADERS:
            if draw.random() < 0.1:
                headers[name] = draw.choice(VALUES) * draw.choice((1, 1, 90))
        body = b""
        if draw.random() < 0.2:
            body = draw.randbytes(draw.randrange(200))
            if draw.random() < 0.5:
                headers["Content-Length"] = draw.choice((str(len(body)), "-1", "x", "99999999999", "0"))
            else:
                headers["Transfer-Encoding"] = draw.choice(("chunked", "gzip", "chunked, chunked"))
                body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        head = f"{draw.choice(METHODS)} {path}{'?' if query else ''}{query} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return head.encode("utf-8", "surrogatepass") + b"\r\n" + body

    def _value(self, name: str) -> str:
        return GOOD.get(name, "1") if self.draw.random() < 0.5 else text(self.draw)

    def _check(self, answer: bytes, garble: bool) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in ALLOWED:
            raise Broken(f"server error: {answer[:2000]!r}")
        if not garble and status >= HTTPStatus.BAD_REQUEST and b"application/problem+json" in head and body:
            problem = json.loads(body)
            if problem["status"] != status or not problem["detail"]:
                raise Broken(f"a problem document without a detail: {answer[:2000]!r}")
