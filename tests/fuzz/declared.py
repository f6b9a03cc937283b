"""Values that declarations of messages allow, their bounds, and what is beyond. Pure: one generator decides everything."""

import base64
import random
import re
from typing import Any

from msgspec import inspect
from msgspec.inspect import (
    BoolType,
    BytesType,
    CustomType,
    DictType,
    FloatType,
    IntType,
    NamedTupleType,
    NoneType,
    StructType,
    TupleType,
    UnionType,
    VarTupleType,
)

from tests.fuzz.garble import text

WRONG = 0.03
"""Of values that are of another type, or beyond their bound: most messages have to get through their reader."""
OPTIONAL = 0.5


class Declared:
    """Draws values of declared types.

    Args:
        words: Texts that mean something to the reader, such as names of the fabric.
        numbers: Numbers that do, such as places of hosts and versions.
    """

    def __init__(self, draw: random.Random, words: list[str], numbers: list[int]) -> None:
        self._draw, self._words, self._numbers = draw, words, numbers

    def message(self, kind: Any) -> Any:
        """Return a message of a type, or of a union of types, as JSON has it."""
        return self._of(inspect.type_info(kind))

    def _of(self, kind: Any) -> Any:
        draw = self._draw
        if draw.random() < WRONG:
            return draw.choice((None, True, -1, 1.5, 1 << 70, [], {}, text(draw), [[]] * 50))
        match kind:
            case UnionType():
                return self._of(draw.choice(kind.types))
            case StructType():
                tag = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
                wanted = (each for each in kind.fields if each.required or draw.random() < OPTIONAL)
                return tag | {each.encode_name: self._of(each.type) for each in wanted}
            case NamedTupleType():
                return [self._of(each.type) for each in kind.fields]
            case TupleType():
                return [self._of(each) for each in kind.item_types]
            case VarTupleType():
                return self._many(kind.item_type, kind.max_length)
            case DictType():
                return {str(self._of(kind.key_type)): self._of(kind.value_type) for _ in range(draw.choice((0, 1, 3, 40)))}
            case IntType():
                return self.number(kind.ge or 0, kind.le if kind.le is not None else (1 << 63) - 1)
            case FloatType():
                return draw.choice((kind.ge or 0.0, 0.001, 1.0, 1e6, kind.le or 1e300))
            case BoolType():
                return draw.random() < 0.5
            case BytesType():
                return self._bytes(kind.max_length or 4096)
            case NoneType():
                return None
            case CustomType():
                return draw.choice(self._words)
        return self._text(kind)

    def number(self, low: int, high: int) -> int:
        """Return a number within bounds: mostly one that means something, or a bound."""
        known = [number for number in self._numbers if low <= number <= high]
        return self._draw.choice([*known, *known, low, high, max(low, high - 1), self._draw.randint(low, high)])

    def _many(self, kind: Any, most: int | None) -> list[Any]:
        count = min(self._draw.choice((0, 1, 1, 2, 2, 4, 4, 30, 2000)), most or 2000)
        few = [self._of(kind) for _ in range(min(count, 5))]
        return [few[number % len(few)] for number in range(count)]

    def _bytes(self, most: int) -> str:
        size = self._draw.choice((0, 1, 24, 24, 48, 7, 240, most))
        return base64.b64encode(self._draw.randbytes(min(size, most))).decode()

    def _text(self, kind: Any) -> str:
        its = self._draw.choice(self._words) if self._draw.random() < 0.7 else text(self._draw)
        pattern = getattr(kind, "pattern", None)
        return its if pattern is None or re.search(pattern, its) else self._draw.choice(self._words)


def extreme(draw: random.Random, bits: int) -> int:
    """Return a number of so many bits, mostly at a bound or a power of two."""
    top = 1 << bits
    return draw.choice((0, 1, 2, 3, 4, top - 1, top - 2, top // 2, top // 2 - 1, top - (top >> 8), draw.randrange(top)))
