"""No request leaves objects in cycles: the collector of a controller examines long-lived objects every ten minutes only.

The server has REST, the agents' channel and the page's feed of a real controller, in a process whose collector is off.
"""

import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from websockets.sync.client import connect

from sopa_ryu.channel import messages, protocol
from tests.web.stub import Stub, Stubbed
from topologies import FatTree

TREE = FatTree(4)
HOST = next(iter(TREE.hosts()))
TIMES = 20
PATHS = "/sopa/v1/paths?src=10.0.0.2&dst=10.1.0.2"


class Server:
    """What clients do with a fabric of the page's stub."""

    def __init__(self, its: Stubbed) -> None:
        self.garbage, self.url = partial(its.ask, "garbage"), its.where
        self.token = (its.directory / "agent-token").read_text().strip()

    def get(self, path: str, times: int = 1) -> None:
        self.send(f"GET {path} HTTP/1.1\r\nHost: {self.url}\r\n\r\n".encode() * times)

    def send(self, data: bytes) -> None:
        """Send what may be no request, and read until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", int(self.url.partition(":")[2])), 60) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass

    def follow(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"ws://{self.url}/sopa/v1/agents/{TREE.ip(HOST)}"
        with connect(url, additional_headers=headers, proxy=None, compression=None) as agent:
            agent.send(protocol.ack(protocol.follow(messages.from_controller(agent.recv()), None, TREE.ip(HOST)), 0))

    def look(self) -> None:
        with connect(f"ws://{self.url}/sopa/v1/live", proxy=None, compression=None) as page:
            page.recv()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Stub(tmp_path_factory.mktemp("stub")) as stub:
        yield Server(stub.serve(4, tmp_path_factory.mktemp("tokens")))


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
