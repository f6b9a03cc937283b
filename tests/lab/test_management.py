"""The management network of a lab with several controllers: who reaches whom, also while machines are cut off."""

import os
import socket
import subprocess
from ipaddress import IPv4Address
from socketserver import BaseRequestHandler, TCPServer
from threading import Thread

import pytest

from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import in_isolation
from topologies.lab.batch_net import LabError
from topologies.lab.management import ROOT, ManagementNetwork, Peer, Way

GONE_SECONDS = 1
"""So long an answer is awaited that must not come."""
OPEN, OTHER = 7000, 7001


def reaches(network: ManagementNetwork, sender: str, to: IPv4Address, seconds: int = 60) -> bool:
    command = [*network.enter(sender), "ping", "-c", "1", "-W", str(seconds), str(to)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Echo(BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"here" + self.request.recv(9))


def answers(network: ManagementNetwork, name: str, port: int, seconds: float = 60.0) -> bool:
    """Return True if a server on a machine answers the lab's root namespace."""
    try:
        with socket.create_connection((str(network.address(name)), port), seconds) as channel:
            channel.sendall(b"?")
            return channel.recv(9) == b"here?"
    except OSError:
        return False


@in_isolation
def test_a_machine_is_cut_off_from_some_and_reaches_the_others() -> None:
    before = os.listdir("/sys/class/net")
    with ManagementNetwork(["one", "two", "three"]) as network:
        address = network.address
        pairs = [(a, b) for a in network.names for b in network.names if a != b]
        assert [pair for pair in pairs if not reaches(network, pair[0], address(pair[1]))] == []
        assert reaches(network, "one", ROOT.ip)
        for port in (OPEN, OTHER):
            with inside(network.netns("one")):
                server = TCPServer(("", port), Echo)
            Thread(target=server.serve_forever, daemon=True).start()
            assert answers(network, "one", port)

        network.cut("one", [Peer(address("two"))])
        assert network.cut_machines() == ["one"]
        cut = [("one", "two"), ("two", "one")]
        assert [pair for pair in cut if reaches(network, pair[0], address(pair[1]), GONE_SECONDS)] == []
        assert [pair for pair in pairs if pair not in cut and not reaches(network, pair[0], address(pair[1]))] == []
        network.cut("one", [Peer(ROOT.ip, OPEN)], [Way.SENT])
        assert not answers(network, "one", OPEN, GONE_SECONDS)
        assert answers(network, "one", OTHER)
        network.heal("one")
        assert network.cut_machines() == []
        assert reaches(network, "one", address("two"))
        assert answers(network, "one", OPEN)

        network.cut("one", [Peer(ROOT.ip, OPEN)], [Way.RECEIVED])
        assert not answers(network, "one", OPEN, GONE_SECONDS)
        assert answers(network, "one", OTHER)
    assert os.listdir("/sys/class/net") == before


def test_outside_a_lab_nothing_is_made() -> None:
    with pytest.raises(LabError, match="inside isolation"):
        ManagementNetwork(["one"]).__enter__()
    with pytest.raises(ValueError, match="at most 13 characters, unlike a-name-that-is-long"):
        ManagementNetwork(["a-name-that-is-long"])
