"""A chunked body, by itself and beyond what a body may have."""

import io

import pytest

from sopa_ryu.rest.http_protocol import MAX_BODY_BYTES, Protocol
from sopa_ryu.rest.operations import Problem


def read(*sizes: int) -> bytes:
    protocol = Protocol.__new__(Protocol)  # without a connection
    protocol.rfile = io.BytesIO(b"".join(b"%x\r\n%b\r\n" % (size, bytes(size)) for size in (*sizes, 0)))
    return protocol._read_chunks()


def test_chunks_together_are_bounded_as_a_body_is() -> None:
    half = MAX_BODY_BYTES // 2
    assert read(half, half) == bytes(MAX_BODY_BYTES)
    for sizes in ((MAX_BODY_BYTES + 1,), (half, half, 1)):
        with pytest.raises(Problem, match="at most"):
            read(*sizes)
