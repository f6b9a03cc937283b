"""Probes through a fabric of Open vSwitch switches: out and back over the switches that they name."""

from __future__ import annotations

import secrets
import socket
import time

from experiments.emulation.sopa_lab import SopaLab
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import link_attributes
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.probing.frames import Ends, ProbeFrame, read
from sopa_ryu.agent.probing.packet_socket import ProbeSocket
from sopa_ryu.channel.probes import Stream
from tests.helpers.probe_frames import GATEWAY
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually
from topologies import Level

NEAR, FAR = "h0_0_2", "h2_1_3"
COUNT = 200


def test_probes_take_the_same_core_switch_out_and_back() -> None:
    in_lab(_body, probes=True, carrier=Carrier.OPTION)  # other labs of the tests have the carrier mac


def _body(lab: SopaLab) -> None:
    tree = lab.tree
    near, far = tree.host(NEAR), tree.host(FAR)
    netns, ifname = lab.lab.netns(near), lab.lab.interface(near, 0)
    with inside(netns):
        mac = bytes.fromhex(link_attributes.mac(socket.if_nametoindex(ifname)).replace(":", ""))
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    ends = Ends(tree.ip(near), mac, GATEWAY, lab.carrier, secrets.randbits(32))
    sender = ProbeSocket(ifname, netns)
    with wire:
        wire.bind((ifname, 0x0003))
        wire.settimeout(10)
        for ssid, (up1, up2) in enumerate([(0, 1), (1, 0)]):
            before = lab.lab.port_packets(Level.CORE)
            frame = ProbeFrame(ends, Stream(tree.ip(far), up1, up2), ssid)
            answers = set()
            for number in range(COUNT):
                sender.send(frame.numbered(number, time.monotonic_ns()))
                while True:  # the agent's own program refuses it, behind this socket
                    packet = read(wire.recv(2000))
                    if (
                        packet is not None
                        and packet.sender_number == number
                        and packet.ssid == ssid
                        and not packet.flags
                    ):
                        break
                answers.add((packet.label, packet.source, packet.number - number))
            assert answers == {((up1, up2), tree.ip(far), 0)}

            def taken(before: dict[str, int] = before) -> dict[str, int]:
                return {name: count - before[name] for name, count in lab.lab.port_packets(Level.CORE).items()}

            counted = eventually(taken, lambda its: sum(its.values()) >= 2 * COUNT)
            # the agents' own probes cross all core switches alike
            named = counted.pop(f"c{up1}_{up2}")
            assert named >= max(counted.values()) + COUNT
    sender.close()
