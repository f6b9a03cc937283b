"""Scripts about one TCP connection that the programs of MCS scatter, played to the programs and to the reference.

``send`` and ``receive`` say what has become of a packet, in which the options are its fields: ``size`` of its data, ``sack`` with
its blocks (``5000-6000,7000-8000``), ``times`` for several in a row, and of what is received the fields of its MCO. Words are flags
(``syn``, ``fin``, ``rst``, ``noack``); ``full`` is a header without room for a placeholder. ``state`` shows parts of the state.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from tests.bpf.mcs_both import DPORT, SPORT, TIMESTAMPS, Both, option_of, received, sent, tcp_sum
from tests.bpf.mcs_frames import ACK, FIN, L4, LINK, MCO_BYTES, PLACEHOLDER, RST, SYN, Kind, blocks_of, sack_in
from tests.bpf.mcs_reference import MAX_CHANNELS, Block, Connection, Mco, Verdict, plus
from tests.helpers.frames import INTER_POD, summed, word_of
from tests.helpers.golden import Step

FLAGS = {"syn": SYN, "fin": FIN, "rst": RST}
MCO_FIELDS = ("rcb", "rb", "rp", "channel", "gsn", "lsn")


class Script:
    """A connection; `handle` plays a step."""

    def __init__(self, both: Both) -> None:
        self.both = both

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(step))

    def do_use(self, step: Step) -> str:
        """Write other settings."""
        its = step.options
        self.both.use(
            Kind[its.get("kind", "paths").upper()], int(its.get("channels", 8)),
            filtering=its.get("filtering") != "no", regulating=its.get("regulating") != "no",
        )  # fmt: skip
        return ""

    def do_begin(self, step: Step) -> str:
        """Have the connection be in a state, all else of which is as it is, or as at the begin."""
        changes: dict[str, Any] = {name: int(value, 0) for name, value in step.options.items()}
        self.both.begin(replace(self.both.its, **changes) if "again" in step.words else Connection(**changes))
        return ""

    def do_state(self, step: Step) -> str:
        if not self.both.programs.known_keys():
            return "no connection"
        its = self.both.its
        return ", ".join(f"{name} {_shown(getattr(its, name), its.channels)}" for name in step.words)

    def do_send(self, step: Step) -> str:
        its, rows = step.options, []
        seq, size = int(its.get("seq", 1000)), int(its.get("size", 0))
        gso_size, segments = map(int, its.get("burst", "0x0").split("x"))
        for _ in range(int(its.get("times", 1))):
            frame = self._sent(step, seq, size)
            verdict, out = self.both.out(frame, gso_size, segments)
            rows.append(_said(frame, out) if verdict is Verdict.PASS else "dropped")
            seq = plus(seq, size)
        if len(rows) == 1:
            return rows[0]
        return "channels " + " ".join(row.split()[1].strip(",") for row in rows)

    def do_receive(self, step: Step) -> str:
        its, rows = step.options, []
        seq, size = int(its.get("seq", 4000)), int(its.get("size", 0))
        mco = {name: int(its[name], 0) for name in MCO_FIELDS if name in its}
        sport = plus(DPORT, -mco.get("channel", 0) if self.both.wire.kind is Kind.PORTS else 0) & 0xFFFF
        for _ in range(int(its.get("times", 1))):
            given: dict[str, Any] = {"reserved": 0} if "unmarked" in step.words else {}
            frame = received(
                seq, int(its.get("ack", 1000)), size, _flags(step), source_port=sport,
                mco=Mco(**({"rcb": 0, "rb": 0, "rp": 0, "channel": 0, "gsn": seq, "lsn": 0} | mco)),
                tos=int(its.get("tos", 0)), window=int(its.get("window", 60_000)), **given,
            )  # fmt: skip
            out = self.both.into(frame, gso_segments=int(its.get("segments", 0)))
            assert tcp_sum(out) == 0xFFFF
            rows.append(_taken(frame, out))
            seq = plus(seq, size)
        return rows[-1]

    def _sent(self, step: Step, seq: int, size: int) -> bytes:
        its = step.options
        blocks = _blocks(its.get("sack", ""))
        room = b"" if "full" in step.words else PLACEHOLDER
        fits = len(TIMESTAMPS) + bool(blocks) * 4 + 8 * len(blocks) + len(room) <= 40
        return sent(
            seq, int(its.get("ack", 4000)), size, _flags(step), blocks=blocks, room=room,
            before=TIMESTAMPS if fits else b"", tos=int(its.get("tos", 0)), window=int(its.get("window", 500)),
        )  # fmt: skip


def _flags(step: Step) -> int:
    return (0 if "noack" in step.words else ACK) | sum(FLAGS.get(word, 0) for word in step.words)


def _blocks(text: str) -> tuple[Block, ...]:
    return tuple((int(first), int(end)) for first, end in (part.split("-") for part in text.split(",") if part))


def _shown(value: object, channels: int) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value[:channels] if len(value) == MAX_CHANNELS else value))
    return str(value)


def _header(frame: bytes) -> bytes:
    return frame[L4 : L4 + (frame[L4 + 12] >> 4) * 4]


def _said(frame: bytes, out: bytes) -> str:
    """What has become of a packet that is sent."""
    if out == frame:
        return "as it is"
    assert tcp_sum(out) == 0xFFFF
    assert summed(out[LINK:L4]) % 0xFFFF == 0
    assert len(out) == len(frame)
    mco = option_of(out)
    rows = [f"channel {mco.channel}, gsn {mco.gsn}, lsn {mco.lsn}"]
    if mco.rb or mco.rcb or mco.rp:
        rows.append(f"rb {mco.rb:#x}, rcb {mco.rcb:#x}, rp {mco.rp}")
    blocks = [blocks_of(each, sack_in(each)) for each in (_header(frame), _header(out)[:-MCO_BYTES])]
    if blocks[0]:
        rows.append("sack " + (",".join(f"{first}-{end}" for first, end in blocks[1]) or "hidden"))
    if out[LINK + 1] != frame[LINK + 1]:
        rows.append(f"tos {out[LINK + 1]}")
    if out[L4 : L4 + 2] != frame[L4 : L4 + 2]:
        rows.append(f"port {struct.unpack_from('!H', out, L4)[0] - SPORT:+}")
    if (word := word_of(out)) is not None:
        assert word in INTER_POD
        rows.append("labelled")
    return ", ".join(rows)


def _taken(frame: bytes, out: bytes) -> str:
    """What has become of a packet that comes in."""
    rows = []
    if out[L4 : L4 + 2] != frame[L4 : L4 + 2]:
        rows.append(f"from port {struct.unpack_from('!H', out, L4)[0]}")
    if out[L4 + 14 : L4 + 16] != frame[L4 + 14 : L4 + 16]:
        rows.append(f"window {struct.unpack_from('!H', out, L4 + 14)[0]}")
    return ", ".join(rows) or "as it is"
