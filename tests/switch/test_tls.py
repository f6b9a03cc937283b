"""TLS, end to end: REST and the agents' channel, OpenFlow by Ryu's own options, and OVSDB, with real switches."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import sopa_ryu.pki
from experiments.emulation.processes import AgentProcess, ControllerProcess, ProcessError, free_ports
from sopa_ryu.cli import main
from sopa_ryu.pki import Directory, Machine
from sopa_ryu.runtime import certificates
from sopa_ryu.southbound.connection import Connection
from tests.helpers.arbiter import ArbiterProcess
from tests.helpers.certificates import Authority, Certificate
from tests.helpers.commands import ask
from tests.helpers.veth import veth_pair
from tests.helpers.waiting import Containing, eventually
from topologies import FatTree, fabric_plan
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.ovsdb import OvsdbError, Tls, transact

TREE = FatTree(4)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.sign("controller")


@pytest.fixture(scope="module")
def its(tmp_path_factory: pytest.TempPathFactory, authority: Authority, own: Certificate) -> Iterator[ControllerProcess]:
    openflow, rest = free_ports(2)
    log = tmp_path_factory.mktemp("controller") / "log"
    options = [f"--sopa-tls-cert={own.certificate}", f"--sopa-tls-key={own.key}", "--sopa-no-switches"]
    with ControllerProcess(TREE.k, log, openflow, rest, options=options, ca_file=authority.certificate) as process:
        yield process


def test_commands_over_tls(authority: Authority, its: ControllerProcess) -> None:
    trusted = {"SOPA_CA_FILE": str(authority.certificate)}
    assert ask(its, "drain", "c0_1", "--wait", "0", **trusted).stdout == "c0_1: drained\n"
    plain = {"SOPA_CONTROLLER": its.url.replace("https", "http")}
    for variables, said in (
        ({}, "--ca-file FILE, or SOPA_CA_FILE"),
        (plain, "If the controller uses TLS there"),
        ({"SOPA_CA_FILE": "/nowhere"}, "cannot be read from /nowhere"),
    ):
        done = ask(its, "status", **variables)
        assert (done.exit_code, said in done.stderr) == (1, True)


def test_an_agent_over_tls(tmp_path: Path, authority: Authority, its: ControllerProcess) -> None:
    eventually(lambda: its.get("/agents").json()["total"], 0)
    with veth_pair() as pair:
        options = [f"--state-dir={tmp_path / 'agent'}", f"--token-file={its.agent_token_file}"]
        interface = f"host0@{pair.host}"
        with AgentProcess([interface], its.url, tmp_path / "stranger.log", options) as agent:
            agent.wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in agent.log_tail(), "it refused the certificate")
        options.append(f"--ca-file={authority.certificate}")
        with AgentProcess([interface], its.url, tmp_path / "agent.log", options) as agent:
            agent.wait_until(lambda: its.get("/agents").json()["total"] == 1, "it was connected")


def test_an_arbiter_over_tls(tmp_path: Path, authority: Authority, its: ControllerProcess) -> None:
    options = [f"--secret-file={its.state_dir / 'agent-secret'}", "--rate=40"]
    with ArbiterProcess(its.url, tmp_path / "stranger.log", options) as arbiter:
        eventually(arbiter.text, Containing("CERTIFICATE_VERIFY_FAILED"))
    options.append(f"--ca-file={authority.certificate}")
    with ArbiterProcess(its.url, tmp_path / "arbiter.log", options) as arbiter:
        eventually(lambda: its.fabric().get("arbiter", {}).get("connected"))


def test_a_switch_that_makes_its_key_as_planned_is_admitted_once_its_request_is_signed(tmp_path: Path) -> None:
    pki, here = Directory(tmp_path / "pki"), tmp_path / "tls"
    with pki.opened():
        assert [*pki.make([Machine("controllers", "c1", ("127.0.0.1",))], 1, again=False, now=datetime.now(UTC))]
    openflow, rest, secure = free_ports(3)
    own = pki.path / "controllers/c1"
    options = [f"--ctl-privkey={own}/controller.key", f"--ctl-cert={own}/controller.pem", f"--ca-certs={own}/switches.pem"]
    options += [f"--ofp-ssl-listen-port={secure}", "--sopa-bind-certificates"]
    log, target = tmp_path / "controller.log", f"ssl:127.0.0.1:{secure}"
    with ControllerProcess(TREE.k, log, openflow, rest, options=options) as its, PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        planned = [
            line.replace(fabric_plan.TLS_DIRECTORY, str(here))
            for line in fabric_plan.commands(TREE, TREE.switch("c1_1"), "c1_1", "eth{port}", [target], None)
        ]
        for _ in range(2):  # the second time it leaves the key
            for line in planned:
                if " req " in line:
                    subprocess.run(line, shell=True, check=True, capture_output=True)
                elif "set-ssl" in line:
                    ovs.vsctl(*line.split()[1:])
        assert sorted(file.name for file in here.iterdir()) == ["switch.csr", "switch.key"]
        DummyFabric(TREE, ovs, target)
        eventually(log.read_text, Containing("TLS"))
        assert its.fabric()["connected"] == 0
        done = CliRunner().invoke(main, ["pki", str(pki.path), f"--sign=c1_1={here}/switch.csr"])
        assert "switches/c1_1: new" in done.stdout
        for name in ("switch.pem", "controllers.pem"):
            shutil.copy(pki.path / "switches/c1_1" / name, here)
        (here / "switch.key").touch()
        eventually(lambda: its.fabric()["connected"], 1)
        assert "c1_1" not in its.fabric()["missing"]
        eventually(lambda: len(its.fabric()["rejected"]), 19)
        reason = "e0_0 has shown a certificate for c1_1: it needs one for e0_0 or 0000000000010000"
        assert {"dpid": "0000000000010000", "reason": reason} in its.fabric()["rejected"]
        assert not [*pki.path.rglob("switch.key")]


def test_a_fabric_with_the_certificates_of_sopa_pki_which_are_renewed_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # every bridge of one Open vSwitch has its certificate, which names them all
    machines = [Machine("controllers", "c1", ("127.0.0.1",)), Machine("relays", "r1", ("127.0.0.1",))]
    machines.append(Machine("switches", "all", tuple(TREE.name(switch) for switch in TREE.switches())))
    pki = Directory(tmp_path / "pki")

    def make(again: bool = False) -> list[str]:
        return [done for _, done in pki.make(machines, 1, again=again, now=datetime.now(UTC))]

    with pki.opened():
        assert make() == ["new"] * 3
    own, switch, relay = (pki.path / name for name in ("controllers/c1", "switches/all", "relays/r1"))
    openflow, rest, database = free_ports(3)
    tls = [f"{own}/controller.key", f"{own}/controller.pem"]
    options = [f"--ctl-privkey={tls[0]}", f"--ctl-cert={tls[1]}", f"--ca-certs={own}/switches.pem", "--sopa-bind-certificates"]
    options += [f"--sopa-tls-key={tls[0]}", f"--sopa-tls-cert={tls[1]}", f"--sopa-ovsdb=ssl:*:{database}"]
    options += [f"--ofp-ssl-listen-port={openflow}", "--sopa-host-tokens-only"]
    log = tmp_path / "controller.log"
    with (
        PrivateOvs(tmp_path / "ovs", dummy=True) as ovs,
        ControllerProcess(TREE.k, log, openflow, rest, options=options, ca_file=pki.path / "ca.pem") as its,
    ):
        ovs.vsctl("set-manager", f"pssl:{database}:127.0.0.1")
        # a relay's certificate is no switch's
        ovs.vsctl("set-ssl", f"{relay}/relay.key", f"{relay}/relay.pem", f"{switch}/controllers.pem")
        DummyFabric(TREE, ovs, f"ssl:127.0.0.1:{openflow}")
        eventually(log.read_text, Containing("TLS handshake"))
        assert its.fabric()["connected"] == 0
        ovs.vsctl("set-ssl", f"{switch}/switch.key", f"{switch}/switch.pem", f"{switch}/controllers.pem")
        its.wait_connected(TREE.switch_count)
        eventually(lambda: its.fabric()["setup"]["checked"], TREE.switch_count)
        eventually(lambda: ovs.vsctl("--bare", "--columns=name", "find", "Interface", "bfd:enable=true"))

        # nor is it a controller's: the switches' database answers to controllers only
        stranger = ssl.create_default_context(cafile=own / "switches.pem")
        stranger.check_hostname = False
        stranger.load_cert_chain(relay / "relay.pem", relay / "relay.key")
        with pytest.raises(OvsdbError):
            transact(f"ssl:127.0.0.1:{database}", [], tls=Tls(lambda: stranger))

        ports = rest, openflow, database
        shown = [ssl.get_server_certificate(("127.0.0.1", port)) for port in ports]
        write = sopa_ryu.pki._write

        def write_and_have_all_look(file: Path, content: bytes, mode: int) -> None:
            write(file, content, mode)
            for port in ports:
                ssl.get_server_certificate(("127.0.0.1", port))

        monkeypatch.setattr("sopa_ryu.pki._write", write_and_have_all_look)
        with pki.opened():
            assert make(again=True) == ["renewed"] * 3
        for port, before in zip(ports, shown, strict=True):
            eventually(partial(ssl.get_server_certificate, ("127.0.0.1", port)), lambda now, before=before: now != before)
        assert its.fabric()["connected"] == TREE.switch_count  # connections stay
        ovs.appctl("bridge/reconnect")
        its.wait_connected(TREE.switch_count)
        assert "Traceback" not in log.read_text()


def test_a_certificate_that_cannot_be_used_is_said_at_the_start(tmp_path: Path, authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    for certificate, key, problem in (
        (one.certificate, other.key, "cannot be used for TLS"),
        (tmp_path / "nowhere", one.key, "cannot be used for TLS"),
    ):
        openflow, rest = free_ports(2)
        options = [f"--sopa-tls-cert={certificate}", f"--sopa-tls-key={key}"]
        with pytest.raises(ProcessError, match=problem):
            ControllerProcess(TREE.k, tmp_path / "log", openflow, rest, options=options).start()


def test_the_names_of_a_switch_are_known_after_its_connection_has_ended(authority: Authority) -> None:
    """What it has reported before may be looked at afterwards, together with what others have."""
    its = authority.sign("e0_0")
    accepting = certificates.server(its.certificate, its.key, authority.certificate)()
    calling = ssl.create_default_context(cafile=authority.certificate)
    calling.load_cert_chain(its.certificate, its.key)
    one, other = socket.socketpair()
    with ThreadPoolExecutor() as pool:
        switch = pool.submit(calling.wrap_socket, other, server_hostname="e0_0")
        channel = accepting.wrap_socket(one, server_side=True)
        with switch.result(), channel:
            connection = Connection(SimpleNamespace(socket=channel))
            channel.shutdown(socket.SHUT_RDWR)
            assert connection.certified_names() == {"e0_0"}
            assert Connection(SimpleNamespace(socket=channel)).certified_names() is None
