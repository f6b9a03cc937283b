"""Ryu's parsers, and os-ken's, with a bound.

A message can have parts that say they have no length, at which both would stay for ever: the whole controller with it. A right
message has more bytes than numbers, so that a parser that reads more numbers has met such a part.
"""

from __future__ import annotations

import math
import struct
import sys
from typing import Any

from sopa_ryu.runtime.library import OFPTruncatedMessage, OFPUnknownVersion, ofproto_parser, ofproto_protocol, ofproto_v1_3

SPARE_READS = 64


class MalformedError(ValueError):
    """A message that cannot be parsed."""


class _Reads:
    """The module `struct` for the parsers, which counts what is unpacked while a message is parsed.

    Ryu's modules unpack at other times, too: some actions while they are serialized.
    """

    left = math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(struct, name)

    def unpack_from(self, *arguments: Any) -> tuple[Any, ...]:
        self.left -= 1
        if self.left < 0:
            raise MalformedError("a part of it has no length")
        return struct.unpack_from(*arguments)


_reads = _Reads()


def parse(datapath: Any, version: int, kind: int, length: int, xid: int, data: bytes) -> Any:
    """Parse a message, in the place of ``ryu.ofproto.ofproto_parser.msg``; None if nothing is to be done with it any more.

    `OFPUnknownVersion`, `OFPTruncatedMessage` or `MalformedError` if it is none.
    """
    parser = ofproto_parser._MSG_PARSERS.get(version)
    if parser is None:
        raise OFPUnknownVersion(version=version)
    try:
        take = getattr(datapath, "take", None)  # of sopa_ryu.southbound.datapath
        if version == ofproto_v1_3.OFP_VERSION and take is not None and (taken := take(kind, xid, data)) is not data:
            if taken is None:
                return None
            data, length = taken, len(taken)
        _reads.left = SPARE_READS + len(data)
        message = parser(datapath, version, kind, length, xid, data)
        if kind == ofproto_v1_3.OFPT_PACKET_IN and version == ofproto_v1_3.OFP_VERSION and "in_port" not in message.match:
            raise MalformedError("a packet-in without in_port (OpenFlow 1.3, section 7.4.1)")
        return message
    except (OFPTruncatedMessage, MalformedError):
        raise
    except Exception as error:  # whatever the parsers' own checks and missing checks lead to
        raise MalformedError(f"message of type {kind}: {type(error).__name__}: {error}") from error
    finally:
        _reads.left = math.inf


def bound() -> None:
    """Give the library's parsers their bound, in every version: a message names the one whose parser it gets.

    `LookupError` if one of them does not read numbers as expected, and so would have none.
    """
    parsers = [version.__name__ for _, version in ofproto_protocol._versions.values()]
    for name in parsers:
        if getattr(sys.modules[name], "struct", None) not in (struct, _reads):
            raise LookupError(f"{name} does not use the module struct")
    package = ofproto_parser.__name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if module is ofproto_parser or not name.startswith(f"{package}."):
            continue  # it reads headers only
        if getattr(module, "struct", None) is struct:
            vars(module)["struct"] = _reads
    ofproto_parser.msg = parse
