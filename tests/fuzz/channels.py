"""Peers on WebSockets that lie to the leader: a host's agent, a relay, and an arbiter, each with the token of its own."""

import json
import random
import socket
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
WORDS = [*HOSTS, *map(TREE.name, TREE.switches()), "h0_0_2", "a0_0-c0_0", "mcs", "round-robin", "paths", "1"]
KNOWN = [*range(8), len(HOSTS), 255, 256, 1 << 12, 1 << 31, 1 << 53]
TOLD = {"ack": ("delta", "snapshot"), "report": ("probes",), "traced": ("trace",)}
"""By the type of a message, those of the leader's messages whose numbers it has to have for the rest to be believed."""
NUMBERS = ("epoch", "version", "number")
COUNTS = (1, 1, 2, 30, 1500)
QUERY = {"policy": "mcs", "mcs": "1", "channel-kind": "paths", "probes": "1", "carrier": "mac", "spray": "all", "term": "1"}
OWN_ADDRESS = "127.0.0.9"


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
                    yield f"crowd {draw.choice((3, 40, 200))}"
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
                self._open([rest])
            case "crowd":
                self._open([f"{self.places[number % len(self.places)]}?{MCS}" for number in range(int(count))])
            case "say" | "bytes":
                said = bytes.fromhex(what) if verb == "bytes" else self._believable(what)
                for channel in self._channels[-2:]:
                    with silent:
                        for _ in range(int(count)):
                            channel.send(said)
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

    def _open(self, places: list[str]) -> None:
        """Open channels, and wait until the last one is open, or rejected."""
        opening = [threading.Thread(target=self._hear, args=(place,), daemon=True) for place in places]
        before, until = len(self._channels), time.monotonic() + 5
        for each in opening:
            each.start()
        while len(self._channels) < before + len(places) and opening[-1].is_alive() and time.monotonic() < until:
            time.sleep(0.01)  # others open them

    def _hear(self, place: str) -> None:
        url = f"{self.cluster.members[self.leader].url.replace('http', 'ws')}{self.path}{place}"
        headers, own = {"Authorization": f"Bearer {self.token}"}, (OWN_ADDRESS, 0)
        with silent, connect(url, additional_headers=headers, proxy=None, ping_interval=None, source_address=own) as channel:
            self._channels.append(channel)
            for said in channel:
                its = json.loads(said)
                self._told[its["type"]] = its

    def _believable(self, message: str) -> str:
        """Return a message with the leader's numbers in place of those that mean something."""
        its = json.loads(message)
        told = [self._told.get(kind, {}) for kind in TOLD.get(its.get("type"), ())] if isinstance(its, dict) else []
        for name in NUMBERS:
            if found := [each[name] for each in told if name in each and its.get(name) in KNOWN]:
                its[name] = found[0]
        return json.dumps(its)

    def _trace(self) -> None:
        """Have an operator ask the leader for a trace from the lying host."""
        body, headers = {"src": HOSTS[0], "dst": str(AGENTS[1]), "count": 3}, {"Authorization": f"Bearer {TOKEN}"}
        with silent, httpx.Client(base_url=self.cluster.members[self.leader].url, headers=headers, timeout=20) as client:
            client.post("/sopa/v1/traces", json=body)


def _query(draw: random.Random) -> str:
    wrong = {name: draw.choice((text(draw), "ports", str(extreme(draw, 64)), "7" * 18)) for name in QUERY if draw.random() < 0.2}
    return urlencode({name: its for name, its in (QUERY | wrong).items() if draw.random() < 0.8}, errors="replace")


def _reports(draw: random.Random) -> bytes:
    """Return reports as a relay hands them on, with counts that are believable, or not."""

    def number(bits: int) -> int:
        return draw.choice((0, 1, 5, 50, extreme(draw, bits)))

    found = b""
    for place in draw.sample(range(len(HOSTS) + 1), draw.randint(1, 3)):
        streams = [Stream(IPv4Address(draw.choice(HOSTS)), draw.choice((0, 1, 255)), draw.choice((0, 1, 255))) for _ in range(4)]
        records = packed(Counts(its, *(number(16) for _ in range(4)), *(number(32) for _ in range(2))) for its in streams)
        size = draw.choice((len(records), len(records), len(records) - 1, extreme(draw, 32)))
        found += HEADER.pack(place, number(32), size) + records
    return found


class LyingAgent(Speaker):
    """The agent of one host, with that host's token; it may claim others."""

    kind, path, token = messages.FromAgent, "/sopa/v1/agents/", host_token(TOKEN, IPv4Address(HOSTS[0]))
    places = (HOSTS[0], HOSTS[0], *HOSTS)


class LyingRelay(Speaker):
    """A relay, which may claim every host."""

    kind, path, token = relayed.FromRelay, "/sopa/v1/relays/", relay_token(TOKEN)
    places = ("liar", "liar", "liar-2", "liar-3")


class LyingArbiter(Speaker):
    """An arbiter; what it grants to hosts is another channel's."""

    kind, path, token = messages.Ack, "/sopa/v1/arbiter", arbiter_token(TOKEN)
    places = ("",)
