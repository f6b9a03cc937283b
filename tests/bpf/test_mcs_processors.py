"""The eBPF programs of MCS on two processors, and random packets."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

from tests.bpf.mcs_both import KEY, MSS, option_of, received, sent
from tests.bpf.mcs_fuzz import fuzz
from tests.bpf.mcs_programs import Programs
from tests.bpf.mcs_reference import Mco

# -- two processors -------------------------------------------------------------------------------------------------------


def two_processors() -> list[int]:
    processors = sorted(range(os.cpu_count() or 1))[:2]
    assert len(processors) == 2
    return processors


def on_two_processors(work: Callable[[int], None]) -> None:
    """Run ``work(0)`` and ``work(1)`` at the same time, each on a processor of its own."""
    processors = two_processors()
    begin = threading.Barrier(2)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            os.sched_setaffinity(0, {processors[number]})
            begin.wait()
            work(number)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_two_processors_that_send_lose_no_byte(programs: Programs) -> None:
    """By processes: threads of one interpreter are hardly ever in the kernel together."""
    each, size, begun = 30_000, 100, 1000
    frame = sent(seq=begun, payload=size)
    programs.egress(sent(seq=begun))

    def send(number: int, begin: Pipe) -> None:
        os.sched_setaffinity(0, {number})
        begin.recv()
        for _ in range(each):
            programs.egress(frame)

    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(2)]  # no barrier: it needs /dev/shm, which a guest does not have
    senders = [
        context.Process(target=send, args=(number, begin))
        for number, (_, begin) in zip(two_processors(), pipes, strict=True)
    ]
    for sender in senders:
        sender.start()
    for start, _ in pipes:
        start.send(None)
    for sender in senders:
        sender.join()
    assert [sender.exitcode for sender in senders] == [0, 0]
    its = programs.connection(KEY)
    assert sum(local - begun for local in its.nlsn[:8]) == 2 * each * size


def test_two_processors_that_send_use_no_local_number_twice(programs: Programs) -> None:
    each, size, begun = 2000, 100, 1000
    outs: tuple[list[bytes], list[bytes]] = ([], [])
    programs.egress(sent(seq=begun))
    frames = [sent(seq=begun + number * size, payload=size) for number in range(2 * each)]

    def send(number: int) -> None:
        outs[number].extend(programs.egress(frame)[1] for frame in frames[number::2])

    on_two_processors(send)
    assert programs.connection(KEY).nsn == begun + 2 * each * size
    taken = [option_of(out) for out in (*outs[0], *outs[1])]
    assert len({(mco.channel, mco.lsn) for mco in taken}) == 2 * each
    assert {sum(mco.channel == channel for mco in taken) for channel in range(8)} == {2 * each // 8}


def test_two_processors_that_receive_lose_no_packet(programs: Programs) -> None:
    programs.egress(sent())
    told = 0
    for _ in range(100):
        on_two_processors(lambda number: programs.ingress(received(payload=10), repeat=100) and None)
        told += option_of(programs.egress(sent())[1]).rp
    assert told == 100 * 2 * 100


def test_two_processors_that_receive_lose_no_growth_of_the_window(programs: Programs) -> None:
    programs.egress(sent(payload=MSS))
    begun, repeat = programs.connection(KEY).ws, 100_000
    on_two_processors(
        lambda number: programs.ingress(received(mco=Mco(0, 0, 2, number, 4000, 0)), repeat=repeat) and None
    )
    assert programs.connection(KEY).ws == begun + 2 * repeat * MSS


def test_one_processor_sends_while_another_receives(programs: Programs) -> None:
    programs.egress(sent())
    each, told = 3000, 0

    def work(number: int) -> None:
        nonlocal told
        for turn in range(each):
            if number:
                programs.ingress(received(payload=10, mco=Mco(0, 0, 2, 1, 4000, 0)), repeat=3)
            else:
                told += option_of(programs.egress(sent(seq=1000 + turn, payload=1))[1]).rp

    begun = programs.connection(KEY).ws
    on_two_processors(work)
    its = programs.connection(KEY)
    assert its.ws == begun + 3 * each * 536
    assert sum(local - 1000 for local in its.nlsn[:8]) == each
    assert told + its.rp <= 3 * each


# -- random packets -------------------------------------------------------------------------------------------------------


def test_random_packets_have_the_same_outcome() -> None:
    done = fuzz(packets=20_000, seed=1)
    assert done.packets == 20_000
    # a fuzz that reaches only refusals proves nothing
    rare = {"ack_filtered", "window_lowered", "no_connection", "mco_unknown", "mco_malformed", "no_path"}
    assert all(done.counted[reason] > 20 for reason in {"scattered", "labelled", "mco_taken", *rare}), done.counted
