"""The eBPF programs of MCS: frame, verdict and state are the reference's, and these are what docs/mcs.md says; two processors.

In scripts ``send`` and ``receive`` say what has become of a packet. Options are its fields: ``size`` of its data, ``sack`` with its
blocks (``5000-6000,7000-8000``), ``times`` for several in a row, and of what is received the fields of its MCO. Words are flags
(``syn``, ``fin``, ``rst``, ``noack``); ``full`` is a header without room for a placeholder. ``state`` shows parts of the state.
"""

import multiprocessing
import os
import random
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from multiprocessing.connection import Connection as Pipe
from socket import AF_INET, AF_INET6, create_connection, create_server
from typing import Any

import pytest

from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.own_traffic import OwnTraffic
from sopa_ryu.agent.paths.flow_hash import FlowKey, short_address
from tests.bpf.mcs_both import (
    BLOCKS,
    D_SACK,
    DPORT,
    ENDS,
    KEY,
    KEYS,
    LAST,
    MSS,
    SPORT,
    TIMESTAMPS,
    Both,
    option_of,
    received,
    sent,
    tcp_frame,
    tcp_header,
    tcp_sum,
)
from tests.bpf.mcs_frames import (
    ACK,
    FIN,
    L4,
    LINK,
    MCO_BYTES,
    PLACEHOLDER,
    RESERVED,
    RST,
    SYN,
    Kind,
    blocks_of,
    l4_of,
    option,
    sack_in,
    tos_of,
)
from tests.bpf.mcs_fuzz import fuzz
from tests.bpf.mcs_programs import ACCEPTS, Programs
from tests.bpf.mcs_reference import (
    FRESH,
    MAX_CHANNELS,
    MAX_RECEIVED,
    MAX_WEIGHT,
    MIN_MSS,
    ONE,
    PATIENCE_US,
    Block,
    Connection,
    Mco,
    Verdict,
    plus,
)
from tests.helpers.frames import FAR, FAR6, HERE6, INTER_POD, PREFIX, summed, table, word_of
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.veth import Pair

OTHER = IPv4Address("10.2.1.4")
SHARE = 1024  # of bpf/mcs.h
FAMILIES = pytest.mark.parametrize("both", [4, 6], indirect=True)


@pytest.mark.parametrize("channels", [0, 1, 17, 255])
def test_without_settings_nothing_is_touched(programs: Programs, channels: int) -> None:
    programs.set(channels)
    assert programs.egress(sent()) == (Verdict.PASS, sent())
    assert programs.ingress(received()) == received()
    assert programs.known_keys() == []


@FAMILIES
def test_channels_of_a_path_that_the_host_leaves_take_another_at_once_and_say_which_rack_is_used(both: Both) -> None:
    own = OwnTraffic(None, both.programs.busy)
    assert {word_of(both.sent(sent(family=both.family))) for _ in range(8)} == set(INTER_POD)
    assert own.busy() == [(2, 1)]
    left = INTER_POD[1:]
    both.swap(table()._replace(srv6=None, sets=(*table().sets[:2], left)))
    outs = [both.sent(sent(family=both.family)) for _ in range(8)]
    assert [option_of(out).channel for out in outs] == list(range(8))  # with the weights and numbers that they had
    assert {word_of(out) for out in outs} == set(left)
    assert own.sent_again() == []
    own.close()


def test_connections_of_the_two_families_share_no_state_and_without_a_prefix_ipv6_passes(both: Both) -> None:
    assert [option_of(both.sent(sent(family=family))).channel for family in (4, 6, 4, 6, 6)] == [0, 0, 1, 1, 2]
    assert set(both.programs.known_keys()) == set(KEYS.values())
    both.into(received(flags=RST | ACK, reserved=0, family=6))
    assert both.programs.known_keys() == [KEY]
    both.programs.set(prefix=None)
    both.wire.prefix = None
    for family, scattered in ((6, False), (4, True)):
        frame = sent(family=family)
        assert (both.sent(frame) != frame) == scattered
        both.into(received(family=family))
    assert both.programs.known_keys() == [KEY]


def test_a_host_outside_the_fabric_is_none_of_it_though_its_address_in_short_is(both: Both) -> None:
    """Addresses whose hash is that of a host that runs MCS can be found."""
    outside = "2001:db8::7"
    short = FlowKey.of(HERE6, outside, 6, prefix=PREFIX).daddr
    both.wire.peers.add(short)
    both.programs.add_peer(str(IPv4Address(short)))
    frame = tcp_frame(tcp_header(SPORT, DPORT, 1, 1, ACK, 9, PLACEHOLDER, 0), 10, HERE6, outside)
    assert both.sent(frame) == frame
    both.into(tcp_frame(tcp_header(DPORT, SPORT, 1, 1, ACK, 9, option(Mco(0, 0, 0, 0, 1, 1)), RESERVED), 10, outside, HERE6))
    assert both.programs.counters()["mco_unknown"] == 1


def test_the_clean_up_removes_what_was_silent_since(programs: Programs) -> None:
    begun = time.monotonic_ns()
    frames = [sent()[:L4] + struct.pack("!H", port) + sent()[L4 + 2 :] for port in range(50)]
    for frame in frames:
        programs.egress(frame)
    between = time.monotonic_ns()
    assert programs.sweep(begun) == (0, 50)
    for frame in frames[:10]:
        programs.egress(frame)
    programs.ingress(received(source_port=DPORT).replace(struct.pack("!HH", DPORT, SPORT), struct.pack("!HH", DPORT, 49)))
    assert programs.sweep(between) == (39, 11)
    assert {key.local_port for key in programs.known_keys()} == {*range(10), 49}


@pytest.mark.parametrize(("here", "other"), [("127.0.0.1", "127.0.0.2"), (HERE6, FAR6)])
def test_a_far_host_has_a_share_beyond_which_only_what_tcp_knows_has_a_state(pair: Pair, here: str, other: str) -> None:
    six = ":" in here
    pair.on_host("sysctl -qw net.ipv6.conf.lo.disable_ipv6=0")
    pair.on_host(f"ip address add {HERE6}/128 dev lo")
    with (
        Programs(8 * SHARE) as its, inside(pair.host), create_server((here, 0), family=AF_INET6 if six else AF_INET) as server,
        create_connection(server.getsockname()[:2]) as client,
    ):  # fmt: skip
        port, far = server.getsockname()[1], here

        def receive(source: str, source_port: int, flags: int = ACK) -> None:
            options = b"" if flags & SYN else option(Mco(0, 0, 0, 0, 1, 1))
            its.ingress(tcp_frame(tcp_header(source_port, port, 1, 1, flags, 9, options, RESERVED), 0, source, here))

        for end in (here, other):
            its.add_peer(str(IPv4Address(short_address(IPv6Address(end), PREFIX))) if six else end)
        free = [number for number in range(1, 2 * SHARE) if number != client.getsockname()[1]]
        for number in free:
            receive(far, number)
        assert len(its.known_keys()) == SHARE
        receive(other, 1)
        assert len(its.known_keys()) == SHARE + 1
        receive(far, client.getsockname()[1])
        assert len(its.known_keys()) == SHARE + 2
        its.clear()
        for number in free:
            receive(far, number, SYN)
        assert its.known_scales() == SHARE


FLAGS = {"syn": SYN, "fin": FIN, "rst": RST}
MCO_FIELDS = ("rcb", "rb", "rp", "channel", "gsn", "lsn")


class Played:
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
        fresh = Connection()
        changes: dict[str, Any] = {name: int(value, 0) for name, value in step.options.items()}
        changes |= {name: bool(value) for name, value in changes.items() if isinstance(getattr(fresh, name), bool)}
        self.both.begin(replace(self.both.its, **changes) if "again" in step.words else Connection(**changes))
        return ""

    def do_state(self, step: Step) -> str:
        if not self.both.programs.known_keys():
            return "no connection"
        its = self.both.its
        return ", ".join(f"{name} {_shown(getattr(its, name), its.channels)}" for name in step.words)

    def do_forget(self, _step: Step) -> str:
        """Begin anew: no SYN was seen."""
        self.both.programs.reset()
        self.both.wire.host.scales.clear()
        self.both.wire.counters.clear()
        return ""

    def do_leaving(self, _step: Step) -> str:
        """Have the other host be one that is not scattered to any more, but may not know it yet."""
        self.both.programs.add_peer(FAR, ACCEPTS)
        self.both.wire.peers, self.both.wire.leaving = set(), self.both.wire.peers
        return ""

    def do_syn(self, step: Step) -> str:
        """Let both SYNs pass, with these options; of one that is not named nothing is seen."""
        for end, by, addresses, pass_it in (
            ("here", (SPORT, DPORT), ENDS[self.both.family], self.both.sent),
            ("there", (DPORT, SPORT), ENDS[self.both.family][::-1], self.both.into),
        ):
            if end in step.options:
                header = tcp_header(*by, 1, 1, SYN, 9, bytes.fromhex(step.options[end]), 0)
                pass_it(tcp_frame(header, 0, *addresses))
        return ""

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
                tos=int(its.get("tos", 0)), window=int(its.get("window", 60_000)), family=self.both.family, **given,
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
            family=self.both.family,
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
    l4 = l4_of(frame)
    return frame[l4 : l4 + (frame[l4 + 12] >> 4) * 4]


def _said(frame: bytes, out: bytes) -> str:
    """What has become of a packet that is sent."""
    if out == frame:
        return "as it is"
    assert tcp_sum(out) == 0xFFFF
    l4 = l4_of(frame)
    assert l4 != L4 or summed(out[LINK:L4]) % 0xFFFF == 0
    assert len(out) == len(frame)
    mco = option_of(out)
    rows = [f"channel {mco.channel}, gsn {mco.gsn}, lsn {mco.lsn}"]
    if mco.rb or mco.rcb or mco.rp:
        rows.append(f"rb {mco.rb:#x}, rcb {mco.rcb:#x}, rp {mco.rp}")
    blocks = [blocks_of(each, sack_in(each)) for each in (_header(frame), _header(out)[:-MCO_BYTES])]
    if blocks[0]:
        rows.append("sack " + (",".join(f"{first}-{end}" for first, end in blocks[1]) or "hidden"))
    if tos_of(out) != tos_of(frame):
        rows.append(f"tos {tos_of(out)}")
    if out[l4 : l4 + 2] != frame[l4 : l4 + 2]:
        rows.append(f"port {struct.unpack_from('!H', out, l4)[0] - SPORT:+}")
    if (word := word_of(out)) is not None:
        assert word in INTER_POD
        rows.append("labelled")
    return ", ".join(rows)


def _taken(frame: bytes, out: bytes) -> str:
    """What has become of a packet that comes in."""
    rows, l4 = [], l4_of(frame)
    if out[l4 : l4 + 2] != frame[l4 : l4 + 2]:
        rows.append(f"from port {struct.unpack_from('!H', out, l4)[0]}")
    if out[l4 + 14 : l4 + 16] != frame[l4 + 14 : l4 + 16]:
        rows.append(f"window {struct.unpack_from('!H', out, l4 + 14)[0]}")
    return ", ".join(rows) or "as it is"


@FAMILIES
@each_script(__file__, "mcs")
def test_script(both: Both, script: Script) -> None:
    script.play(Played(both).handle)


@pytest.mark.parametrize("patience_us", [10_000_000, 0])
def test_what_is_missing_for_long_is_lost_though_no_channel_shows_a_gap(both: Both, patience_us: int) -> None:
    both.use(patience_us=patience_us or PATIENCE_US)
    both.programs.set(patience_us=patience_us)  # 0: the default
    now_us = time.monotonic_ns() // 1000 & LAST
    both.wire.host.clock_us = lambda: now_us
    both.begin(Connection(lan=4000, gap_since=now_us - 11_000_000 & LAST))
    both.sent(sent(ack=4000, blocks=BLOCKS[:1]))
    assert (both.its.loss, both.its.rsn) == (True, BLOCKS[0][1])
    both.sent(sent(ack=BLOCKS[0][1] + 1))
    assert not both.its.loss


def test_a_gap_begins_with_the_first_packet_behind_it_and_each_gap_anew(both: Both) -> None:
    both.use(patience_us=60_000_000)
    both.wire.host.clock_us = lambda: time.monotonic_ns() // 1000 & LAST
    for ack, blocks, gap in (
        (4000, (), False), (4000, BLOCKS, True), (4500, BLOCKS, True), (4600, (), False), (4700, BLOCKS, True),
        (4600, (), True), (4800, (D_SACK, *BLOCKS), False),
    ):  # fmt: skip
        both.out(sent(ack=ack, blocks=blocks[:1]))
        assert (both.its.gap_since is not None) == gap
        assert not both.its.loss


def any_connection(draw: random.Random, channels: int) -> Connection:
    numbers = [draw.getrandbits(32) for _ in range(MAX_CHANNELS)]
    mask = (1 << channels) - 1

    def some(high: int) -> list[int]:
        values = [draw.choice((0, draw.randrange(high + 1))) for _ in range(channels)]
        return values + [0] * (MAX_CHANNELS - channels)

    fv = some(FRESH)[:channels] + [FRESH] * (MAX_CHANNELS - channels)
    return Connection(
        channels, numbers, nsn=draw.getrandbits(32), msn=draw.choice((999, 1000, 1001, draw.getrandbits(32))),
        ws=draw.choice((draw.getrandbits(30), 3000, 1 << 30)), fv=fv, skv=some(7), wv=some(MAX_WEIGHT),
        cb=draw.choice((0, draw.getrandbits(16) & mask)), ab=draw.choice((mask, 0, draw.getrandbits(16) & mask)),
        cc=draw.randrange(channels), alpha=draw.randrange(ONE + 1), slow_start=draw.random() < 0.5,
        resent=draw.random() < 0.5,
        mss=draw.choice((536, 1448, 9000, 65495)),
        scale=draw.choice((None, 0, 7, 14)), expected=[draw.choice((None, number, 0)) for number in numbers],
        lan=draw.choice((None, 3000, 4000, 5000, draw.getrandbits(32))), rsn=draw.choice((3999, 4000, draw.getrandbits(32))),
        rb=draw.getrandbits(16), rcb=draw.getrandbits(16), rp=draw.choice((0, 3, 255)), loss=draw.random() < 0.3,
        closed_out=draw.random() < 0.1, closed_in=draw.random() < 0.1,
    )  # fmt: skip


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 11, 16])
def test_channels_weights_windows_and_freshness_follow_from_any_state(both: Both, channels: int) -> None:
    draw = random.Random(channels)
    both.use(channels=channels)
    for number in range(300):
        both.begin(any_connection(draw, channels))
        for _ in range(20 if number % 5 == 0 else 0):
            if KEY in both.wire.host.connections:
                both.sent(sent(seq=draw.getrandbits(32), ack=9000, payload=draw.choice((0, 10, MSS))))
        for ack in (draw.choice((999, 1000, 1001, 1002)), draw.getrandbits(32)):
            seq, size, tos = draw.getrandbits(32), draw.choice((0, 1, MSS)), draw.randrange(4)
            mco = Mco(
                draw.choice((0, draw.getrandbits(16))), draw.choice((0, draw.getrandbits(16))), draw.randrange(256),
                draw.randrange(16), draw.choice((seq, plus(seq, -MSS))), draw.getrandbits(32),
            )  # fmt: skip
            both.into(received(seq, ack, size, mco=mco, tos=tos, window=draw.getrandbits(16)))


SIZE, BEGUN = 100, 1000


def on_two_processors(*works: Callable[[], Any]) -> list[Any]:
    """Return what two functions return that run at the same time, each on a processor of its own.

    In processes: threads of one interpreter are hardly ever in the kernel together. A guest has no /dev/shm for a barrier.
    """
    context = multiprocessing.get_context("fork")

    def run(work: Callable[[], Any], processor: int, pipe: Pipe) -> None:
        os.sched_setaffinity(0, {processor})
        pipe.send("ready")
        pipe.recv()
        pipe.send(work())

    pipes = [context.Pipe() for _ in works]
    started = zip(works, sorted(range(os.cpu_count() or 1)), pipes, strict=False)
    processes = [context.Process(target=run, args=(work, number, pipe[1])) for work, number, pipe in started]
    assert len(processes) == 2
    for process in processes:
        process.start()
    assert [pipe.recv() for pipe, _ in pipes] == ["ready", "ready"]
    for pipe, _ in pipes:
        pipe.send("go")
    found = [pipe.recv() for pipe, _ in pipes]
    for process in processes:
        process.join()
    return found


def local_numbers(programs: Programs) -> list[int]:
    its = programs.connection(KEY)
    return [its[f"nlsn{channel}"] - BEGUN for channel in range(8)]


def test_two_processors_that_send_lose_no_byte_and_use_no_local_number_twice(programs: Programs) -> None:
    each = 10_000
    programs.egress(sent(seq=BEGUN))
    frames = [sent(seq=BEGUN + number * SIZE, payload=SIZE) for number in range(2 * each)]

    def send(which: slice) -> list[bytes]:
        return [programs.egress(frame)[1] for frame in frames[which]]

    outs = on_two_processors(lambda: send(slice(0, None, 2)), lambda: send(slice(1, None, 2)))
    assert programs.connection(KEY)["nsn"] == BEGUN + 2 * each * SIZE
    assert local_numbers(programs) == [2 * each // 8 * SIZE] * 8
    taken = {(mco.channel, mco.lsn) for mco in map(option_of, (*outs[0], *outs[1]))}
    assert len(taken) == 2 * each


def test_two_processors_that_receive_lose_no_packet_and_no_growth_of_the_window(programs: Programs) -> None:
    programs.egress(sent())
    begun, told, frame = programs.connection(KEY)["ws"], 0, received(payload=10, mco=Mco(0, 0, 2, 1, 4000, 0))
    repeats = [100] * 20 + [100_000]
    for repeat in repeats:
        on_two_processors(*[lambda repeat=repeat: programs.ingress(frame, repeat=repeat)] * 2)
        told += option_of(programs.egress(sent())[1]).rp
    assert told == 20 * 2 * 100 + MAX_RECEIVED
    assert programs.connection(KEY)["ws"] == begun + 2 * sum(repeats) * MIN_MSS


def test_one_processor_sends_while_another_receives(programs: Programs) -> None:
    programs.egress(sent())
    each = 3000
    frame = received(payload=10, mco=Mco(0, 0, 2, 1, 4000, 0))

    def send() -> int:
        outs = [programs.egress(sent(seq=BEGUN + turn, payload=1))[1] for turn in range(each)]
        return sum(option_of(out).rp for out in outs)

    begun = programs.connection(KEY)["ws"]
    told, _ = on_two_processors(send, lambda: [programs.ingress(frame, repeat=3) for _ in range(each)] and None)
    its = programs.connection(KEY)
    assert its["ws"] == begun + 3 * each * MIN_MSS
    assert sum(local_numbers(programs)) == each
    assert told + its["rp"] <= 3 * each


def test_random_packets_have_the_same_outcome() -> None:
    done = fuzz(packets=20_000, seed=1)
    # a fuzz that reaches only refusals proves nothing
    rare = {"ack_filtered", "window_lowered", "no_connection", "mco_unknown", "mco_malformed", "no_path"}
    assert all(done[reason] > 20 for reason in {"scattered", "labelled", "mco_taken", *rare}), done
