"""An agent's settings and program at the host's end of a pair, at work and killed; IPv6 and a connection there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowrules.label import Carrier
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.label.spray import EVERYTHING, Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PathTable
from tests.helpers.frames import FAR6, HERE6, table
from tests.helpers.veth import PEER_ADDRESS, Pair
from tests.helpers.waiting import PATIENCE_SECONDS


@contextmanager
def labelling(
    pair: Pair,
    state_dir: Path,
    carrier: Carrier = Carrier.MAC,
    *,
    segments: int = 1,
    paths: PathTable | None = None,
    spray: Spray = EVERYTHING,
) -> Iterator[Labeller]:
    settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, overhead=carrier.overhead, segments=segments)
    with settings:
        options = {"fabric_mtu": settings.fabric_mtu, "cut_by": settings.cut_by, "on_clsact": settings.note_clsact, "spray": spray}
        with Labeller("host0", netns=pair.host, carrier=carrier, owns_clsact=settings.clsact_added, **options) as made:
            made.swap(paths or table())
            made.attach()
            yield made


def kill_agent(pair: Pair, state_dir: Path, carrier: Carrier) -> bool:
    """Leave what SIGKILL leaves: settings, the state file, a lock without an owner, and the program; return if it had inherited."""
    settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, overhead=carrier.overhead)
    settings.apply()
    owns = {"owns_clsact": settings.clsact_added, "on_clsact": settings.note_clsact}
    labeller = Labeller("host0", netns=pair.host, carrier=carrier, **owns)
    labeller.load()
    inherited = labeller.inherits()
    labeller.swap(table())
    labeller.attach()
    abandon(settings)
    labeller.close()  # as the kernel closes a killed agent's descriptors
    return inherited


def abandon(settings: HostSettings) -> None:
    """Release the lock of applied settings, as the kernel does at a process' end."""
    assert settings._saved is not None
    settings._saved.release()


def with_ipv6(pair: Pair) -> None:
    """Give the host's end `HERE6` and the peer's `FAR6`."""
    for on, end, address in ((pair.on_host, "host0", HERE6), (pair.on_peer, "peer0", FAR6)):
        on(f"sysctl -qw net.ipv6.conf.{end}.disable_ipv6=0")
        on(f"ip address add {address}/48 dev {end} nodad")


@contextmanager
def connection(pair: Pair, address: str = PEER_ADDRESS, port: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection from the host to an address of the peer; the host's end and the peer's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(pair.peer), socket.create_server((address, port), family=family) as server:
        with inside(pair.host):
            client = socket.create_connection(server.getsockname()[:2], PATIENCE_SECONDS)
        end = server.accept()[0]
    with client, end:
        yield client, end
