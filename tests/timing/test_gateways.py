"""For how long datagrams are lost when a gateway dies."""

from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.sopa_lab import QUICK, in_lab, run
from tests.helpers.waiting import eventually
from tests.lab.test_gateways import GATEWAYS, LEAVES, SENDERS, Stream, away, in_force, outside, restore, wait_for
from tests.timing.controls import VethPing
from tests.timing.judge import Timing

PER_SECOND = 500
"""Of each stream: three virtual switches in user space take half of a processor for 1,000."""


def test_a_gateway_that_dies(timing: Timing) -> None:
    def body(lab: SopaLab) -> None:
        dying = GATEWAYS[0]
        interface = lab.lab.interface(lab.tree.host(dying), 0)
        with outside(lab) as world:

            def lost() -> float:
                """Return for how many ms datagrams are lost: of a host that labels or of one that does not, the longer."""
                for got in world.got.values():
                    got.clear()
                with Stream(lab, SENDERS[0], PER_SECOND) as one, Stream(lab, SENDERS[1], PER_SECOND) as other:
                    wait_for(one, 150)
                    run(lab, dying, "ip", "link", "set", interface, "down")
                    wait_for(one, 150)  # to ask the controller meanwhile would take time that it needs
                    eventually(lambda: away(lab, dying) is not None)
                    in_force(lab)
                    wait_for(one, 100)
                counts = []
                for stream in (one, other):
                    last = set(range(len(stream.sent) - 20, len(stream.sent)))
                    eventually(lambda stream=stream, last=last: last <= world.arrived(stream.address))
                    counts.append(len(stream.sent) - len(world.arrived(stream.address)))
                restore(lab, dying)
                return max(counts) * 1000 / PER_SECOND

            what = "datagrams lost when a gateway dies, ms of a stream"
            timing.at_most(25, lost, what=what, control=VethPing(), tolerated=0.03, reaction=True)

    in_lab(body, LEAVES, controller_options=QUICK)
