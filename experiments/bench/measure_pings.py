"""What the pings cost a controller by which agents with several URLs notice that it is stopped (`sopa_ryu.channel.addresses`).

Run as root: ``make bench ARGS=pings``.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.bench.measure_push import Crowd
from experiments.bench.measuring import processor_seconds
from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.channel.addresses import PINGS_A_SECOND, patience_seconds, ping_seconds
from sopa_ryu.runtime.process import allow_files
from topologies import FatTree

K = 24
SECONDS, MAX_SECONDS, ROUNDS = 10.0, 60.0, 3
SPACING_SECONDS = 0.002


def measure() -> dict[str, Any]:
    """Connect an agent per host, and compare the controller's processor time with and without pings.

    Returns:
        Processor time in cores while nothing happens (``idle_cores``) and with pings at the rate that all agents of this fabric
        have together; the microseconds of a ping; and after how many seconds an agent leaves a controller that is stopped, at
        the most.
    """
    tree = FatTree(K)
    allow_files()
    openflow, rest = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        options = ["--sopa-no-switches", "--sopa-lldp-interval=0"]
        controller = ControllerProcess(K, Path(name) / "controller.log", openflow, rest, options=options)
        paths = [f"/sopa/v1/agents/{tree.ip(host)}" for host in tree.hosts()]
        with controller:
            controller.wait_connected(0)
            with Crowd(rest, paths, controller.agent_token_file.read_text().strip()) as crowd:
                crowd.connect()
                controller.wait_agents(len(paths))
                rate = len(paths) / ping_seconds(len(paths))
                idle = [_cores(controller.pid, crowd, 0.0) for _ in range(ROUNDS)]
                pinged = [_cores(controller.pid, crowd, rate) for _ in range(ROUNDS)]
    cost = statistics.median(pinged) - statistics.median(idle)
    return {
        "k": K,
        "agents": len(paths),
        "pings_a_second": round(rate),
        "limit_pings_a_second": PINGS_A_SECOND,
        "idle_cores": round(statistics.median(idle), 3),
        "pinged_cores": round(statistics.median(pinged), 3),
        "ping_us": round(1e6 * cost / rate, 1),
        "noticed_seconds": round(ping_seconds(len(paths)) + patience_seconds(len(paths)), 1),
    }


def _cores(pid: int, crowd: Crowd, rate: float) -> float:
    """Return the processor time of a process, in cores, while agents ping at a rate, until it has answered all."""
    began, spent, sent, pongs = time.monotonic(), processor_seconds(pid), 0, crowd.pongs
    while (elapsed := time.monotonic() - began) < SECONDS:
        for _ in range(int(elapsed * rate) - sent):
            crowd.ping(sent)
            sent += 1
        time.sleep(SPACING_SECONDS)  # pings are spread over the time, as those of many hosts are
    while crowd.pongs - pongs < sent:
        if time.monotonic() - began > MAX_SECONDS:
            raise RuntimeError(f"{crowd.pongs - pongs} of {sent} pings were answered")
        time.sleep(SPACING_SECONDS)
    return (processor_seconds(pid) - spent) / SECONDS
