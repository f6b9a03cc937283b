"""The arbiter beside real traffic of a host that does not take part; hosts that send in slots are in tests/bpf and tests/timing."""

from __future__ import annotations

import subprocess
import sys
import time

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.arbiter.build import build
from tests.helpers.arbiter import ArbiterProcess, AskingHost, converse
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually
from topologies import Clos

MBIT = 4.0
SENDER, RECEIVER, ASKING = "h0_0_3", "h0_1_2", "h0_0_2"
"""Hosts without agents; the last one asks for slots."""
SEND = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin, sent = time.monotonic(), 0
while True:
    sender.sendto(bytes(1200), (sys.argv[1], 9000))
    sent += 1242 * 8
    time.sleep(max(0.0, begin + sent / float(sys.argv[2]) - time.monotonic()))
"""


def test_a_host_that_does_not_take_part_has_its_traffic_kept_free() -> None:
    build()

    def body(lab: SopaLab) -> None:
        secret_file = lab.controller.state_dir / "agent-secret"
        options = ["--slot=3.2", f"--secret-file={secret_file}"]
        sender, receiver = (lab.tree.host(name) for name in (SENDER, RECEIVER))
        command = ["nsenter", f"--net={lab.lab.netns(sender)}", sys.executable, "-c", SEND]
        with (
            ArbiterProcess(lab.controller.url, lab.directory / "arbiter.log", options) as arbiter,
            subprocess.Popen([*command, str(lab.tree.ip(receiver)), str(MBIT * 1e6 / 2)]) as traffic,
        ):
            try:
                arbiter.wait_until(lambda: "INFO term " in arbiter.text(), "the controller had given a term")
                asking = AskingHost(lab.tree.ip(lab.tree.host(ASKING)), arbiter.port, secret_file.read_text().strip())
                asking.want(lab.tree.ip(receiver), 10**9)

                def share() -> float:
                    """Return the share of slots that are granted to it in some seconds."""
                    converse([asking], 0.2)  # what was granted before
                    asking.read()
                    asking.grants.clear()
                    begin = time.monotonic()
                    converse([asking], 1.5)
                    slots = (time.monotonic() - begin) / 0.0032
                    return sum(len(grant.entries) for grant in asking.grants) / slots

                # the whole link, and half of it once the controller has measured the other: it polls every 5 s, as the arbiter does
                eventually(share, lambda found: found > 0.9)
                eventually(share, lambda found: 0.4 < found < 0.6, seconds=120)
                asking.close()
            finally:
                traffic.kill()

    in_lab(body, Clos(1, 2, 2, 0, 2), rate_mbit=MBIT, agents=False)
