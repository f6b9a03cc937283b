"""The ryu-manager command. Ryu patches the standard library on import, so it runs in processes of its own."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from experiments.emulation.processes import free_ports
from sopa_ryu import options
from tests.helpers.certificates import Authority
from tests.helpers.waiting import Containing, eventually
from topologies import FatTree, Host

APP = """
from ryu.app.wsgi import ControllerBase, Response, WSGIApplication, route, websocket
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.cfg import CONF
from ryu.lib import hub

class Api(ControllerBase):
    @route("api", "/k", methods=["GET"])
    def k(self, req, **kwargs):
        return Response(content_type="text/plain", body=f"{CONF.sopa.k} {CONF.sopa.carrier}".encode())

class App(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        kwargs["wsgi"].register(Api)
        if STUBBORN:
            self.threads.append(hub.spawn(self.spin))

    def stop(self):
        print("stopping", flush=True)
        super().stop()

    def spin(self):
        while True:
            hub.sleep(0)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        pass
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    path = tmp_path / "rest_app.py"
    path.write_text(APP.replace("STUBBORN", "False"))
    return str(path)


@pytest.fixture
def stubborn_app(tmp_path: Path) -> str:
    path = tmp_path / "stubborn_app.py"
    path.write_text(APP.replace("STUBBORN", "True"))
    return str(path)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sopa_ryu.manager", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)


def where(openflow: int, rest: int) -> list[object]:
    return ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", openflow, "--wsapi-port", rest]


def _as_in_the_foreground() -> None:
    """Restore the signals that nohup, or a background job of a script, has set to be ignored: children inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def running(log: Path, rest: int, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A controller that answers REST requests."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(*arguments), stdout=output, stderr=subprocess.STDOUT, preexec_fn=_as_in_the_foreground
        )
    try:

        def answers() -> bool:
            with contextlib.suppress(urllib.error.URLError):
                get(rest)
                return True
            assert process.poll() is None, log.read_text()
            return False

        eventually(answers, seconds=60)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def get(rest: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{rest}/k", timeout=5) as answer:
        return str(answer.read().decode())


def parsed(*arguments: str) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(list(arguments), default_config_files=[])
    return conf


# -- options


def test_defaults() -> None:
    assert options.settings(parsed()) == options.Settings()


@pytest.mark.parametrize("k", [2, 4, 48, 128])
def test_k(k: int) -> None:
    assert options.settings(parsed(f"--sopa-k={k}")).tree.k == k


@pytest.mark.parametrize("k", ["5", "0", "-2", "130", "1000000", "four", "4.0", "", "²"])
def test_wrong_k(k: str) -> None:
    with pytest.raises(options.OptionError, match=f"^k must be an even number from 2 to 128, not {k}$"):
        options.settings(parsed(f"--sopa-k={k}"))


def test_carrier() -> None:
    for carrier in ("mac", "option"):
        assert options.settings(parsed("--sopa-carrier", carrier)).carrier == carrier
    with pytest.raises(options.OptionError, match=r"^carrier must be mac or option, not vlan$"):
        options.settings(parsed("--sopa-carrier", "vlan"))


def test_hosts_without_a_right_to_a_label() -> None:
    assert options.settings(parsed()).no_label == frozenset()
    named = options.settings(parsed("--sopa-no-label=h0_0_2", "--sopa-no-label=10.3.1.3")).no_label
    assert named == {Host(0, 0, 2), Host(3, 1, 3)}
    for wrong in ("h9_0_2", "e0_0", "10.9.0.2", "10.0.0", "somebody"):
        with pytest.raises(options.OptionError, match=r"^no-label: "):
            options.settings(parsed(f"--sopa-no-label={wrong}"))


def test_a_cluster_has_switches() -> None:
    with pytest.raises(options.OptionError, match=r"^no-switches and cluster exclude each other: "):
        options.settings(parsed("--sopa-no-switches", "--sopa-cluster=etcd://127.0.0.1:2379"))


def test_config_file(tmp_path: Path) -> None:
    file = tmp_path / "sopa.conf"
    file.write_text("[sopa]\nk = 8\ncarrier = mac\n")
    assert options.settings(parsed("--config-file", str(file))) == options.Settings(tree=FatTree(8))
    file.write_text("[sopa]\nk = 7\n")
    with pytest.raises(options.OptionError, match=r"not 7$"):
        options.settings(parsed("--config-file", str(file)))


def test_registering_twice_and_after_parsing() -> None:
    conf = parsed("--sopa-k=6")
    options.register(conf)
    assert options.settings(conf).tree.k == 6
    late = cfg.ConfigOpts()
    late([], default_config_files=[])
    assert options.settings(late).tree.k == 4


# -- the command


def test_version_and_help() -> None:
    version = run("--version")
    assert (version.returncode, version.stdout.strip()) == (0, "ryu-manager 4.34")
    shown = run("--help")
    text = re.sub(r"\s+", " ", shown.stdout)
    assert shown.returncode == 0
    assert "SOPA options: --sopa-bfd-interval" in text
    assert "even number from 2 to 128" in text
    assert "webapp listen host (default 127.0.0.1)" in text
    assert not shown.stderr


def test_the_installed_command_is_ours() -> None:
    script = Path(sys.prefix, "bin/ryu-manager")
    assert "sopa_ryu.manager" in script.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sopa-k=5"], "ryu-manager: k must be an even number from 2 to 128, not 5"),
        (
            ["--sopa-hold-down=9", "--sopa-hold-down-max=3"],
            "ryu-manager: hold-down-max (3) must not be below hold-down (9)",
        ),
        (["--sopa-settle=-1"], "argument --settle: Invalid Float(min=0) value: -1"),
        (["--sopa-carrier=x"], "ryu-manager: carrier must be mac or option, not x"),
        (["no.such.app"], "ryu-manager: cannot find application no.such.app: No module named 'no'"),
        (["--config-file=/no/file"], "ryu-manager: Failed to find some config files: /no/file"),
        (["--wsapi-port=x"], "argument --wsapi_port: Invalid Integer value: x"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == message
    assert "Traceback" not in result.stderr


def test_taken_ports(app: str, tmp_path: Path) -> None:
    openflow, rest, other = free_ports(3)
    with socket.create_server(("127.0.0.1", openflow)):
        result = run(app, *where(openflow, rest))
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        f"ryu-manager: port {openflow} on 127.0.0.1 is already in use (another controller?): "
        "stop it or choose another with --ofp-tcp-listen-port"
    )

    # Of its own kind: eventlet's servers set SO_REUSEPORT and would share the port, and so the switches.
    with running(tmp_path / "log", rest, app, *where(openflow, rest)):
        result = run(app, *where(other, rest))
        assert (result.returncode, "choose another with --wsapi-port" in result.stderr) == (1, True)
        config = tmp_path / "ryu.conf"
        config.write_text(f"[DEFAULT]\nofp_tcp_listen_port = {openflow}\nwsapi_port = {other}\n")
        result = run(app, "--config-file", config)
        assert result.returncode == 1
        assert f"port {openflow} on 0.0.0.0 is already in use" in result.stderr
        assert "Traceback" not in result.stderr


def test_impossible_addresses(app: str) -> None:
    openflow, rest = free_ports(2)
    for extra, message in [
        (["--wsapi-host=192.0.2.1"], "192.0.2.1 is not an address of this machine: see --wsapi-host"),
        (
            ["--ofp-listen-host=192.0.2.1"],
            "192.0.2.1 is not an address of this machine: see --ofp-listen-host",
        ),
        (["--wsapi-port=70000"], "--wsapi-port must be from 0 to 65535, not 70000"),
    ]:
        result = run(app, *where(openflow, rest), *extra)
        assert (result.returncode, result.stderr.splitlines()[-1]) == (1, f"ryu-manager: {message}")


def test_ports_that_no_application_uses_may_be_taken() -> None:
    """Applications that need neither OpenFlow nor REST: no false alarm, and it ends by itself."""
    openflow, rest = free_ports(2)
    with socket.create_server(("127.0.0.1", openflow)), socket.create_server(("127.0.0.1", rest)):
        result = run("ryu.cfg", *where(openflow, rest))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_start_and_stop(app: str, tmp_path: Path, number: int, status: int) -> None:
    openflow, rest = free_ports(2)
    log = tmp_path / "log"
    with running(log, rest, app, *where(openflow, rest), "--sopa-k=6", "--sopa-carrier=mac") as process:
        assert get(rest) == "6 mac"
        listening = subprocess.run(["ss", "-Hlntp"], capture_output=True, text=True, check=True).stdout
        own = [line.split()[3] for line in listening.splitlines() if f"pid={process.pid}," in line]
        assert sorted(own) == sorted([f"127.0.0.1:{openflow}", f"127.0.0.1:{rest}"])
        os.kill(process.pid, number)
        assert process.wait(timeout=10) == status
    text = log.read_text()
    assert "Traceback" not in text
    assert "were not greened" not in text
    assert "eprecat" not in text


def test_a_restart_finds_its_ports_free(app: str, tmp_path: Path) -> None:
    """Connections in TIME_WAIT do not keep the next controller from starting."""
    openflow, rest = free_ports(2)
    for turn in range(2):
        with running(tmp_path / f"log{turn}", rest, app, *where(openflow, rest)) as process:
            switch = socket.create_connection(("127.0.0.1", openflow))
            process.terminate()
            assert process.wait(timeout=10) == 143
            switch.close()


def test_an_application_that_does_not_stop(stubborn_app: str, tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    log = tmp_path / "log"
    with running(log, rest, stubborn_app, *where(openflow, rest)) as process:
        process.terminate()
        assert process.wait(timeout=15) == 143
    assert "did not stop in time" in log.read_text()
    with running(log, rest, stubborn_app, *where(openflow, rest)) as process:
        process.terminate()
        eventually(log.read_text, Containing("stopping"))
        started = time.monotonic()
        process.terminate()
        assert process.wait(timeout=15) == 143
        assert time.monotonic() - started < 2


# -- the doors


def _is_open(host: str, port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection((host, port), 10).close()
        return True
    return False


def test_ipv6_addresses(app: str, tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    hosts = ["--wsapi-host=::1", "--ofp-listen-host=::1", f"--sopa-state-dir={tmp_path}"]
    ports = [f"--ofp-tcp-listen-port={openflow}", f"--wsapi-port={rest}"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command("sopa_ryu.app", *ports, *hosts), stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(log.read_text, Containing(f"REST on http://[::1]:{rest}/sopa/v1/fabric"), seconds=60)
        for port in (openflow, rest):  # Ryu starts its listener for switches after this application
            eventually(lambda port=port: _is_open("::1", port))
        with urllib.request.urlopen(f"http://[::1]:{rest}/sopa/v1/fabric", timeout=5) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        assert process.wait(timeout=15) == 143
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("given", ["privkey", "cert"])
def test_half_of_what_tls_needs_is_not_no_tls(given: str) -> None:
    result = run("sopa_ryu.app", f"--ctl-{given}=/tmp/x.pem")
    assert result.returncode == 1
    assert "--ctl-privkey and --ctl-cert belong together" in result.stderr.splitlines()[-1]


def test_openflow_over_tls_for_anybody_is_a_warning(tmp_path: Path) -> None:
    own = Authority(tmp_path).sign("controller")
    openflow, rest = free_ports(2)
    options = [f"--ctl-privkey={own.key}", f"--ctl-cert={own.certificate}", f"--ofp-ssl-listen-port={openflow}"]
    with socket.create_server(("127.0.0.1", rest)):  # so that it ends after the checks of its options
        result = run("sopa_ryu.app", *options, f"--wsapi-port={rest}", f"--sopa-state-dir={tmp_path}")
    assert "OpenFlow over TLS without ca_certs: any client is accepted as a switch; set ca_certs" in result.stderr
    missing = run("sopa_ryu.app", *options, "--ca-certs=/no/ca.pem", f"--sopa-state-dir={tmp_path}")
    assert missing.returncode == 1
    assert "/no/ca.pem cannot be used for TLS with the switches" in missing.stderr.splitlines()[-1]


def test_a_server_that_ends_by_itself_is_a_failure(tmp_path: Path) -> None:
    ending = tmp_path / "ending.py"
    ending.write_text(
        "from ryu.base import app_manager\n"
        "from ryu.controller import ofp_event\n"
        "from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls\n"
        "from sopa_ryu.southbound import listener\n"
        "def end(its):\n"
        "    raise OSError('the listener is gone')\n"
        "listener.SwitchServer.serve_forever = end\n"
        "class App(app_manager.RyuApp):\n"
        "    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)\n"
        "    def packet_in(self, event):\n"
        "        pass\n"
    )
    openflow, rest = free_ports(2)
    result = run(ending, *where(openflow, rest))
    assert result.returncode == 1
    assert "a server ended that nobody stopped: see the log for the error" in result.stderr.splitlines()[-1]
