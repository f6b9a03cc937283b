"""Reading an interface's qdiscs from the kernel, whether they keep departure times, and what they drop."""

import re
import socket

from sopa_ryu.agent.kernel.drops import Drops
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.qdiscs import qdiscs
from sopa_ryu.agent.slots.departure_times import instead_of_fq
from tests.helpers.frames import FAR
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.veth import Pair


@each_script(__file__, "qdiscs")
def test_script(pair: Pair, script: Script) -> None:
    """Commands on the host; ``read`` says what the kernel tells of an interface, and what it has instead of fq."""

    def handle(step: Step) -> str:
        if step.command != "read":
            pair.on_host(" ".join([step.command, *step.words]))
            return ""
        with inside(pair.host):
            found = qdiscs(socket.if_nametoindex(step.words[0]))
        rows = [f"{its.kind} {its.handle:#x} of {its.parent:#x}, default {its.default_class:#x}" for its in sorted(found)]
        return "\n".join([*rows, f"no departure times: {instead_of_fq(found)}"])

    script.play(handle)


SENT = 100


def test_drops_of_the_interfaces_queue_are_counted_and_those_of_others_are_not(pair: Pair) -> None:
    with inside(pair.host):
        counted = [Drops(socket.if_nametoindex(name), pair.host) for name in ("host0", "lo")]
    before = [one.count() for one in counted]
    pair.on_host("tc qdisc add dev host0 root tbf rate 8kbit burst 3100 limit 5000")
    pair.on_host("tc qdisc add dev host0 clsact")
    with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        for _ in range(SENT):
            sender.sendto(b"x" * 1000, (FAR, 5000))
    said = re.search(r"qdisc tbf.*?dropped (\d+)", pair.on_host("tc -s qdisc show dev host0"), re.DOTALL)
    assert said is not None
    after = [one.count() for one in counted]
    assert after[0] - before[0] == int(said[1]) > SENT / 2
    assert after[1] == before[1]
    for one in counted:
        one.close()
    assert counted[0].count() == after[0]  # closed: as last time


def test_drops_at_an_interface_that_is_gone_are_those_of_last_time(pair: Pair) -> None:
    with inside(pair.host):
        counted = Drops(socket.if_nametoindex("host0"), pair.host)
    before = counted.count()
    pair.on_host("ip link del host0")
    assert counted.count() in (0, before)
    counted.close()
