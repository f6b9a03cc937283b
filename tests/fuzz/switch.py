"""A switch that lies to three controllers: its answers come late, wrong, twice, endlessly or in another's name."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.declared import extreme
from tests.fuzz.garble import garbled
from tests.fuzz.members import LIAR, TREE, Members, silent, wait
from tests.helpers.openflow_switch import FORMATS, ROWS, Values, codes, multipart, packed

NAMES = [*map(TREE.name, TREE.switches())]
NOW = ("now", "now+3500000", "now+3700000", "now+31536000000", "now-3600000")
"""Numbers that are plausible as generation ids, in milliseconds since 1970."""
HOWS = ("late", "twice", "never", "endless", "cut", "longer", "garbled")


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: lies of fields, how answers are given, messages that nobody asked for, and connections in some name."""
    while True:
        verb = draw.choices(("lie", "how", "rows", "send", "connect", "wait"), (5, 4, 1, 4, 2, 1))[0]
        match verb:
            case "lie":
                kind = draw.choice(("features", "role", *ROWS))
                place = draw.randrange(len(codes(kind)))
                yield f"lie {kind} {place} {_value(draw, codes(kind)[place])}"
            case "how":
                kind = draw.choice(("hello", "echo", "features", "barrier", "role", *ROWS, *ROWS))
                yield f"how {kind} {draw.choice(HOWS if kind not in ROWS else (*HOWS, 'endless', 'endless'))}"
            case "rows":
                yield f"rows {draw.choice([*ROWS])} {draw.choice((0, 1, 2, 300, 20000))}"
            case "send":
                kind = draw.choice([*FORMATS])
                lies = (f"{place}={_value(draw, code)}" for place, code in enumerate(codes(kind)) if draw.random() < 0.3)
                yield " ".join((f"send {draw.choice((1, 1, 3, 100, 3000))} {kind}", *lies))
            case "connect":
                yield f"connect {draw.choice((LIAR, *NAMES, '30583'))}"
        if verb in ("lie", "how", "rows") and draw.random() < 0.6:
            yield f"connect {LIAR}"  # most questions are asked of a switch that has connected
        if verb == "wait" or draw.random() < 0.3:
            yield f"wait {draw.choice((0.5, 2.0))}"


def _value(draw: random.Random, code: str) -> str:
    if code.endswith("s"):
        return "0x" + draw.randbytes(int(code[:-1])).hex()
    if code == "Q" and draw.random() < 0.5:
        return draw.choice((*NOW, *NAMES))
    return str(extreme(draw, {"B": 8, "H": 16, "I": 32, "Q": 64}[code]))


def _read(said: str) -> int | bytes:
    if said.startswith("0x"):
        return bytes.fromhex(said[2:])
    if said.startswith("now"):
        return time.time_ns() // 1_000_000 + int(said[3:] or 0)
    return TREE.dpid(TREE.switch(said)) if said in NAMES else int(said)


def _with(values: Values, lies: dict[int, str]) -> Values:
    return [_read(lies[place]) if place in lies else value for place, value in enumerate(values)]


class LyingSwitch(Members):
    """`LIAR` lies; it may make itself and its links fail."""

    def begun(self) -> None:
        self._lies: dict[str, dict[int, str]] = {}
        self._hows: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self.liar.answer = self._answer

    def may_fail(self, name: str) -> bool:
        return LIAR in name

    def play(self, step: str) -> None:
        match step.split():
            case ["lie", kind, place, value]:
                self._lies.setdefault(kind, {})[int(place)] = value
            case ["how", kind, how]:
                self._hows[kind] = how
            case ["rows", kind, count]:
                self._rows[kind] = int(count)
            case ["send", count, kind, *lies]:
                values = _with(
                    self.liar.values(kind), {int(place): value for place, _, value in (lie.partition("=") for lie in lies)}
                )
                for channel in list(self.liar.alive):
                    with silent:
                        self.liar.write(channel, FORMATS[kind][0], 0, packed(kind, values), int(count))
            case ["connect", name]:
                self.liar.open(int(_read(name)))
            case ["wait", seconds]:
                wait(seconds)
        time.sleep(0.2)  # for what the members make of it

    def behave(self) -> None:
        self.begun()
        self.liar.restarted()  # standbys give it the id that it said to know (`SwitchSession.stand_by`)
        self.liar.open(TREE.dpid(TREE.switch(LIAR)))

    def _answer(self, kind: str, values: Any, xid: int, write: Callable[[bytes], None]) -> None:
        lies, how, is_message = self._lies.get(kind, {}), self._hows.get(kind), kind in FORMATS
        rows: list[Values] = [values] if is_message else values
        if kind in self._rows or (lies and not rows):
            rows = [self.liar.values(kind)] * self._rows.get(kind, 1)
        rows = [_with(row, lies) for row in rows]
        body, count = packed(kind, rows[0]) if is_message else multipart(kind, rows), 1
        match how:
            case "endless" if not is_message:
                body, count = multipart(kind, (rows or [self.liar.values(kind)]) * 1000, more=True), 4000
            case "cut":
                body = body[: len(body) // 2]
            case "longer":
                body += bytes(64)
            case "garbled":
                body = garbled(random.Random(xid), body)[:60000]
        sending = threading.Timer(
            1.5 if how == "late" else 0.0, self._write, (write, body, (how != "never") * count * (1 + (how == "twice")))
        )
        sending.daemon = True
        sending.run() if how in (None, "twice") else sending.start()

    def _write(self, write: Callable[[bytes], None], body: bytes, count: int) -> None:
        with silent:
            for _ in range(count):
                write(body)
