"""The programs under what their systemd units allow them: a unit that is too tight would show only on the user's machine."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address
from pathlib import Path

import httpx
import pytest

from experiments.emulation.processes import AgentProcess, ChildProcess, ControllerProcess, RelayProcess, SpreaderProcess, free_ports
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.paths.path_table import Label
from sopa_ryu.arbiter.build import build
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine
from tests.helpers.arbiter import ArbiterProcess, asking
from tests.helpers.channel_server import channel_server
from tests.helpers.frames import INTER_POD, tcp, word_of
from tests.helpers.relay import Leader, agent, state_dir
from tests.helpers.slot_arbiter import SlotArbiter
from tests.helpers.veth import ALL, PEER_ADDRESS, frames, raw_socket, veth_pair
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from topologies import FatTree
from topologies.lab.etcd import PrivateEtcd
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

SYSTEMD = Path(__file__).parents[2] / "deploy/systemd"
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: make install")


def under(unit: str) -> list[str]:
    return [sys.executable, "-m", "tests.helpers.sandbox", str(SYSTEMD / unit)]


def ends_well(part: ChildProcess) -> None:
    """End a part as systemd does; it has wanted nothing that its unit does not allow."""
    assert part.stop(signal.SIGTERM) == 143  # SuccessExitStatus
    log = part.log.read_text()
    assert "Traceback" not in log
    assert "not permitted" not in log.lower()


@pytest.mark.parametrize(
    ("unit", "command", "said"),
    [
        ("sopa-agent@.service", [sys.executable, "-c", "import os; os.chroot('/')"], "PermissionError"),
        ("sopa-controller.service", ["unshare", "--net", "true"], "Operation not permitted"),
    ],
)
def test_the_sandbox_refuses_what_the_unit_does_not_allow(unit: str, command: list[str], said: str) -> None:
    assert said in subprocess.run([*under(unit), *command], capture_output=True, text=True, check=False).stderr


def test_the_controller_does_all_it_does(tmp_path: Path) -> None:
    tree = FatTree(4)
    openflow, rest, database = free_ports(3)
    options = [f"--sopa-ovsdb=tcp:*:{database}"]
    its = ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=options)
    its.command[:0] = under("sopa-controller.service")
    with its, PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        ovs.vsctl("set-manager", f"ptcp:{database}:127.0.0.1")
        DummyFabric(tree, ovs, its.openflow)
        its.wait_connected(tree.switch_count)
        eventually(lambda: ovs.vsctl("--bare", "--columns=name", "find", "Interface", "bfd:enable=true"))
        assert its.change("PUT", "/drains/c0_0").status_code == 200
        eventually(lambda: its.get("/switches/e0_0/rules").json()["right"])  # the drain is in force
        assert its.get("/process").json()["open_files"] > 20
        assert httpx.get(f"{its.url}/metrics").status_code == 200
        ends_well(its)


def test_the_arbiter_grants_slots(tmp_path: Path) -> None:
    build()
    openflow, rest = free_ports(2)
    with ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=["--sopa-no-switches"]) as its:
        secret = its.state_dir / "agent-secret"
        options = [f"--secret-file={secret}", "--slot=4", "--rate=10"]
        arbiter = ArbiterProcess(its.url, tmp_path / "arbiter.log", options)
        arbiter.command[:0] = under("sopa-arbiter.service")
        with arbiter, asking([IPv4Address("10.0.0.2")], arbiter.port, secret.read_text().strip()) as [host]:
            host.want(IPv4Address("10.1.0.2"), 20_000)
            eventually(host.left, 0)
            ends_well(arbiter)


def test_a_relay_serves_agents_and_readers(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with PrivateEtcd(tmp_path / "etcd", 1) as etcd:
        engine = Engine(parse(etcd.address()), timeout=PATIENCE_SECONDS)
        Leader(engine).commit(7, 1)
        engine.close()
        relay = RelayProcess(etcd.address(), tmp_path / "relay.log", port, state_dir(tmp_path / "state"))
        relay.command[:0] = under("sopa-relay.service")
        with relay:
            eventually(lambda: relay.get("/sopa/v1/failures").status_code, 200)
            with agent(relay.url, "10.0.0.2") as its:
                assert its.follow() == (7, 1)
            assert relay.get("/metrics").status_code == 200
            ends_well(relay)


@pytest.mark.switch
def test_an_agent_labels_and_takes_over_what_a_killed_one_left(tmp_path: Path) -> None:
    with veth_pair() as pair:
        token = tmp_path / "token"
        token.write_text("token\n")
        inside = ["nsenter", f"--net={pair.host}"]
        # the agents that begin granted slots carry labels in addresses
        options = [f"--state-dir={tmp_path / 'agent'}", f"--token-file={token}", "--carrier=option"]
        # it works without a controller
        agent = AgentProcess(["host0"], "http://127.0.0.1:9", tmp_path / "agent.log", options)
        agent.command[:0] = [*inside, *under("sopa-agent@.service")]
        agent.log.touch()
        for end in (lambda: agent.stop(signal.SIGKILL), lambda: agent.stop(signal.SIGINT), lambda: ends_well(agent)):
            agent.log.write_text("")
            agent.start()
            agent.wait_until(lambda: "no controller at" in agent.log.read_text(), "it had taken the interface")
            assert pair.on_host("sysctl -n net.ipv4.tcp_reordering").strip() == "10"
            end()
        assert "the settings of 1 interfaces are put back" in agent.log.read_text()
        assert pair.on_host("sysctl -n net.ipv4.tcp_reordering").strip() == "3"


@pytest.mark.switch
def test_the_parser_is_attached_and_detached() -> None:
    with veth_pair() as pair:
        command = ["nsenter", f"--net={pair.peer}", *under("sopa-parser@.service"), sys.executable, "-m", "sopa_ryu.cli"]
        for verb, said in (
            ("attach", "attached, native mode"),
            ("attach", "attached, native mode"),
            ("detach", "detached"),
            ("detach", "there was none"),
        ):
            words = [*command, "parser", verb, "--iface", "peer0"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (0, f"peer0: {said}\n"), done.stderr


@pytest.mark.switch
def test_a_spreader_follows_the_controller_and_frees_its_port(tmp_path: Path) -> None:
    tree, (openflow, rest) = FatTree(4), free_ports(2)
    with veth_pair() as pair, ExitStack() as opened:
        pair.on_peer("ip link set lo up")
        opened.enter_context(inside(pair.peer))  # all that is started from here on
        its = opened.enter_context(ControllerProcess(tree, tmp_path / "controller.log", openflow, rest))
        DummyFabric(tree, opened.enter_context(PrivateOvs(tmp_path / "ovs", dummy=True)), its.openflow)
        its.wait_connected(tree.switch_count)
        spreaders = SpreaderProcess(tree, {"e0_0": ["peer0"]}, its.url, tmp_path / "spreader.log")
        spreaders.command[:0] = under("sopa-spreader.service")
        opened.enter_context(spreaders)
        wire = opened.enter_context(raw_socket(pair.peer, "peer0", ALL))
        host = opened.enter_context(raw_socket(pair.host, "host0", 0))

        def taken() -> set[Label | None]:
            for ident in range(8):
                host.send(bytes(6) + bytes.fromhex("02539e04ff07") + tcp(ident=ident)[12:])
            return {word_of(frame) for frame in frames(wire, 0.2) if frame[12:14] == b"\x08\x00"}

        eventually(taken, set(INTER_POD))
        assert its.change("PUT", "/drains/a0_0-c0_1").status_code == 200
        eventually(taken, set(INTER_POD) - {(0, 1)})
        its.stop(signal.SIGKILL)
        assert taken() == set(INTER_POD) - {(0, 1)}
        eventually(lambda: "no failures from controller" in spreaders.log.read_text())
        ends_well(spreaders)
        assert taken() == {(0xFF, 7)}


@pytest.mark.switch
def test_an_agent_begins_granted_slots(tmp_path: Path) -> None:
    [metrics] = free_ports(1)
    with veth_pair() as pair, ExitStack() as opened:
        with inside(pair.peer):
            server = opened.enter_context(socket.create_server((PEER_ADDRESS, 0)))
        with inside(pair.host):
            # long slots, for which a busy machine does not come too late
            arbiter = opened.enter_context(SlotArbiter(slot_ns=50_000_000, mbit=17, lease_ms=20_000))
            client = socket.create_connection(server.getsockname())
            its = opened.enter_context(channel_server())
        far, _ = server.accept()
        for end in (client, far):
            opened.callback(end.close)
            end.setblocking(False)
        options = [f"--state-dir={tmp_path / 'agent'}", f"--metrics-port={metrics}", "--policy=cfr"]
        log = tmp_path / "agent.log"
        agent = AgentProcess(["host0"], its.url, log, [*options, f"--arbiter=127.0.0.1:{arbiter.port}"])
        # in the network namespace in which it starts, as under systemd
        agent.command[:0] = ["nsenter", f"--net={pair.host}", *under("sopa-agent@.service")]

        def used() -> float:
            with suppress(BlockingIOError):
                client.send(bytes(100_000))
            with suppress(BlockingIOError):
                far.recv(1 << 20)
            with inside(pair.host), suppress(httpx.TransportError):
                text = httpx.get(f"http://127.0.0.1:{metrics}/metrics", trust_env=False).text
                return sum(map(float, re.findall(r'^sopa_agent_cfr_slots_total{.*"used"} (\S+)$', text, re.MULTILINE)))
            return 0

        with agent:
            eventually(used)
            assert agent.stop(signal.SIGTERM) == 143  # SuccessExitStatus
        assert "cannot be begun" not in log.read_text()
