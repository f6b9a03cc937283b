"""Peers on WebSockets that lie to the leader: a host's agent, a relay, and an arbiter, each with the token of its own."""

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any, ClassVar
from urllib.parse import urlencode

import httpx
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import messages, relayed
from sopa_ryu.channel.host_tokens import arbiter_token, host_token, relay_token
from sopa_ryu.channel.messages import Counts, Stream, packed
from sopa_ryu.channel.probe_lists import HEADER
from tests.fuzz.declared import Declared, extreme
from tests.fuzz.garble import text
from tests.fuzz.members import AGENTS, MCS, TREE, Members, silent, wait
from tests.helpers.cluster import TOKEN

HOSTS = [str(TREE.ip(host)) for host in TREE.hosts()]
HOST, RELAY = HOSTS[0], "liar"
WORDS = [*HOSTS, *map(TREE.name, TREE.switches()), "h0_0_2", "a0_0-c0_0", "mcs", "round-robin", "paths", "1"]
KNOWN = [*range(8), len(HOSTS), 255, 256, 1 << 12, 1 << 31, 1 << 53]
TRUE = {"ack": ("epoch", "version"), "report": ("number",), "traced": ("number",)}
"""The fields of a message that have to be as the leader has said for the rest to be believed."""
TELLS = {"ack": ("delta", "snapshot"), "report": ("probes",), "traced": ("trace",)}
COUNTS = (1, 1, 2, 30, 1500)
MAX_CHANNELS = 200


class Speaker(Members):
    """Plays ``open PLACE?QUERY``, ``crowd COUNT``, ``say COUNT JSON``, ``bytes COUNT HEX``, ``trace``, ``leave`` and ``wait S``."""

    kind: ClassVar[Any]
    path: ClassVar[str]
    token: ClassVar[str]
    places: ClassVar[tuple[str, ...]]

    def begun(self) -> None:
        self._channels: list[ClientConnection] = []
        self._told: dict[str, dict[str, Any]] = {}

    @classmethod
    def plan(cls, draw: random.Random) -> Iterator[str]:
        """Yield steps: channels with any query, and messages as they are declared, one or many."""
        declared = Declared(draw, WORDS, KNOWN)
        yield f"open {cls.places[0]}?{MCS}"
        while True:
            match draw.choices(("open", "crowd", "say", "bytes", "trace", "leave", "wait"), (2, 0.5, 8, 3, 1, 0.5, 1))[0]:
                case "open":
                    yield f"open {draw.choice(cls.places)}?{_query(draw)}"
                case "crowd":
                    yield f"crowd {draw.choice((3, 40, MAX_CHANNELS))}"
                case "say":
                    yield f"say {draw.choice(COUNTS)} {json.dumps(declared.message(cls.kind))}"
                case "bytes":
                    yield f"bytes {draw.choice(COUNTS)} {_reports(draw).hex()}"
                case "wait":
                    yield f"wait {draw.choice((0.3, 1.0))}"
                case other:
                    yield other

    def play(self, step: str) -> None:
        verb, _, rest = step.partition(" ")
        count, _, what = rest.partition(" ")
        match verb:
            case "open":
                self._open(rest)
            case "crowd":
                places = (f"{self.places[number % len(self.places)]}?{MCS}" for number in range(int(count)))
                crowd = [threading.Thread(target=self._open, args=(place,), daemon=True) for place in places]
                for each in crowd:
                    each.start()
                crowd[-1].join(3)
            case "say":
                self._send(int(count), self._true(what))
            case "bytes":
                self._send(int(count), bytes.fromhex(what))
            case "trace":
                threading.Thread(target=self._trace, daemon=True).start()
            case "leave":
                self.behave()
            case "wait":
                wait(count)
        time.sleep(0.1)  # for what the leader makes of it

    def behave(self) -> None:
        channels, self._channels = self._channels, []
        for channel in channels:
            with silent:
                channel.socket.shutdown(socket.SHUT_RDWR)

    def _open(self, place: str) -> None:
        url = f"{self.cluster.members[self.leader].url.replace('http', 'ws')}{self.path}{place}"
        headers = {"Authorization": f"Bearer {self.token}"}
        with silent:
            channel = connect(url, additional_headers=headers, proxy=None, ping_interval=None, close_timeout=0.2, open_timeout=5)
            self._channels.append(channel)
            threading.Thread(target=self._hear, args=(channel,), daemon=True).start()

    def _hear(self, channel: ClientConnection) -> None:
        with silent:
            for said in channel:
                its = json.loads(said)
                self._told[its["type"]] = its

    def _true(self, message: str) -> str:
        """Return a message with what the leader has said where it would not be believed otherwise."""
        its = json.loads(message)
        for name in TRUE.get(its.get("type") if isinstance(its, dict) else "", ()):
            told = next(
                (self._told[kind] for kind in ("delta", "snapshot", "probes", "trace") if name in self._told.get(kind, ())), {}
            )
            told = self._told.get("trace", told) if its["type"] == "traced" else told
            if name in told and its.get(name) in KNOWN:
                its[name] = told[name]
        return json.dumps(its)

    def _send(self, count: int, data: str | bytes) -> None:
        for channel in self._channels[-2:]:
            with silent:
                for _ in range(count):
                    channel.send(data)

    def _trace(self) -> None:
        """Have an operator ask the leader for a trace from the lying host."""
        body = {"src": HOST, "dst": AGENTS[1], "count": 3}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with silent, httpx.Client(base_url=self.cluster.members[self.leader].url, headers=headers, timeout=20) as client:
            client.post("/sopa/v1/traces", json=body)


def _query(draw: random.Random) -> str:
    its = {
        "policy": "mcs",
        "mcs": "1",
        "channel-kind": "paths",
        "probes": "1",
        "carrier": "mac",
        "spray": "all",
        "first": "1",
        "term": "1",
    }
    for name in list(its):
        if draw.random() < 0.2:
            del its[name]
        elif draw.random() < 0.2:
            its[name] = draw.choice((text(draw), "ports", str(extreme(draw, 64)), "7" * 18))
    return urlencode(its, errors="replace")


def _reports(draw: random.Random) -> bytes:
    """Return reports as a relay hands them on, with counts that are believable, or not."""

    def number(bits: int) -> int:
        return draw.choice((0, 1, 5, 50, extreme(draw, bits)))

    found = b""
    for place in draw.sample(range(len(HOSTS) + 1), draw.randint(1, 3)):
        streams = [Stream(IPv4Address(draw.choice(HOSTS)), draw.choice((0, 1, 255)), draw.choice((0, 1, 255))) for _ in range(4)]
        records = packed(Counts(its, *(number(16) for _ in range(4)), *(number(32) for _ in range(2))) for its in streams)
        size = draw.choice((len(records), len(records), len(records) - 1, extreme(draw, 32)))
        found += struct.pack(HEADER.format, place, number(32), size) + records
    return found


class LyingAgent(Speaker):
    """The agent of one host, with that host's token."""

    kind = messages.FromAgent
    path = "/sopa/v1/agents/"
    token = host_token(TOKEN, IPv4Address(HOST))
    places = (HOST, HOST, *HOSTS)


class LyingRelay(Speaker):
    """A relay, with the relays' token, which may claim every host."""

    kind = relayed.FromRelay
    path = "/sopa/v1/relays/"
    token = relay_token(TOKEN)
    places = (RELAY, RELAY, "liar-2", "liar-3")


class LyingArbiter(Speaker):
    """An arbiter, with the arbiter's token."""

    kind = messages.Ack
    path = "/sopa/v1/arbiter"
    token = arbiter_token(TOKEN)
    places = ("",)
