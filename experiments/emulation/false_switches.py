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

import click

from sopa_ryu.runtime.library import ofproto_v1_3 as ofp
from sopa_ryu.runtime.process import allow_files
from topologies import Clos, FatTree, Switch

_HEADER = struct.Struct(ofp.OFP_HEADER_PACK_STR)
_FEATURES = struct.Struct(ofp.OFP_SWITCH_FEATURES_PACK_STR)
_PORT = struct.Struct(ofp.OFP_PORT_PACK_STR)
_ROLE = struct.Struct(ofp.OFP_ROLE_REQUEST_PACK_STR)
_NO_GENERATION = (1 << 64) - 1
RETRY_SECONDS = 1.0


class FalseSwitch(asyncio.Protocol):
    """One channel; ``seen`` counts what all switches are sent and lose."""

    def __init__(self, tree: Clos, switch: Switch, seen: Counter[str]) -> None:
        self.tree, self.switch, self.seen = tree, switch, seen
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.down: set[int] = set()
        self._role, self._generation = ofp.OFPCR_ROLE_EQUAL, _NO_GENERATION
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send(ofp.OFPT_HELLO, 0)

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
        while len(data) - at >= _HEADER.size:
            _, kind, length, xid = _HEADER.unpack_from(data, at)
            if len(data) - at < length:
                break
            self._answer(kind, xid, data[at + _HEADER.size : at + length])
            at += length
        self._received = data[at:]

    def set_port(self, port: int, down: bool) -> None:
        """Take a port down or up, and tell the controller."""
        (self.down.add if down else self.down.discard)(port)
        if self.transport is not None:
            self._send(ofp.OFPT_PORT_STATUS, 0, struct.pack("!B7x", ofp.OFPPR_MODIFY) + self._port(port))

    def _answer(self, kind: int, xid: int, body: bytes) -> None:
        match kind:
            case ofp.OFPT_FLOW_MOD | ofp.OFPT_GROUP_MOD:
                self.seen["modifications"] += 1
            case ofp.OFPT_BARRIER_REQUEST:
                self.seen["barriers"] += 1
                self._send(ofp.OFPT_BARRIER_REPLY, xid)
            case ofp.OFPT_ECHO_REQUEST:
                self.seen["echoes"] += 1
                self._send(ofp.OFPT_ECHO_REPLY, xid, body)
            case ofp.OFPT_FEATURES_REQUEST:
                dpid = self.tree.dpid(self.switch)
                self._send(ofp.OFPT_FEATURES_REPLY, xid, _FEATURES.pack(dpid, 0, 254, 0, 0x4F, 0))
            case ofp.OFPT_MULTIPART_REQUEST:
                [what] = struct.unpack_from("!H", body)
                ports = b"".join(map(self._port, self.tree.ports(self.switch))) if what == ofp.OFPMP_PORT_DESC else b""
                self._send(ofp.OFPT_MULTIPART_REPLY, xid, struct.pack(ofp.OFP_MULTIPART_REPLY_PACK_STR, what, 0) + ports)
            case ofp.OFPT_ROLE_REQUEST:
                role, generation = _ROLE.unpack(body)
                if role >= ofp.OFPCR_ROLE_MASTER:
                    self._role, self._generation = role, generation
                self._send(ofp.OFPT_ROLE_REPLY, xid, _ROLE.pack(self._role, self._generation))

    def _port(self, port: int) -> bytes:
        state = ofp.OFPPS_LINK_DOWN if port in self.down else ofp.OFPPS_LIVE
        return _PORT.pack(port, bytes(6), f"p{port}".encode(), 0, state, 0, 0, 0, 0, 10_000_000, 10_000_000)

    def _send(self, kind: int, xid: int, body: bytes = b"") -> None:
        if self.transport is not None:
            self.transport.write(_HEADER.pack(ofp.OFP_VERSION, kind, _HEADER.size + len(body), xid) + body)


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
