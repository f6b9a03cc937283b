"""TLS and users of the engine, with real nodes of etcd."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.cluster.address import Access, AddressError, parse
from sopa_ryu.cluster.engine import Engine, Kind
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET
from tests.cluster.conftest import Connect, failure
from tests.helpers.certificates import Authority
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from topologies.lab.etcd import PrivateEtcd, Tls

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    node = authority.sign("node")
    return Tls(authority.certificate, node.certificate, node.key)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, tls: Tls) -> Iterator[PrivateEtcd]:
    """A node with TLS that wants its clients' certificates."""
    both = Tls(tls.ca, tls.cert, tls.key, True, tls.cert, tls.key)
    with PrivateEtcd(tmp_path_factory.mktemp("etcd"), 1, both) as etcd:
        yield etcd


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


def test_the_authoritys_certificates_are_accepted(strict: PrivateEtcd, connect: Connect, authority: Authority) -> None:
    client = authority.sign("client")
    engine = connect(strict, Access(authority.certificate, client.certificate, client.key))
    assert engine.write({"view": "{}"}) is not None
    revision = engine.read().revision
    watched = engine.watch(revision)
    assert [next(watched).keys for _ in range(3)] == [{}, {}, {}]  # quiet for a while
    engine.write({"view": "2"})
    assert next(contents for contents in watched if contents.keys).keys["view"] is not None


def test_wrong_certificates_are_named(strict: PrivateEtcd, connect: Connect, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "other")
    ca, client = authority.certificate, stranger.sign("client")
    for access, said in (
        (Access(stranger.certificate), "the node's certificate cannot be trusted"),
        (Access(ca), "does not accept this client's certificate, or requires one"),
        (Access(ca, client.certificate, client.key), "does not accept this client's certificate, or requires one"),
        (Access(), "it uses TLS and no CA file is given"),
    ):
        engine = connect(strict, access)
        for error in (failure(engine.read), failure(engine.watch(1).__next__)):
            assert said in str(error)
            assert not access.ca or error.kind == Kind.REFUSED


def test_tls_to_a_node_without_it_says_so(lone_etcd: PrivateEtcd, connect: Connect, authority: Authority) -> None:
    error = failure(connect(lone_etcd, Access(authority.certificate)).read)
    assert error.kind == Kind.UNREACHABLE
    assert "does not use TLS" in str(error)


def test_what_answers_without_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        address = parse(f"etcd://127.0.0.1:{server.getsockname()[1]}")
        reading = pool.submit(failure, Engine(address, timeout=PATIENCE_SECONDS).read)
        with server.accept()[0] as node:
            node.sendall(b"SSH-2.0-x\r\n")  # and waits
            assert "it is no HTTP (b'SSH-2.0-x" in str(reading.result())


def test_files_that_cannot_be_used_are_named_at_once(lone_etcd: PrivateEtcd, connect: Connect, tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    assert str(absent) in str(failure(lambda: connect(lone_etcd, Access(absent))))
    with pytest.raises(AddressError, match="key belong together"):  # what else does: tests/unit/cluster/test_records.py
        connect(lone_etcd, Access(cert=absent))


def test_a_user_needs_its_password_and_its_rights(
    lone_etcd: PrivateEtcd, connect: Connect, password: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = Access(user="sopa", password_file=password)
    engine = connect(lone_etcd, mine)
    assert engine.write({"view": "1"}) is not None
    assert "the engine has no users enabled" in caplog.text

    lone_etcd.enable_users("root's", {"sopa": (PASSWORD, "/sopa/"), "other": (PASSWORD, "/other/")})
    assert engine.write({"view": "2"}) is not None  # signed in by itself
    assert next(engine.watch(engine.read().revision)).keys == {}

    wrong = tmp_path / "wrong"
    wrong.write_text("battery staple\n")
    for access, said in (
        (Access(), "user name is empty"),
        (Access(user="sopa", password_file=wrong), "authentication failed, invalid user ID or password"),
        (Access(user="nobody", password_file=password), "authentication failed, invalid user ID or password"),
        (Access(user="other", password_file=password), "permission denied"),
        (Access(user="sopa", password_file=tmp_path / "absent"), f"cannot be read from {tmp_path}/absent"),
    ):
        client = connect(lone_etcd, access)
        for ask in (client.read, lambda client=client: client.write({"view": "3"}), client.watch(1).__next__):
            error = failure(ask)
            assert (error.kind, error.unknown) == (Kind.REFUSED, False), said
            assert said in str(error)
            assert "Check the user" in str(error)
    assert engine.read().keys["view"].value == "2"

    # a node that was started again knows no token of before
    for ask in (lambda: engine.write({"view": "4"}), lambda: next(engine.watch(1))):
        lone_etcd.kill(0)
        lone_etcd.restart(0)
        ask()


def test_a_certificate_with_a_common_name_is_refused_while_users_are_enabled(
    strict: PrivateEtcd, connect: Connect, authority: Authority, password: Path
) -> None:
    named = authority.sign("client")
    strict.enable_users("root's", {"sopa": (PASSWORD, "/sopa/")})
    try:
        access = Access(authority.certificate, named.certificate, named.key, "sopa", password)
        error = failure(connect(strict, access).read)
        assert (error.kind, "Make one without" in str(error)) == (Kind.REFUSED, True)
    finally:
        strict.disable_users()


GREEN = """
import eventlet
eventlet.monkey_patch()
import json, sys
from pathlib import Path
from sopa_ryu.cluster.address import Access, parse
from sopa_ryu.cluster.engine import Engine
from topologies.lab.standstill import pause

address, ca, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
access = Access(Path(ca))
engine, other = (Engine(parse(address), access, timeout=2.0) for _ in range(2))
ticks, seen = [0], []

def tick():
    while True:
        eventlet.sleep(0.01)
        ticks[0] += 1

def watch(revision):
    for contents in engine.watch(revision):
        seen.append((ticks[0], {key: kept and kept.value for key, kept in contents.keys.items()}))

eventlet.spawn(tick)
watching = eventlet.spawn(watch, engine.read().revision)
def reached(condition):
    with eventlet.Timeout(60):
        while not condition():
            eventlet.sleep(0.01)

reached(lambda: len(seen) > 2)          # quiet for a while
quiet = seen[2][0] - seen[0][0]
pause(pid)                              # the node of both
before = ticks[0]
lease = other.grant(60)
stopped = ticks[0] - before
other.write({"view": "1"})
reached(lambda: any(keys == {"view": "1"} for _, keys in seen))
renewed = other.renew(lease)
engine.close()
watching.wait()
print(json.dumps({"quiet": quiet, "stopped": stopped, "renewed": renewed}))
"""


def test_green_threads_go_on_while_a_watch_or_a_stopped_node_is_waited_for(tls: Tls, tmp_path: Path) -> None:
    """In a process whose sockets eventlet has patched, as ryu-manager's are."""
    with PrivateEtcd(tmp_path / "etcd", 3, tls) as etcd:
        first = next(node for node in range(3) if node != etcd.leader())
        words = [etcd.address(first=first), str(tls.ca), str(etcd.pid(first))]
        command = [sys.executable, "-W", "ignore", "-c", GREEN, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # with a hub that stands still there would be none at all
    assert told["quiet"] > 0
    assert told["stopped"] > 0
    assert told["renewed"] is True


@pytest.mark.switch
def test_a_controller_and_a_relay_sign_in_over_tls(tls: Tls, password: Path, tmp_path: Path) -> None:
    openflow, rest, port = free_ports(3)
    password.chmod(0o600)
    password.write_text("wrong\n")
    access = {"ca": str(tls.ca), "user": "sopa", "password-file": str(password)}
    with PrivateEtcd(tmp_path / "etcd", 1, tls) as etcd:
        etcd.enable_users("root's", {"sopa": (PASSWORD, "/sopa/")})
        options = [f"--sopa-cluster={etcd.address()}", *(f"--sopa-cluster-{name}={access[name]}" for name in access)]
        relays = [f"--cluster-{name}={value}" for name, value in access.items()]
        with ControllerProcess(4, tmp_path / "m1.log", openflow, rest, options=options) as member:

            def cluster() -> dict[str, Any]:
                return member.get("/cluster").json()

            eventually(lambda: cluster()["engine"]["problem"], lambda its: its is not None and "password" in its)
            password.write_text(f"{PASSWORD}\n")
            with RelayProcess(etcd.address(), tmp_path / "r1.log", port, member.state_dir, options=relays) as relay:
                told = eventually(cluster, lambda its: bool(its["leader"] and its["relays"]))
                assert told["relays"][0]["url"] == relay.url
                eventually(lambda: cluster()["engine"], {"reachable": True, "problem": None})
                assert {OPERATORS, AGENTS, SECRET} <= {file.name for file in member.state_dir.iterdir()}
