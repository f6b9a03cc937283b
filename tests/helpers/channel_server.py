"""The controller's side of the agents' channel in a process of its own, without switches: real notifier, real WebSockets."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.scrape import scrape

ROOT = Path(__file__).parents[2]
_SERVER = """
import eventlet
eventlet.monkey_patch()
import json
import sys
from sopa_ryu.channel import agent_channel, notifier
from sopa_ryu.fabric.view import View
from sopa_ryu.rest import http_server
from sopa_ryu.runtime import clock
from topologies import Failures, FatTree

tree = FatTree(4)
view = View(int(sys.argv[2]), 1, Failures(tree), sys.argv[3])
its = notifier.Notifier(tree, lambda: view)
channel = agent_channel.AgentChannel(its, lambda version: None)

def answer(environ, start_response):
    if environ.get("HTTP_UPGRADE"):
        host = tree.host_by_ip(environ["PATH_INFO"].rpartition("/")[2])
        return channel.serve({**environ, "REMOTE_ADDR": "192.168.0.1"}, start_response, host)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([its.tell(session, view.version, clock.now()) for session in its.sessions.values()]).encode()]

eventlet.spawn(channel.watch)
listener = http_server.listen("127.0.0.1", int(sys.argv[1]))
print(listener.getsockname()[1], flush=True)
http_server.serve(listener, answer)
"""


class ChannelServer:
    """A controller of a k=4 fat-tree that is at work: its URL, and what it knows of agents."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.url, self._port = f"http://127.0.0.1:{port}", port
        self._process = process

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def agents(self) -> list[dict[str, Any]]:
        """Return the connected agents, as ``GET /agents`` has them."""
        body: list[dict[str, Any]] = json.loads(scrape(self._port, "/"))
        return body

    def acknowledged(self) -> int:
        """Return how many agents have acknowledged the version in force."""
        return sum(agent["lag"] == 0 for agent in self.agents())


@contextmanager
def channel_server(port: int = 0, epoch: int = 1, cluster: str = "") -> Iterator[ChannelServer]:
    """A controller on loopback; a restarted one has another epoch."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER, str(port), str(epoch), cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield ChannelServer(int(process.stdout.readline()), process)
        finally:
            process.kill()
