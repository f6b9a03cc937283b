"""The ryu-manager command. Ryu patches the standard library on import, so it runs in processes of its own."""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from oslo_config import cfg

from experiments.emulation.processes import free_ports
from sopa_ryu import options
from sopa_ryu.manager import StartError, check_port, check_switch_tls
from sopa_ryu.runtime import library
from tests.helpers.certificates import Authority
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.waiting import Containing, eventually
from topologies import Host

APP = """
import sys
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.cfg import CONF
from ryu.lib import hub

def said():
    return f"{CONF.sopa.k} {CONF.sopa.carrier}".encode()
REST
class App(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication} if WSGIApplication else {}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if WSGIApplication:
            kwargs["wsgi"].register(Api)
        else:
            self.threads.append(hub.spawn(hub.WSGIServer((CONF.wsapi_host, CONF.wsapi_port), answer).serve_forever))
        if SPINNING_SECONDS:
            sys.modules["__main__"].STOP_SECONDS = SPINNING_SECONDS
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
# os-ken has no module for REST.
REST = {
    "ryu": """
from ryu.app.wsgi import ControllerBase, Response, WSGIApplication, route, websocket

class Api(ControllerBase):
    @route("api", "/k", methods=["GET"])
    def k(self, req, **kwargs):
        return Response(content_type="text/plain", body=said())
""",
    "os_ken": """
WSGIApplication = None

def answer(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said()]
""",
}
OWN = "http://127.0.0.1:{}/k"
ENDING = """
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from sopa_ryu.southbound import listener

def end(its):
    raise OSError('the listener is gone')

listener.SwitchServer.serve_forever = end

class App(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        pass
"""


def written(path: Path, text: str, spinning: int = 0) -> str:
    text = text.replace("REST\n", REST[library.name()]).replace("SPINNING_SECONDS", str(spinning))
    if library.name() == "os_ken":  # the same application, for its library
        text = text.replace("from ryu.", "from os_ken.").replace("RyuApp", "OSKenApp")
    path.write_text(text)
    return str(path)


@pytest.fixture
def app(tmp_path: Path) -> str:
    return written(tmp_path / "some_app.py", APP)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sopa_ryu.manager", *map(str, arguments)]


ONE_AFTER_THE_OTHER = """
import json, os, sys
from sopa_ryu import manager
manager.eventlet.monkey_patch()
manager.make_ryu_importable()
from sopa_ryu.runtime import library
library.name() == "ryu" and library.ryu_command
for number, words in enumerate(json.loads(sys.argv[2])):
    if (pid := os.fork()) == 0:
        for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
            os.dup2(os.open(f"{sys.argv[1]}/{number}.{name}", os.O_WRONLY | os.O_CREAT), stream.fileno())
        sys.argv = ["ryu-manager", *words]
        sys.exit(manager.main())
    with open(f"{sys.argv[1]}/{number}.status", "w") as file:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=file)
"""


def run_each(directory: Path, *commands: Sequence[object]) -> list[tuple[int, str, str]]:
    """Run commands that end at once, each in a child of a process that has imported all; status, output and errors of each."""
    words = json.dumps([[str(word) for word in words] for words in commands])
    its = [sys.executable, "-c", ONE_AFTER_THE_OTHER, str(directory), words]
    done = subprocess.run(its, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def read(number: int, name: str) -> str:
        return (directory / f"{number}.{name}").read_text()

    return [(int(read(n, "status")), read(n, "out"), read(n, "err")) for n in range(len(commands))]


def where(openflow: int, rest: int) -> list[object]:
    return ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", openflow, "--wsapi-port", rest]


def _as_in_the_foreground() -> None:
    """Restore the signals that nohup, or a background job of a script, has set to be ignored: children inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def running(log: Path, url: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command(*arguments), stdout=output, stderr=subprocess.STDOUT, preexec_fn=_as_in_the_foreground)
    try:

        def answers() -> bool:
            with contextlib.suppress(urllib.error.URLError):
                get(url)
                return True
            assert process.poll() is None, log.read_text()
            return False

        eventually(answers)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def parsed(*arguments: str) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(list(arguments), default_config_files=[])
    return conf


def test_options_are_read_once_from_words_and_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert options.settings(parsed()) == options.Settings()
    for k in (2, 48, 128):
        assert options.settings(parsed(f"--sopa-k={k}")).tree.k == k
    named = options.settings(parsed("--sopa-no-label=h0_0_2", "--sopa-no-label=10.3.1.3", "--sopa-carrier=option"))
    assert (named.unlabelled, named.carrier) == ({Host(0, 0, 2), Host(3, 1, 3)}, "option")
    file = tmp_path / "sopa.conf"
    file.write_text("[sopa]\nk = 8\ncarrier = mac\nhold-down = 3\nbfd_interval = 100\n")
    conf = parsed("--config-file", str(file))
    options.register(conf)
    assert options.settings(conf) == options.Settings(k=8)
    options.warn_of_unknown(conf)
    assert re.findall(r"(\S+) in section \[sopa\] of \S+ is no option", caplog.text) == ["bfd_interval", "hold-down"]
    file.write_text("[sopa]\nk = 7\n")
    with pytest.raises(options.OptionError, match=r"not 7$"):
        options.settings(parsed("--config-file", str(file)))
    late = cfg.ConfigOpts()
    late([], default_config_files=[])
    assert options.settings(late).tree.k == 4


@each_script(__file__, "options")
def test_what_an_option_cannot_be(script: Script) -> None:
    def ask(step: Step) -> None:
        """Read options, or look whether a server can listen at an address."""
        if step.command == "listen":
            host, port, option = step.words
            check_port(host, int(port), option)
        else:
            options.settings(parsed(*(f"--sopa-{name}={text}" for name, text in step.options.items()), *step.words))

    def handle(step: Step) -> str:
        with pytest.raises((options.OptionError, StartError)) as caught:
            ask(step)
        return str(caught.value)

    script.play(handle)


IN_USE = "ryu-manager: port {} on 0.0.0.0 is already in use (another controller?): "
IN_USE += "stop it or choose another with --ofp-tcp-listen-port"
WRONG = {
    "--sopa-k=5": "ryu-manager: k must be an even number from 2 to 128, not 5",
    "no.such.app": "ryu-manager: cannot find application no.such.app: No module named 'no'",
    "--config-file=/no/file": "ryu-manager: Failed to find some config files: /no/file",
    "--wsapi-port=x": "argument --wsapi_port: Invalid Integer value: x",
    **dict.fromkeys(
        ("sopa_ryu.app --ctl-cert=/x.pem", "sopa_ryu.app --ctl-privkey=/x.pem"),
        "ryu-manager: --ctl-privkey and --ctl-cert belong together: give both for OpenFlow over TLS, or neither",
    ),
}


def test_commands_that_end_at_once(app: str, tmp_path: Path) -> None:
    taken, rest, other = free_ports(3)
    config, ending = tmp_path / "ryu.conf", written(tmp_path / "ending.py", ENDING)
    config.write_text(f"[DEFAULT]\nofp_tcp_listen_port = {taken}\nwsapi_port = {other}\n")
    # of its own kind: eventlet's servers set SO_REUSEPORT and would share the port, and so the switches
    with socket.create_server(("", taken), reuse_port=True), socket.create_server(("127.0.0.1", rest), reuse_port=True):
        version, helped, unused, ended, on_rest, on_openflow, *wrong = run_each(
            tmp_path,
            ["--version"],
            ["--help"],
            [f"{library.name()}.cfg", *where(taken, rest)],  # no OpenFlow, no REST: no false alarm, it ends by itself
            [ending, *where(*free_ports(2))],
            [app if library.name() == "ryu" else "sopa_ryu.app", *where(other, rest), f"--sopa-state-dir={tmp_path}"],
            [app, "--config-file", config],
            *map(str.split, WRONG),
        )
    assert version[:2] == (0, "ryu-manager 4.34\n" if library.name() == "ryu" else f"ryu-manager os-ken {library.version()}\n")
    text = re.sub(r"\s+", " ", helped[1])
    assert (helped[0], helped[2]) == (0, "")
    assert "SOPA options: --sopa-bind-certificates" in text
    assert "even number from 2 to 128" in text
    assert "webapp listen host (default 127.0.0.1)" in text
    assert unused[0] == 0, unused
    assert ended[0] == 1
    assert "a server ended that nobody stopped: see the log for the error" in ended[2].splitlines()[-1]
    assert (on_rest[0], "choose another with --wsapi-port" in on_rest[2]) == (1, True)
    assert (on_openflow[0], on_openflow[2].splitlines()[-1]) == (1, IN_USE.format(taken))
    assert [(status, err.splitlines()[-1]) for status, _, err in wrong] == [(1, said) for said in WRONG.values()]
    assert not any("Traceback" in err for _, _, err in (on_openflow, *wrong))


def test_start_and_stop(app: str, tmp_path: Path) -> None:
    """Each on the ports of the one before, whose connections to switches are in TIME_WAIT."""
    openflow, rest = free_ports(2)
    for number, status in ((signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        log = tmp_path / f"log{number}"
        with running(log, OWN.format(rest), app, *where(openflow, rest), "--sopa-k=6", "--sopa-carrier=mac") as process:
            assert get(OWN.format(rest)) == "6 mac"
            os.kill(process.pid, signal.SIGUSR1)  # that of a fabric file ends nothing
            listening = subprocess.run(["ss", "-Hlntp"], capture_output=True, text=True, check=True).stdout
            own = [line.split()[3] for line in listening.splitlines() if f"pid={process.pid}," in line]
            assert sorted(own) == sorted([f"127.0.0.1:{openflow}", f"127.0.0.1:{rest}"])
            with socket.create_connection(("127.0.0.1", openflow)):
                os.kill(process.pid, number)
                assert process.wait(timeout=60) == status
        text = log.read_text()
        assert "Traceback" not in text
        assert "were not greened" not in text
        assert "eprecat" not in text


@pytest.mark.parametrize(("seconds", "signals", "status"), [(1, ["TERM"], 143), (600, ["TERM", "INT"], 130)])
def test_an_application_that_does_not_stop_is_left(tmp_path: Path, seconds: int, signals: list[str], status: int) -> None:
    openflow, rest = free_ports(2)
    log, stubborn = tmp_path / "log", written(tmp_path / "some_app.py", APP, seconds)
    with running(log, OWN.format(rest), stubborn, *where(openflow, rest)) as process:
        for name in signals:
            process.send_signal(getattr(signal, f"SIG{name}"))
            eventually(log.read_text, Containing("stopping"))
        assert process.wait(timeout=60) == status
    assert ("did not stop in time" in log.read_text()) == (len(signals) == 1)


def test_a_client_is_refused_while_the_port_is_only_checked() -> None:
    [port] = free_ports(1)
    results: set[int] = set()

    def check() -> None:
        for _ in range(2000):
            check_port("127.0.0.1", port, "wsapi-port")

    with ThreadPoolExecutor(1) as pool:
        checks = pool.submit(check)
        while not checks.done():
            with socket.socket() as client:
                client.bind(("127.0.0.2", 0))  # from the same address it might connect to itself
                results.add(client.connect_ex(("127.0.0.1", port)))
        checks.result()
    assert results == {errno.ECONNREFUSED}


def test_ipv6_addresses(tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    words = ["--wsapi-host=::1", "--ofp-listen-host=::1", f"--sopa-state-dir={tmp_path}"]
    words += [f"--ofp-tcp-listen-port={openflow}", f"--wsapi-port={rest}"]
    url, log = f"http://[::1]:{rest}/sopa/v1/fabric", tmp_path / "log"
    with running(log, url, "sopa_ryu.app", *words) as process, socket.socket(socket.AF_INET6) as switch:
        # Ryu starts its listener for switches after this application
        eventually(lambda: switch.connect_ex(("::1", openflow)), 0)
        process.terminate()
        assert process.wait(timeout=60) == 143
    assert f"REST on {url}" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_openflow_over_tls_for_anybody_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = Authority(tmp_path).sign("controller")
    conf = SimpleNamespace(ctl_privkey=str(own.key), ctl_cert=str(own.certificate), ca_certs=None)
    check_switch_tls(conf)
    assert "OpenFlow over TLS without ca_certs: any client is accepted as a switch. Set ca_certs" in caplog.text
    conf.ca_certs = "/no/ca.pem"
    with pytest.raises(StartError, match=r"OpenFlow over TLS: .*/no/ca\.pem cannot be used for TLS"):
        check_switch_tls(conf)
