"""Departure times in CFR, without a kernel: which qdiscs keep them, when slots are due, and a qdisc that comes and goes."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.kernel.qdiscs import INGRESS, ROOT, Qdisc
from sopa_ryu.agent.slots.cfr_grants import MAX_AHEAD_NS, Gate, Grants, ahead_of, used_through
from sopa_ryu.agent.slots.cfr_sender import TOGETHER_NS, SlotSender
from sopa_ryu.agent.slots.departure_times import DepartureTimes, instead_of_fq
from sopa_ryu.channel.slots import Grant, Granted
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.waiting import eventually

HOST, PEER = IPv4Address("10.0.0.2"), IPv4Address("10.1.0.2")
SLOT_NS = 3_200_000


def qdiscs(text: str) -> list[Qdisc]:
    """Return a tree of qdiscs, each ``KIND HANDLE PARENT DEFAULT`` as tc writes them; without a parent it is the root."""
    tree = []
    for kind, *rest in (each.split() for each in text.split(",") if each):
        handle, parent, default = (
            int(major or "0", 16) << 16 | int(minor or "0", 16)
            for major, _, minor in (number.partition(":") for number in [*rest, "", "", ""][:3])
        )
        tree.append(CLSACT if kind == "clsact" else Qdisc(kind, handle, parent or ROOT, default))
    return tree


CLSACT = Qdisc("clsact", 0xFFFF0000, INGRESS)


def handle(step: Step) -> str:
    """Say by what packets leave in a tree of qdiscs; or through which slot all is used, so far into slot 1000 or before its end."""
    if step.command == "tree":
        tree = qdiscs(step.words[0])
        assert instead_of_fq(tree) == instead_of_fq(tree[::-1])
        return instead_of_fq(tree) or "fq"
    ahead, into = (int(step.options.get(name, 0)) for name in ("ahead", "into"))
    gate = Gate(SLOT_NS, 0, 1 << 62, 0, 0, ahead)
    used = {int(slot): int(size) for slot, size in step.options.items() if slot.isdecimal()}
    pending = [Granted(int(slot), 0, 1, PEER, 1514) for slot in step.words]
    return str(used_through(gate, 1000 * SLOT_NS + into % SLOT_NS, pending, lambda slot: used.get(slot, 0)))


@each_script(__file__, "departure_times")
def test_script(script: Script) -> None:
    script.play(handle)


def grant(sequence: int, now: int) -> Grant:
    first = now // SLOT_NS + 4
    return Grant(HOST, sequence, 1, SLOT_NS, 1000, first, 1, now, now, now, (Granted(first, 0, 1, PEER, 1514),))


def test_a_qdisc_that_comes_and_goes_is_followed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.agent")
    grants, found, said, ahead = Grants(HOST), "", [], []

    def read(ifindex: int) -> list[Qdisc]:
        assert ifindex == 7
        if not found:
            raise OSError(100, "qdiscs cannot be read: Network is down")
        return qdiscs(found)

    its = DepartureTimes(HOST, "eth1", 7, None, grants, read)
    for step, kind in enumerate(["pfifo_fast", "pfifo_fast", "fq", "fq", "fq_codel", "fq", "", "fq"]):
        found = kind
        its.look()
        said.append([record.levelname for record in caplog.records])
        caplog.clear()
        ahead.append(grants.receive(grant(step + 1, 10**9), 10**9).gate.ahead_ns)
    with_fq = ahead_of(SLOT_NS)
    assert ahead == [0, 0, with_fq, with_fq, 0, with_fq, 0, with_fq]
    assert said == [["INFO"], [], ["INFO"], [], ["WARNING"], ["INFO"], ["WARNING"], ["INFO"]]


def test_a_namespace_that_is_gone_has_no_fq() -> None:
    grants = Grants(HOST)
    grants.departure_times = True
    DepartureTimes(HOST, "eth1", 7, "/run/netns/sopatest-nowhere", grants).look()
    assert not grants.departure_times


class Iterators:
    netns = None

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.sender, self.ran, self.opened, self.meanwhile = self, list[int](), 0, meanwhile

    def prepare(self) -> int:
        self.opened += 1
        self.meanwhile()
        return os.open(os.devnull, os.O_RDONLY)

    def run(self, prepared: int) -> bytes:
        self.ran.append(time.monotonic_ns())
        os.close(prepared)
        return b""


def gate_at(slot: int, due_in: float, ahead_ns: int) -> Gate:
    """Return a gate by which data of a slot may go to the qdisc in so many seconds."""
    offset = slot * SLOT_NS - ahead_ns - time.monotonic_ns() - int(due_in * 1e9)
    return Gate(SLOT_NS, offset, 1 << 62, 0, 0, ahead_ns)


@pytest.fixture
def sender() -> Iterator[SlotSender]:
    its = SlotSender()
    yield its
    its.close()


@pytest.mark.parametrize("ahead_ns", [0, MAX_AHEAD_NS])
def test_slots_are_begun_so_long_ahead_and_each_once(sender: SlotSender, ahead_ns: int) -> None:
    host = Iterators()
    with sender._lock:  # nothing is begun before all are known
        gate = gate_at(1000, 0.05, ahead_ns)
        sender.follow(host, gate, [1000, 1001, 1004])
        sender.follow(host, gate, [1004, 1005])
    eventually(lambda: sender.begun, 4)
    for slot, ran in zip((1000, 1001, 1004, 1005), host.ran, strict=True):
        assert ran >= gate.begin_of(slot) - ahead_ns
    sender.follow(host, gate._replace(ahead_ns=0), [])
    sender.close()
    assert sender.begun == 4  # it has ended: there is no more to come


def test_slots_that_begin_together_are_each_begun_no_sooner_than_by_their_hosts_clock(sender: SlotSender) -> None:
    later, sooner = Iterators(), Iterators()
    with sender._lock:
        gate = gate_at(1000, 0.05, 0)
        sender.follow(later, gate._replace(offset_ns=gate.offset_ns - TOGETHER_NS // 2), [*range(1000, 1020)])
        sender.follow(sooner, gate, [*range(1000, 1020)])
    eventually(lambda: sender.begun, 40)
    for slot, ran in zip(range(1000, 1020), later.ran, strict=True):
        assert ran >= gate.begin_of(slot) + TOGETHER_NS // 2


def test_a_slot_that_was_due_with_departure_times_waits_for_its_begin_without(sender: SlotSender) -> None:
    later: list[Gate] = []

    def remove_fq() -> None:
        """When the iterator is open; what is left until the begin is counted from then on."""
        if not later:
            later.append(gate_at(1000, 0.5, 0))
            sender.follow(host, later[0], [])

    host = Iterators(remove_fq)
    sender.follow(host, gate_at(1000, 0, MAX_AHEAD_NS), [1000])
    eventually(lambda: sender.begun, 1)
    assert [ran >= later[0].begin_of(1000) for ran in host.ran] == [True]
    assert host.opened == 2
