"""The arbiter beside real traffic of a host that does not take part; hosts that send in slots are in tests/bpf and tests/timing."""

import time

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from sopa_ryu.arbiter.build import build
from tests.helpers.arbiter import ArbiterProcess, asking
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually
from topologies import Clos

MBIT, PAYLOAD, FRAME = 4.0, 1200, 1242


def test_a_host_that_does_not_take_part_has_its_traffic_kept_free() -> None:
    build()

    def body(lab: SopaLab) -> None:
        secret_file = lab.controller.state_dir / "agent-secret"
        asks, sender, receiver = (lab.tree.host(name) for name in ("h0_0_2", "h0_0_3", "h0_1_2"))  # without agents
        options = ["--slot=3.2", f"--secret-file={secret_file}"]
        half = round(MBIT * 1e6 / 2 / (8 * FRAME))
        with (
            ArbiterProcess(lab.controller.url, lab.directory / "arbiter.log", options) as arbiter,
            UdpStream(lab.lab, sender, receiver, half, PAYLOAD),
            asking([lab.tree.ip(asks)], arbiter.port, secret_file.read_text().strip()) as [host],
        ):
            host.want(lab.tree.ip(receiver), 10**9)

            def share() -> float:
                """Return the share of slots that are granted to it in some seconds."""
                before, begin = len(host.slots), time.monotonic()
                time.sleep(1.5)  # some 470 slots: a share is known to a few percent
                return (len(host.slots) - before) / ((time.monotonic() - begin) / 0.0032)

            # the whole link, and half of it once the controller has measured the other: it polls every 5 s, as the arbiter does
            eventually(share, lambda found: found > 0.9)
            eventually(share, lambda found: 0.4 < found < 0.6, seconds=120)

    in_lab(body, Clos(1, 2, 2, 0, 2), rate_mbit=MBIT, agents=False)
