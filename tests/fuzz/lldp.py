"""Garbled LLDP frames at switch ports."""

import random

from sopa_ryu.southbound import lldp
from tests.fuzz.garble import garbled
from tests.fuzz.target import Kind, Target
from topologies import Switch

MIN_FRAME, MAX_FRAME = 14, 1500
HEADER = 14


class Lldp(Kind):
    """Mutated probes, which arrive at random switch ports."""

    def __init__(self, target: Target, draw: random.Random) -> None:
        super().__init__(target, draw)
        tree = target.tree
        ports = [(switch, port) for switch in tree.switches() for port in tree.ports(switch)]
        self.ports = [(switch, port) for switch, port in ports if isinstance(tree.neighbour(switch, port), Switch)]

    def step(self) -> bytes:
        tree, draw = self.target.tree, self.draw
        switch, port = draw.choice(self.ports)
        sender, sender_port = draw.choice(self.ports)
        frame = lldp.frame(tree.dpid(sender), sender_port)
        head = frame[:HEADER] if draw.random() < 0.9 else garbled(draw, frame[:HEADER])
        frame = (head + garbled(draw, frame[HEADER:]))[:MAX_FRAME].ljust(MIN_FRAME, b"\0")
        self.target.fabric.ovs.appctl("netdev-dummy/receive", f"{tree.name(switch)}-eth{port}", frame.hex())
        return frame

    def close(self) -> None:
        """Unplug and plug every cable, after which no false probe counts that was heard before."""
        dummy = self.target.fabric.dummy
        assert dummy
        for up in (False, True):
            for switch, port in self.ports:
                dummy.set_port(switch, port, up)
