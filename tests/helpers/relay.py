"""Relays as child processes, what a leader writes to their engine, and agents that read messages as the real one does."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from queue import Queue
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import messages, protocol
from sopa_ryu.cluster import records
from sopa_ryu.cluster.engine import Engine
from sopa_ryu.fabric.view import View
from sopa_ryu.rest.access import AGENTS
from tests.helpers.waiting import PATIENCE_SECONDS
from topologies import Clos, FatTree

TOKEN = "agents-of-the-test"
Answers = Mapping[str, "Callable[[Agent, dict[str, Any]], object] | None"]


class Leader:
    """What a leader writes to the engine, and what relays say there."""

    def __init__(self, engine: Engine, tree: Clos | None = None) -> None:
        self.engine = engine
        self.tree = tree or FatTree(4)
        self.put(records.CHARTER, records.Charter(records.FORMAT, self.tree.document(), "mac"))

    def put(self, key: str, record: records.Record) -> None:
        self.engine.write({key: records.write(record)})

    def commit(self, term: int, version: int, failures: Mapping[str, str] | None = None) -> None:
        self.put(records.VIEW, records.CommittedView(term, version, failures or {}))

    def relay(self, name: str) -> dict[str, Any] | None:
        """Return what a relay says of itself; None if it is not registered."""
        kept = self.engine.read().keys.get(records.RELAYS + name)
        body: dict[str, Any] | None = None if kept is None else json.loads(kept.value)
        return body

    def lease(self, name: str) -> int:
        """Return the lease that a relay's key is bound to; 0 without the key."""
        kept = self.engine.read().keys.get(records.RELAYS + name)
        return 0 if kept is None else kept.lease

    def acknowledged(self, name: str) -> tuple[int, int, int, int] | None:
        """Return a relay's agents, those that wait, and term and version of what all have acknowledged."""
        its = self.relay(name)
        return its and (its["agents"], its["waiting"], its["term"], its["version"])


class Agent:
    """An agent's end of a channel: what it has in force follows from the messages by `protocol.follow`, as in the real agent.

    A thread reads them, and answers pings at once.
    """

    def __init__(self, channel: ClientConnection, address: str, answers: Answers | None = None) -> None:
        self.channel = channel
        self.view: View | None = None
        self.kinds: list[str] = []
        self.scatters: set[IPv4Address] = set()
        self.stopped: list[IPv4Address] = []  # of those to which it scattered
        self.mcs: int | None = None
        self.address = IPv4Address(address)
        self._answers: Answers = {"ping": Agent.acknowledge, **(answers or {})}
        self._messages: Queue[str | ConnectionClosed] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                text = str(self.channel.recv())
                message = json.loads(text)
                if message["type"] not in self._answers:
                    self._messages.put(text)
                elif (answer := self._answers[message["type"]]) is not None:
                    answer(self, message)
        except ConnectionClosed as closed:
            self._messages.put(closed)

    def take(self) -> str:
        """Return the next message that is not answered at once; raises `ConnectionClosed` after the last."""
        message = self._messages.get(timeout=PATIENCE_SECONDS)
        if isinstance(message, ConnectionClosed):
            raise message
        read = messages.from_controller(message)
        self.view = protocol.follow(read, self.view, self.address)
        hosts = read.hosts if isinstance(read, messages.Snapshot) else read
        if isinstance(hosts, messages.HostChange):
            before = set() if hosts is not read else self.scatters
            self.stopped += hosts.removed
            self.scatters, self.mcs = (before - {*hosts.removed}) | {*hosts.added}, hosts.number
        return message

    def follow(self, acknowledge: bool = True) -> tuple[int, int]:
        """Take the next message with state, acknowledge it, and return term and version that are in force."""
        self.kinds.append(json.loads(self.take())["type"])
        if acknowledge:
            self.acknowledge()
        return self.view.epoch, self.view.version

    def follow_all(self) -> None:
        """Take all messages that are there, and acknowledge them."""
        while not self._messages.empty():
            self.follow()

    def acknowledge(self, message: object = None) -> None:
        self.channel.send(protocol.ack(self.view, 0, self.mcs))


@contextlib.contextmanager
def agent(url: str, address: str, token: str = TOKEN, query: str = "", answers: Answers | None = None) -> Iterator[Agent]:
    """An agent of a host, connected to a relay."""
    with connect(
        f"{url.replace('http', 'ws', 1)}/sopa/v1/agents/{address}?{query}",
        additional_headers={"Authorization": f"Bearer {token}"},
        proxy=None,
        ping_interval=None,
        open_timeout=PATIENCE_SECONDS,
    ) as channel:
        yield Agent(channel, address, answers)


def state_dir(directory: Path) -> Path:
    """Make a state directory with an agent token."""
    directory.mkdir(exist_ok=True)
    file = directory / AGENTS
    file.touch(0o600)
    file.write_text(TOKEN + "\n")
    return directory
