"""The agents' channels of a front in a process of its own, without a controller: real notifier, real WebSockets."""

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
import asyncio
import json
import sys
import uvloop
from webob import Response
from sopa_ryu.channel import claims
from sopa_ryu.front import agents, application, door
from sopa_ryu.fabric.view import View
from sopa_ryu.runtime import clock
from topologies import Failures, FatTree

tree, failed = FatTree(4), [{}]
claims.CLAIM_SECONDS = agents.CLAIM_SECONDS = float(sys.argv[1])

async def main():
    channel = agents.AgentsChannel(
        tree, "mac", lambda: View(1, len(failed), Failures(tree, failed[-1])), lambda session: None, clustered=False
    )
    its = channel.notifier

    def answer(request, connection):
        path = request.path_info.rpartition("/")[2]
        if request.headers.get("Upgrade"):
            accepted = application.handshake(request)
            opened = lambda: application.opened(connection, accepted)
            channel.claim(agents.AgentClaim(tree.host_by_ip(path), "192.168.0.1", request.query_string, opened, print))
            return None
        if path:
            failed.append({path: "down"})
            channel.broadcast()
        rows = [{"host": each.name, "lag": len(failed) - each.acknowledged, "policy": each.policy, "refused": each.refused,
                 "refuses": each.refuses, "version": each.acknowledged} for each in its.sessions.values()]
        return Response(json.dumps(rows).encode(), content_type="application/json")

    server = door.FrontDoor(("127.0.0.1", 0), answer)
    server.open()
    print(server.port, flush=True)
    await channel.watch()

uvloop.run(main())
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
        scrape(self.port, f"/{name}")

    def acknowledged(self) -> int:
        """Return how many agents have acknowledged the version in force."""
        return sum(agent["lag"] == 0 for agent in self.agents())


@contextmanager
def channel_server(claim_seconds: float = CLAIM_SECONDS) -> Iterator[ChannelServer]:
    command = [sys.executable, "-W", "ignore", "-c", _SERVER, str(claim_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield ChannelServer(int(process.stdout.readline()))
        finally:
            process.kill()
