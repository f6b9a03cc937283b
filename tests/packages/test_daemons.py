"""The daemons of the packages, as their units start them: a controller with real switches, an agent, kill and removal.

Under systemd, with an upgrade, `guest.sh` has them.
"""

import re
import shlex
import shutil
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from experiments.emulation.processes import ChildProcess
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.pki import Directory, Machine
from tests.helpers.memory import resident_mib
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, arrives, raw_socket, veth_pair
from tests.helpers.waiting import Containing, eventually
from tests.packages.roots import Root
from topologies import FatTree
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

URL = "https://127.0.0.1:8080"
MAX_RESIDENT_MIB = 60
LABEL = bytes.fromhex("02539e04")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


def started(root: Root, unit: str, log: Path, netns: str, user: str = "root", instance: str = "") -> ChildProcess:
    """The process that a unit starts, in a network namespace."""
    text = (root.path / "lib/systemd/system" / unit).read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", text, re.M)
    environment = {}
    for file in re.findall(r"^EnvironmentFile=(.*)$", text, re.M):
        environment = dict(re.findall(r"^(\w+)=(.*)$", (root.path / file[1:]).read_text(), re.M))
    line = line.replace("%i", instance)
    for name, value in environment.items():
        line = line.replace(f"${{{name}}}", value).replace(f"${name}", value)
    given = [f"{name}={value}" for name, value in environment.items() if value]
    return ChildProcess(root.command("env", *given, *shlex.split(line), netns=netns, user=user), log)


@contextmanager
def fabric(root: Root, pair: Pair, tmp_path: Path) -> Iterator[ChildProcess]:
    """The packaged controller as user sopa, with 20 switches of Open vSwitch, in the host's namespace."""
    its = started(root, "sopa-controller.service", tmp_path / "controller.log", pair.host, user="sopa")
    with its, inside(pair.host), PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        ovs.vsctl(
            "set-ssl",
            *(str(root.path / f"root/pki/switches/all/{file}") for file in ("switch.key", "switch.pem", "controllers.pem")),
        )
        DummyFabric(FatTree(4), ovs, "ssl:127.0.0.1:6653")
        eventually(lambda: connected(root, its), 20, seconds=90)
        yield its


def certify(root: Root, host: Root) -> None:
    """Give a controller and a host what the packaged configuration asks for; all bridges of one machine have one certificate."""
    pki, tree = Directory(root.path / "root/pki"), FatTree(4)
    root.run("sopa", "pki", "/root/pki", "--controller=c1=127.0.0.1")
    every = Machine("switches", "all", tuple(tree.name(switch) for switch in tree.switches()))
    assert [done for _, done in pki.make([every], 1, again=False, now=datetime.now(UTC))] == ["", "new"]
    for file in (pki.path / "controllers/c1").iterdir():
        shutil.copy(file, root.path / "etc/sopa/tls")
    (host.path / "etc/sopa/tls").mkdir()
    shutil.copy(pki.path / "ca.pem", host.path / "etc/sopa/tls")


def get(root: Root, path: str) -> Any:
    context = ssl.create_default_context(cafile=root.path / "root/pki/ca.pem")
    return httpx.get(f"{URL}/sopa/v1{path}", trust_env=False, verify=context).json()


def connected(root: Root, controller: ChildProcess) -> object:
    """How many switches have connected; what the controller says if it does not answer yet."""
    try:
        body = get(root, "/fabric")
    except httpx.TransportError:
        return controller.log_tail()
    return body["connected"] if body["settled"] else body


def agents(root: Root) -> tuple[int, int]:
    """How many agents the controller has, and how many of them are behind."""
    body = get(root, "/agents")
    return body["total"], body["behind"]


def labels(pair: Pair) -> set[bytes]:
    """The labels of sixteen datagrams of a flow, as they leave the host."""
    capture = raw_socket(pair.peer, "peer0", ALL)
    with capture, inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(16):
            sender.sendto(b"x", (PEER_ADDRESS, 9))
        found: list[bytes] = []
        while len(found) < 16:  # between them are probes
            assert arrives(capture, 30)
            frame, address = capture.recvfrom(65536)
            if address[2] != socket.PACKET_OUTGOING and frame[36:38] == b"\0\x09":
                found.append(frame)
    return {frame[10:12] for frame in found if frame[6:10] == LABEL}


def changes(pair: Pair) -> dict[str, str]:
    links = pair.on_host("ip -o link show")
    return {
        "threshold": pair.on_host("sysctl -n net.ipv4.tcp_reordering").strip(),
        "devices": " ".join(sorted(re.findall(r"^\d+: (\w+)", links, re.M))),
        "qdisc": str("clsact" in pair.on_host("tc qdisc show dev host0")),
        "segments": " ".join(re.findall(r"gso_max_segs (\d+)", pair.on_host("ip -d link show dev host0"))),
    }


def test_an_agent_follows_a_controller_of_the_packages(
    pair: Pair, new_root: Callable[..., Root], debs: dict[str, Path], tmp_path: Path
) -> None:
    upper, host = new_root(), new_root()
    upper.install(debs["sopa-controller"])
    host.install(debs["sopa-agent"])
    before = changes(pair)
    assert before["threshold"] == "3"
    environment = host.path / "etc/sopa/agent.env"
    environment.write_text(
        environment.read_text().replace("https://192.0.2.1:8080", URL).replace("OPTIONS=", "OPTIONS=--spray all")
    )

    certify(upper, host)
    asked = ("--controller", URL, "--ca-file", "/etc/sopa/tls/ca.pem")
    with fabric(upper, pair, tmp_path) as controller:
        assert (upper.path / "var/lib/sopa/token").stat().st_mode & 0o777 == 0o600
        token = upper.run("sopa", "token", "h0_0_2").stdout
        (host.path / "etc/sopa/agent-token").write_text(token)
        (host.path / "etc/sopa/agent-token").chmod(0o600)
        agent = started(host, "sopa-agent@.service", tmp_path / "agent.log", pair.host, instance="host0")
        agent.start()
        eventually(lambda: agents(upper), (1, 0))
        assert changes(pair) != before
        assert len(labels(pair)) == 4
        print(f"resident: agent {resident_mib(agent.pid)} MiB, controller {resident_mib(controller.pid)} MiB")
        assert resident_mib(agent.pid) < MAX_RESIDENT_MIB

        upper.run("sopa", "drain", "c0_0", *asked, netns=pair.host)
        eventually(lambda: len(labels(pair)), 3)

        # a killed agent's labels stay until the package is removed
        agent.stop(signal.SIGKILL)
        assert len(labels(pair)) == 3
        said = host.apt("purge", "sopa-agent", netns=pair.host)
        assert "host0: what a killed agent had changed is put back" in said
        assert changes(pair) == before
        assert labels(pair) == set()
        assert [file.name for file in (host.path / "etc/sopa").rglob("*")] == ["tls", "ca.pem"]  # no package's
        assert not (host.path / "run/sopa").exists()

        assert controller.stop(signal.SIGTERM) == 143
    eventually(controller.log.read_text, Containing("sopa"))
    assert "Traceback" not in controller.log.read_text() + agent.log.read_text()
    assert (upper.path / "var/lib/sopa/drains.json").exists()
    upper.apt("purge", "sopa-controller")
    assert not (upper.path / "var/lib/sopa").exists()
