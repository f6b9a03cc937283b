"""A switch that lies to three controllers: its answers come late, wrong, twice, endlessly or in another's name."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.declared import extreme
from tests.fuzz.members import LIAR, TREE, Members, silent, wait
from tests.helpers.openflow_switch import FORMATS, ROWS, Values, codes, multipart, packed

NAMES = [*map(TREE.name, TREE.switches())]
NOW = ("now", "now+3500000", "now+3700000", "now+31536000000", "now-3600000")
"""Numbers that are plausible as generation ids, in milliseconds since 1970."""
HOWS = ("late", "twice", "never", "endless", "strange", "cut", "longer")


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: lies of fields, how answers are given, messages that nobody asked for, and connections in some name."""
    while True:
        match draw.choices(("lie", "how", "rows", "send", "connect", "wait"), (5, 3, 1, 4, 3, 1))[0]:
            case "lie":
                kind = draw.choice([kind for kind in ("features", "role", *ROWS) if codes(kind)])
                place = draw.randrange(len(codes(kind)))
                yield f"lie {kind} {place} {_value(draw, codes(kind)[place])}"
            case "how":
                kind = draw.choice(("hello", "echo", "features", "barrier", "role", *ROWS))
                yield f"how {kind} {draw.choice(HOWS)}"
            case "rows":
                yield f"rows {draw.choice([*ROWS])} {draw.choice((0, 1, 2, 300, 20000))}"
            case "send":
                kind = draw.choice([*FORMATS])
                lies = (f"{place}={_value(draw, code)}" for place, code in enumerate(codes(kind)) if draw.random() < 0.3)
                yield " ".join((f"send {draw.choice((1, 1, 3, 100, 3000))} {kind}", *lies))
            case "connect":
                yield f"connect {draw.choice((LIAR, LIAR, LIAR, *NAMES, '30583'))}"
            case "wait":
                yield f"wait {draw.choice((0.2, 1.0))}"


def _value(draw: random.Random, code: str) -> str:
    if code.endswith("s"):
        return "0x" + draw.randbytes(int(code[:-1])).hex()
    if code == "Q" and draw.random() < 0.5:
        return draw.choice((*NOW, *NAMES))
    return str(extreme(draw, {"B": 8, "H": 16, "I": 32, "Q": 64}[code]))


def read(text: str) -> int | bytes:
    """Return a value as steps write it: a number, bytes, a time or a switch."""
    if text.startswith("0x"):
        return bytes.fromhex(text[2:])
    if text.startswith("now"):
        return time.time_ns() // 1_000_000 + int(text[3:] or 0)
    return TREE.dpid(TREE.switch(text)) if text in NAMES else int(text)


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
                self._send(int(count), kind, {int(place): value for place, _, value in (lie.partition("=") for lie in lies)})
            case ["connect", name]:
                self.liar.open(int(read(name)))
            case ["wait", seconds]:
                wait(seconds)
        time.sleep(0.2)  # for what the members make of it

    def behave(self) -> None:
        self.begun()
        self.liar.open(TREE.dpid(TREE.switch(LIAR)))

    def _send(self, count: int, kind: str, lies: dict[int, str]) -> None:
        body = packed(kind, _with(self.liar.values(kind), lies))
        for channel in list(self.liar.alive):
            with silent:
                self.liar.write(channel, FORMATS[kind][0], 0, body, count)

    def _answer(self, kind: str, values: Any, xid: int, write: Callable[[bytes], None]) -> None:
        lies, how, is_message = self._lies.get(kind, {}), self._hows.get(kind), kind in FORMATS
        rows: list[Values] = [values] if is_message else values
        if kind in self._rows or (lies and not rows):
            rows = [self.liar.row(kind)] * self._rows.get(kind, 1)
        rows = [_with(row, lies) for row in rows]
        body = packed(kind, rows[0]) if is_message else multipart(kind, rows)
        if how == "late":
            threading.Timer(1.5, lambda: self._write(write, body)).start()
        elif how == "endless" and not is_message:
            many = multipart(kind, (rows or [self.liar.row(kind)]) * 1000, more=True)
            threading.Thread(target=lambda: self._write(write, many, 4000), daemon=True).start()
        elif how == "cut":
            write(body[: len(body) // 2])
        elif how == "longer":
            write(body + bytes(64))
        elif how != "never":
            write(body)
            if how == "twice":
                write(body)

    def _write(self, write: Callable[[bytes], None], body: bytes, count: int = 1) -> None:
        with silent:
            for _ in range(count):
                write(body)


def _with(values: Values, lies: dict[int, str]) -> list[int | bytes]:
    return [read(lies[place]) if place in lies else value for place, value in enumerate(values)]
