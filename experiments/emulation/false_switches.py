"""False switches: thousands of OpenFlow channels that answer the protocol and forward nothing, as Open vSwitch cannot run so many.

They have the ports of the fabric's structure, keep their role and generation id, count what they are sent, and answer barriers at
once. They obey standard input, ``down LINK``, ``up LINK`` and ``count``, and answer each with a JSON object of what they have seen.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import Counter
from enum import IntEnum

import click

from sopa_ryu.runtime.process import allow_files
from topologies import Clos, FatTree, Switch

VERSION = 4
HEADER = struct.Struct("!BBHI")


class FalsehoodKind(IntEnum):
    """Types of messages (OpenFlow 1.3, section 7.1.1)."""

    HELLO = 0
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    PORT_STATUS = 12
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    ROLE_REPLY = 25


PORT_DESCRIPTION = 13
_FEATURES = struct.Struct("!QIBB2xII")
_PORT = struct.Struct("!I4x6s2x16sIIIIIIII")
_ROLE = struct.Struct("!I4xQ")
_NO_GENERATION = (1 << 64) - 1
_EQUAL, _MASTER = 1, 2
_LINK_DOWN, _LIVE = 1, 4
_MODIFIED = 2  # OFPPR_MODIFY
RETRY_SECONDS = 1.0


class FalseSwitch(asyncio.Protocol):
    """One channel; ``seen`` counts what all switches are sent and lose."""

    def __init__(self, tree: Clos, switch: Switch, seen: Counter[str]) -> None:
        self.tree, self.switch, self.seen = tree, switch, seen
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.down: set[int] = set()
        self._role, self._generation = _EQUAL, _NO_GENERATION
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send(FalsehoodKind.HELLO, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the controller has closed the channel."""
        self.seen["lost"] += 1
        self.transport = None
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Answer each message that is there."""
        data = self._received + data
        at = 0
        while len(data) - at >= HEADER.size:
            _, kind, length, xid = HEADER.unpack_from(data, at)
            if len(data) - at < length:
                break
            self._answer(kind, xid, data[at + HEADER.size : at + length])
            at += length
        self._received = data[at:]

    def set_port(self, port: int, down: bool) -> None:
        """Take a port down or up, and tell the controller."""
        (self.down.add if down else self.down.discard)(port)
        if self.transport is not None:
            self._send(FalsehoodKind.PORT_STATUS, 0, struct.pack("!B7x", _MODIFIED) + self._port(port))

    def _answer(self, kind: int, xid: int, body: bytes) -> None:
        match kind:
            case FalsehoodKind.FLOW_MOD | FalsehoodKind.GROUP_MOD:
                self.seen["modifications"] += 1
            case FalsehoodKind.BARRIER_REQUEST:
                self.seen["barriers"] += 1
                self._send(FalsehoodKind.BARRIER_REPLY, xid)
            case FalsehoodKind.ECHO_REQUEST:
                self.seen["echoes"] += 1
                self._send(FalsehoodKind.ECHO_REPLY, xid, body)
            case FalsehoodKind.FEATURES_REQUEST:
                dpid = self.tree.dpid(self.switch)
                self._send(FalsehoodKind.FEATURES_REPLY, xid, _FEATURES.pack(dpid, 0, 254, 0, 0x4F, 0))
            case FalsehoodKind.MULTIPART_REQUEST:
                [what] = struct.unpack_from("!H", body)
                ports = b"".join(map(self._port, self.tree.ports(self.switch))) if what == PORT_DESCRIPTION else b""
                self._send(FalsehoodKind.MULTIPART_REPLY, xid, struct.pack("!HH4x", what, 0) + ports)
            case FalsehoodKind.ROLE_REQUEST:
                role, generation = _ROLE.unpack(body)
                if role >= _MASTER:
                    self._role, self._generation = role, generation
                self._send(FalsehoodKind.ROLE_REPLY, xid, _ROLE.pack(self._role, self._generation))

    def _port(self, port: int) -> bytes:
        state = _LINK_DOWN if port in self.down else _LIVE
        return _PORT.pack(port, bytes(6), f"p{port}".encode(), 0, state, 0, 0, 0, 0, 10_000_000, 10_000_000)

    def _send(self, kind: int, xid: int, body: bytes = b"") -> None:
        if self.transport is not None:
            self.transport.write(HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body)


async def _keep(port: int, channel: FalseSwitch, wait: float, channels: dict[Switch, FalseSwitch]) -> None:
    """Connect a switch, and again whenever its channel is lost."""
    switch, tree, seen = channel.switch, channel.tree, channel.seen
    await asyncio.sleep(wait)
    while True:
        try:
            await asyncio.get_running_loop().create_connection(lambda: channels[switch], "127.0.0.1", port)
        except OSError:
            seen["refused"] += 1
        else:
            await channels[switch].lost
        await asyncio.sleep(RETRY_SECONDS)
        channels[switch] = FalseSwitch(tree, switch, seen)


async def _run(tree: Clos, port: int, seconds: float) -> None:
    seen: Counter[str] = Counter()
    switches = list(tree.switches())
    channels = {switch: FalseSwitch(tree, switch, seen) for switch in switches}
    tasks = [
        asyncio.create_task(_keep(port, channel, seconds * at / len(switches), channels))
        for at, channel in enumerate(channels.values())
    ]
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := (await orders.readline()).decode().split():
        match line:
            case ["count"]:
                pass
            case ["down" | "up" as what, name]:
                link = tree.link_by_name(name)
                for near, far in ((link.lower, link.upper), (link.upper, link.lower)):
                    if isinstance(near, Switch):
                        channels[near].set_port(tree.port(near, far), what == "down")
        print(json.dumps({"at": time.monotonic(), **seen}), flush=True)
    for one in tasks:
        one.cancel()


@click.command()
@click.option("--k", type=int, required=True, help="The fat-tree's k.")
@click.option("--port", type=int, required=True, help="The controller's OpenFlow port on 127.0.0.1.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="They connect within so many seconds.")
def main(k: int, port: int, seconds: float) -> None:
    """Connect the switches of a fat-tree, and obey standard input until its end."""
    allow_files()
    asyncio.run(_run(FatTree(k), port, seconds))


if __name__ == "__main__":
    main()
