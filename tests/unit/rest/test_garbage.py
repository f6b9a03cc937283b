"""No request leaves objects in cycles: the collector of a controller examines long-lived objects every ten minutes only.

The server has REST, the agents' channel and the page's feed of a real controller, in a process whose collector is off.
"""

import json
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from websockets.sync.client import connect

from sopa_ryu.channel import protocol
from topologies import FatTree

SERVER = """
import collections, gc, json, sys, time
from pathlib import Path
import eventlet
eventlet.monkey_patch()
from ryu.lib import hub
from sopa_ryu.channel.agent_channel import AgentChannel
from sopa_ryu.rest import http_protocol, http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from tests.web.loaded_fabric import LoadedFabric

ahead = 0.0
eventlet.hubs.get_hub().clock = lambda: time.monotonic() + ahead
fabric = LoadedFabric(4)
feed = live_feed.Live(Picture(fabric))
fabric.changed = feed.changed
agents = AgentChannel(fabric.notifier, lambda version: None)
tokens = Tokens(Path(sys.argv[1]))
rest = RestApplication(fabric, tokens, agents.serve, pages=pages.pages(), sockets={live_feed.PATH: feed.serve})

def answer(environ, start_response):
    global ahead
    if environ["PATH_INFO"] != "/garbage":
        return rest(environ, start_response)
    ahead += 2 * http_protocol.REQUEST_SECONDS  # the hub keeps what a cancelled timer refers to until its time
    eventlet.sleep(0.01)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    kinds = collections.Counter(type(each).__qualname__ for each in gc.garbage)
    gc.set_debug(0)
    gc.garbage.clear()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(kinds).encode()]

hub.spawn(feed.rounds)
hub.spawn(agents.watch)
listener = http_server.listen("127.0.0.1", 0)
print(listener.getsockname()[1], (Path(sys.argv[1]) / "agent-token").read_text(), flush=True)
gc.disable()
http_server.serve(listener, answer)
"""
TREE = FatTree(4)
HOST = next(iter(TREE.hosts()))
TIMES = 20
PATHS = "/sopa/v1/paths?src=10.0.0.2&dst=10.1.0.2"


class Server:
    """Address and agent token of the server, with what its clients do."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token
        self.url = f"127.0.0.1:{port}"

    def garbage(self) -> dict[str, int]:
        """Collect all garbage, and return the number of its objects by type."""
        with urllib.request.urlopen(f"http://{self.url}/garbage") as answer:
            kinds: dict[str, int] = json.load(answer)
        return kinds

    def get(self, path: str, times: int = 1) -> None:
        """Send GET requests on one connection."""
        self.send(f"GET {path} HTTP/1.1\r\nHost: {self.url}\r\n\r\n".encode() * times)

    def send(self, data: bytes) -> None:
        """Send what may be no request, and read until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass

    def follow(self) -> None:
        """Connect as an agent, acknowledge the first version, and leave."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"ws://{self.url}/sopa/v1/agents/{TREE.ip(HOST)}"
        with connect(url, additional_headers=headers, proxy=None, compression=None) as agent:
            agent.send(protocol.ack(protocol.receive(agent.recv(), None, TREE.ip(HOST)), 0))

    def look(self) -> None:
        """Open the page's feed, read one message, and leave."""
        with connect(f"ws://{self.url}/sopa/v1/live", proxy=None, compression=None) as page:
            page.recv()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVER, directory], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout
        port, token = process.stdout.readline().split()
        yield Server(int(port), token)
        process.terminate()


@pytest.mark.parametrize(
    "use",
    [
        lambda server: [server.get(PATHS) for _ in range(TIMES)],
        lambda server: server.get(PATHS, TIMES),
        lambda server: server.get("/sopa/v1/nothing", TIMES),
        lambda server: server.get("/", TIMES),
        lambda server: [server.send(b"nonsense\r\n\r\n") for _ in range(TIMES)],
        lambda server: [server.send(b"GET / HTTP/1.1\r\nHo") for _ in range(TIMES)],
        lambda server: [server.send(b"") for _ in range(TIMES)],
        lambda server: [server.follow() for _ in range(TIMES)],
        lambda server: [server.look() for _ in range(TIMES)],
    ],
    ids=["closing", "keeping", "unknown", "page", "nonsense", "cut", "empty", "agent", "feed"],
)
def test_clients_leave_no_objects_in_cycles(server: Server, use: Callable[[Server], object]) -> None:
    use(server)  # what the first request makes for all later ones
    server.garbage()
    use(server)
    assert sum(server.garbage().values()) < TIMES, "objects by type, of which each request left at least one"
