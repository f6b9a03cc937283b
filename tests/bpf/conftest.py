"""Programs and throwaway network namespaces for the tests of the eBPF agent; without root they are skipped."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.labeller import Labeller


@pytest.fixture(autouse=True, scope="session")
def objects() -> None:
    """Root, and compiled eBPF objects."""
    if os.geteuid():
        pytest.skip("BPF needs root")
    build()


@pytest.fixture
def make_tagger() -> Iterator[Callable[..., Labeller]]:
    """Makes taggers of the loopback interface, loaded and never attached."""
    with ExitStack() as stack:

        def make(**options: int) -> Labeller:
            labeller = Labeller("lo", **options)  # type: ignore[arg-type]
            stack.callback(labeller.close)
            return labeller

        yield make


@pytest.fixture
def labeller(make_tagger: Callable[..., Labeller]) -> Labeller:
    """A loaded program without a path table."""
    return make_tagger()


def run(command: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


class Pair:
    """Two namespaces joined by a veth pair: the host's end is ``host0``, 10.0.0.2, the peer's ``peer0``, 10.2.1.3."""

    def __init__(self, host: str, peer: str) -> None:
        self.host, self.peer = f"/run/netns/{host}", f"/run/netns/{peer}"
        self._host, self._peer = host, peer

    def on_host(self, command: str) -> str:
        """Run a command in the host's namespace."""
        return run(f"ip netns exec {self._host} {command}")

    def on_peer(self, command: str) -> str:
        """Run a command in the peer's namespace."""
        return run(f"ip netns exec {self._peer} {command}")


@contextmanager
def veth_pair() -> Iterator[Pair]:
    """A `Pair`, removed afterwards."""
    host, peer = (f"sopatest-{end}-{uuid.uuid4().hex[:8]}" for end in "hp")
    try:
        for name in (host, peer):
            run(f"ip netns add {name}")
            run(
                f"ip netns exec {name} sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
            )
            run(f"ip -n {name} link set lo up")
        run(f"ip link add host0 mtu 9000 netns {host} type veth peer name peer0 mtu 9000 netns {peer}")
        for name, interface, address in ((host, "host0", "10.0.0.2/8"), (peer, "peer0", "10.2.1.3/8")):
            run(f"ip -n {name} addr add {address} dev {interface}")
            run(f"ip -n {name} link set {interface} up")
        yield Pair(host, peer)
    finally:
        for name in (host, peer):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two namespaces joined by a veth pair."""
    with veth_pair() as made:
        yield made
