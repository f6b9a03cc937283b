"""The eBPF programs of MCS on two processors, and random packets."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from tests.bpf.mcs_both import KEY, MSS, option_of, received, sent
from tests.bpf.mcs_fuzz import fuzz
from tests.bpf.mcs_programs import Programs
from tests.bpf.mcs_reference import Mco

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


def test_two_processors_that_send_lose_no_byte(programs: Programs) -> None:
    each, frame = 30_000, sent(seq=BEGUN, payload=SIZE)
    programs.egress(sent(seq=BEGUN))
    on_two_processors(*[lambda: [programs.egress(frame) for _ in range(each)] and None] * 2)
    assert sum(local_numbers(programs)) == 2 * each * SIZE


def test_two_processors_that_send_use_no_local_number_twice(programs: Programs) -> None:
    each = 2000
    programs.egress(sent(seq=BEGUN))
    frames = [sent(seq=BEGUN + number * SIZE, payload=SIZE) for number in range(2 * each)]

    def send(which: slice) -> list[bytes]:
        return [programs.egress(frame)[1] for frame in frames[which]]

    outs = on_two_processors(lambda: send(slice(0, None, 2)), lambda: send(slice(1, None, 2)))
    assert programs.connection(KEY)["nsn"] == BEGUN + 2 * each * SIZE
    taken = [option_of(out) for out in (*outs[0], *outs[1])]
    assert len({(mco.channel, mco.lsn) for mco in taken}) == 2 * each
    assert {sum(mco.channel == channel for mco in taken) for channel in range(8)} == {2 * each // 8}


def test_two_processors_that_receive_lose_no_packet(programs: Programs) -> None:
    programs.egress(sent())
    told = 0
    for _ in range(20):
        on_two_processors(*[lambda: programs.ingress(received(payload=10), repeat=100)] * 2)
        told += option_of(programs.egress(sent())[1]).rp
    assert told == 20 * 2 * 100


def test_two_processors_that_receive_lose_no_growth_of_the_window(programs: Programs) -> None:
    programs.egress(sent(payload=MSS))
    begun, repeat = programs.connection(KEY)["ws"], 100_000
    frames = [received(mco=Mco(0, 0, 2, number, 4000, 0)) for number in range(2)]
    on_two_processors(*[lambda frame=frame: programs.ingress(frame, repeat=repeat) for frame in frames])
    assert programs.connection(KEY)["ws"] == begun + 2 * repeat * MSS


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
    assert its["ws"] == begun + 3 * each * 536
    assert sum(local_numbers(programs)) == each
    assert told + its["rp"] <= 3 * each


def test_random_packets_have_the_same_outcome() -> None:
    done = fuzz(packets=20_000, seed=1)
    # a fuzz that reaches only refusals proves nothing
    rare = {"ack_filtered", "window_lowered", "no_connection", "mco_unknown", "mco_malformed", "no_path"}
    assert all(done[reason] > 20 for reason in {"scattered", "labelled", "mco_taken", *rare}), done
