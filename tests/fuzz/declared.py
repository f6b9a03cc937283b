"""Values that declarations of messages allow, their bounds, and what is beyond. Pure: one generator decides everything."""

import base64
import random
import re
from typing import Any

from msgspec import inspect as its

from tests.fuzz.garble import text

WRONG = 0.03
"""Of values that are of another type, or beyond their bound: most messages have to get through their reader."""
OPTIONAL = 0.5


class Declared:
    """Draws values of declared types; ``words`` and ``numbers`` mean something to the reader, as names, places and versions."""

    def __init__(self, draw: random.Random, words: list[str], numbers: list[int]) -> None:
        self._draw, self._words, self._numbers = draw, words, numbers

    def message(self, kind: Any) -> Any:
        """Return a message of a type, or of a union of types, as JSON has it."""
        return self._of(its.type_info(kind))

    def _of(self, kind: Any) -> Any:
        draw = self._draw
        if draw.random() < WRONG:
            return draw.choice((None, True, -1, 1.5, 1 << 70, [], {}, text(draw), [[]] * 50))
        match kind:
            case its.UnionType():
                return self._of(draw.choice(kind.types))
            case its.StructType():
                tag = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
                fields = (field for field in kind.fields if field.required or draw.random() < OPTIONAL)
                return tag | {field.encode_name: self._of(field.type) for field in fields}
            case its.NamedTupleType():
                return [self._of(field.type) for field in kind.fields]
            case its.TupleType():
                return [self._of(each) for each in kind.item_types]
            case its.VarTupleType():
                count = min(draw.choice((0, 1, 1, 2, 2, 4, 4, 30, 2000)), kind.max_length or 2000)
                few = [self._of(kind.item_type) for _ in range(min(count, 5))]
                return [few[number % len(few)] for number in range(count)]
            case its.DictType():
                return {str(self._of(kind.key_type)): self._of(kind.value_type) for _ in range(draw.choice((0, 1, 3, 40)))}
            case its.IntType():
                low, high = kind.ge or 0, (1 << 63) - 1 if kind.le is None else kind.le
                known = [number for number in self._numbers if low <= number <= high]
                return draw.choice([*known, *known, low, high, max(low, high - 1), draw.randint(low, high)])
            case its.FloatType():
                return draw.choice((kind.ge or 0.0, 0.001, 1.0, 1e6, kind.le or 1e300))
            case its.BoolType():
                return draw.random() < 0.5
            case its.BytesType():
                size = draw.choice((0, 1, 24, 24, 48, 7, 240, kind.max_length or 4096))
                return base64.b64encode(draw.randbytes(min(size, kind.max_length or size))).decode()
            case its.NoneType():
                return None
        said = draw.choice(self._words) if draw.random() < 0.7 else text(draw)
        pattern = getattr(kind, "pattern", None) or ""
        return said if re.search(pattern, said) and not isinstance(kind, its.CustomType) else draw.choice(self._words)


def extreme(draw: random.Random, bits: int) -> int:
    """Return a number of so many bits, mostly at a bound or a power of two."""
    top = 1 << bits
    return draw.choice((0, 1, 2, 3, 4, top - 1, top - 2, top // 2, top // 2 - 1, top - (top >> 8), draw.randrange(top)))
