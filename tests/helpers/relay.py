"""Relays as child processes, what a leader writes to their engine, and agents that read messages as the real one does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from sopa_ryu.cluster import records
from sopa_ryu.cluster.engine import Engine
from sopa_ryu.fabric.view import View
from sopa_ryu.rest.access import AGENTS
from tests.helpers.waiting import PATIENCE_SECONDS
from topologies import Clos, FatTree

TOKEN = "agents-of-the-test"


class Leader:
    """What a leader writes to the engine, and what relays say there."""

    def __init__(self, engine: Engine, tree: Clos | None = None) -> None:
        self.engine = engine
        self.tree = tree or FatTree(4)
        self.put(records.CHARTER, records.Charter(records.FORMAT, self.tree.document(), "mac"))

    def put(self, key: str, record: records.Record) -> None:
        """Write a key."""
        self.engine.write({key: records.write(record)})

    def commit(self, term: int, version: int, failures: Mapping[str, str] | None = None) -> None:
        """Commit a view."""
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
    """An agent's end of a channel: what it has in force follows from the messages by `protocol.receive`, as in the real agent."""

    def __init__(self, channel: ClientConnection, address: str, view: View | None = None) -> None:
        self.channel = channel
        self.view = view
        self.kinds: list[str] = []
        self._address = IPv4Address(address)

    def follow(self, acknowledge: bool = True) -> tuple[int, int]:
        """Take the next message with state, acknowledge it, and return term and version that are in force."""
        while True:
            text = self.channel.recv(PATIENCE_SECONDS)
            kind = json.loads(text)["type"]
            if kind != "ping":
                break
            self.channel.send(protocol.ack(self.view, 0))
        self.kinds.append(kind)
        self.view = protocol.receive(text, self.view, self._address)
        assert self.view is not None
        if acknowledge:
            self.acknowledge()
        return self.view.epoch, self.view.version

    def expect(self, kind: str) -> dict[str, Any]:
        """Answer what comes until a message of a kind, and return that."""
        while True:
            text = self.channel.recv(PATIENCE_SECONDS)
            message: dict[str, Any] = json.loads(text)
            if message["type"] == kind:
                return message
            self.view = protocol.receive(text, self.view, self._address)
            self.acknowledge()

    def acknowledge(self) -> None:
        """Say what is in force."""
        self.channel.send(protocol.ack(self.view, 0))


@contextlib.contextmanager
def agent(url: str, address: str, token: str = TOKEN, query: str = "", **options: Any) -> Iterator[Agent]:
    """An agent of a host, connected to a relay."""
    headers = {"Authorization": f"Bearer {token}"}
    with connect(
        f"{url.replace('http', 'ws', 1)}/sopa/v1/agents/{address}?{query}",
        additional_headers=headers,
        proxy=None,
        ping_interval=None,
        **options,
    ) as channel:
        yield Agent(channel, address)


def state_dir(directory: Path) -> Path:
    """Make a state directory with an agent token."""
    directory.mkdir(exist_ok=True)
    file = directory / AGENTS
    file.touch(0o600)
    file.write_text(TOKEN + "\n")
    return directory
