"""The controller's side of the agents' channel in a process of its own, without switches: real notifier, real WebSockets."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sopa_ryu.channel.claims import CLAIM_SECONDS
from tests.helpers.scrape import scrape

ROOT = Path(__file__).parents[2]
_SERVER = """
import eventlet
eventlet.monkey_patch()
import json
import sys
from sopa_ryu.channel import agent_channel, claims, notifier
from sopa_ryu.fabric.view import View
from sopa_ryu.rest import http_server
from sopa_ryu.runtime import clock
from topologies import Failures, FatTree

tree, failed = FatTree(4), [{}]
claims.CLAIM_SECONDS = agent_channel.CLAIM_SECONDS = float(sys.argv[1])
its = notifier.Notifier(tree, lambda: View(1, len(failed), Failures(tree, failed[-1])))
channel = agent_channel.AgentChannel(its, lambda version: None)

def answer(environ, start_response):
    path = environ["PATH_INFO"].rpartition("/")[2]
    if environ.get("HTTP_UPGRADE"):
        return channel.serve({**environ, "REMOTE_ADDR": "192.168.0.1"}, start_response, tree.host_by_ip(path))
    if path:
        failed.append({path: "down"})
        channel.broadcast()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([its.tell(session, len(failed), clock.now()) for session in its.sessions.values()]).encode()]

eventlet.spawn(channel.watch)
listener = http_server.listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
http_server.serve(listener, answer)
"""


class ChannelServer(NamedTuple):
    """A controller of a k=4 fat-tree that is at work, and what it knows of agents."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def agents(self) -> list[dict[str, Any]]:
        """Return the connected agents, as ``GET /agents`` has them."""
        body: list[dict[str, Any]] = json.loads(scrape(self.port, "/"))
        return body

    def fail(self, name: str) -> None:
        """Make a version in which this element has failed."""
        scrape(self.port, f"/{name}")

    def acknowledged(self) -> int:
        """Return how many agents have acknowledged the version in force."""
        return sum(agent["lag"] == 0 for agent in self.agents())


@contextmanager
def channel_server(claim_seconds: float = CLAIM_SECONDS) -> Iterator[ChannelServer]:
    """A controller on loopback."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER, str(claim_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield ChannelServer(int(process.stdout.readline()))
        finally:
            process.kill()
