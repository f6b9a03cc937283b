"""`ovsdb.transact` against servers that answer in every way that a database may, and some that it may not."""

import contextlib
import itertools
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.certificates import Authority
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.waiting import eventually
from topologies import ovsdb
from topologies.ovsdb import JsonObjects, OvsdbError, Tls, elements, entries, insert, mapping, named, transact

ROOT = Path(__file__).resolve().parents[3]
ECHO = b'{"id":"echo","method":"echo","params":[]}'
COUNT = b'{"id":0,"result":[{"count":1}],"error":null}'

patient = partial(transact, timeout=60.0)
"""For a process that may stand still for seconds."""

Answer = Callable[[socket.socket, dict[str, object]], None]
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server whose ``answer`` is called with each connection and the request on it; its address."""
    with ExitStack() as stack:

        def start(answer: Answer, family: int = socket.AF_INET, tls: ssl.SSLContext | None = None, at: str = "") -> str:
            listener = stack.enter_context(socket.socket(family))
            listener.bind(at or ("localhost", 0))
            listener.listen()

            def run() -> None:
                try:
                    while True:
                        connection = listener.accept()[0]
                        with tls.wrap_socket(connection, server_side=True) if tls else connection as peer:
                            peer.settimeout(60)
                            received = b""
                            while not received.endswith(b"}"):
                                received += peer.recv(1 << 16) or b'{"left": true}'
                            answer(peer, json.loads(received))
                except OSError:  # the listener is closed, or the client has gone
                    return

            thread = threading.Thread(target=run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"{'ssl' if tls else 'tcp'}:localhost:{listener.getsockname()[1]}" if not at else f"unix:{at}"

        yield start


def saying(*pieces: bytes) -> Answer:
    def answer(peer: socket.socket, _request: dict[str, object]) -> None:
        for piece in pieces:
            peer.sendall(piece)
            time.sleep(0.005)  # a slow server, so that pieces do not become one

    return answer


def test_the_request_is_a_transaction_on_the_switch_database(serve: Serve) -> None:
    seen = []

    def answer(peer: socket.socket, request: dict[str, object]) -> None:
        seen.append(request)
        peer.sendall(COUNT)

    assert patient(serve(answer), [insert("Port", "p", name="x", interfaces=named(["i"]))]) == [{"count": 1}]
    row = {"name": "x", "interfaces": ["set", [["named-uuid", "i"]]]}
    operation = {"op": "insert", "table": "Port", "uuid-name": "p", "row": row}
    assert seen == [{"method": "transact", "id": 0, "params": ["Open_vSwitch", operation]}]


@pytest.mark.parametrize("pieces", [[ECHO + COUNT + ECHO[:10], ECHO[10:]], [bytes([octet]) for octet in ECHO + COUNT]])
def test_the_reply_is_found_however_it_comes(serve: Serve, pieces: list[bytes]) -> None:
    assert patient(serve(saying(*pieces)), []) == [{"count": 1}]


@each_script(__file__, "ovsdb")
def test_why_a_transaction_did_not_take_effect_is_said(script: Script, serve: Serve) -> None:
    def handle(step: Step) -> str:
        """Ask the database ``at`` an address, or one that answers by a ``reply``."""
        [text] = step.words
        address = text if step.command == "at" else serve(saying(text.encode()))
        with pytest.raises(OvsdbError) as caught:
            patient(address, [])
        return str(caught.value).replace(address, "SERVER" if step.command == "reply" else address)

    script.play(handle)


def test_a_path_may_be_longer_than_sockets_take(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / ("long" * 25)
    directory.mkdir()
    monkeypatch.chdir(directory)
    address = serve(saying(COUNT), socket.AF_UNIX, at="db.sock")
    for each in (address, f"unix:{directory}/db.sock"):
        assert patient(each, []) == [{"count": 1}]


def test_over_tls_both_ends_are_checked(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certified = authority.sign("both")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.certificate)
    client = ssl.create_default_context(cafile=authority.certificate)
    for end in (server, client):
        end.load_cert_chain(*certified)
    address, other = (serve(saying(COUNT), tls=server).replace("localhost", "127.0.0.1") for _ in range(2))
    assert patient(address, [], tls=Tls(lambda: client, lambda _at: ["e0_0", "both"])) == [{"count": 1}]
    for at, tls in ((address, None), (other, Tls(lambda: client, lambda _at: ["e0_0"]))):
        with pytest.raises(OvsdbError, match="certificate"):
            patient(at, [], tls=tls)


@pytest.mark.parametrize(("kind", "flood"), [("tcp", b""), ("unix", b""), ("unix", ECHO * 100)])
def test_under_eventlet_others_run_meanwhile(serve: Serve, tmp_path: Path, kind: str, flood: bytes) -> None:
    at, ticked = str(tmp_path / "db.sock"), tmp_path / "ticked"
    calls = itertools.count()

    def answer(peer: socket.socket, _request: dict[str, object]) -> None:
        if next(calls):
            peer.recv(1)  # says nothing until the client has left
            return
        while flood:
            peer.sendall(flood)
        eventually(ticked.exists)
        peer.sendall(COUNT)

    address = serve(answer, socket.AF_UNIX, at=at) if kind == "unix" else serve(answer)
    code = """if True:
        import pathlib, sys, eventlet; eventlet.monkey_patch()
        from topologies.ovsdb import OvsdbError, transact
        def tick():
            for _ in range(10): eventlet.sleep(0.01)
            pathlib.Path(sys.argv[2]).touch()
        eventlet.spawn(tick)
        for timeout in (60, 0.1):
            try: print(transact(sys.argv[1], [], timeout=timeout), end=" ")
            except OvsdbError as error: print(error, end=" ")
            print("others ran" if pathlib.Path(sys.argv[2]).exists() else "alone")
    """
    command = [sys.executable, "-W", "ignore", "-c", code, address, str(ticked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    assert second == f"{address}: no answer within 0.1 s others ran", done.stderr
    assert first.endswith("others ran") if flood else first == "[{'count': 1}] others ran"


def test_notation() -> None:
    assert ovsdb.text("x" * 999) == "x" * ovsdb.MAX_TEXT
    one, some = ovsdb.optional(ovsdb.integer), ovsdb.set_of(ovsdb.integer)
    many = (entries, ["map", [["a", "b"]] * 5000]), (some, ["set", [1] * 5000]), (one, ["set", [1, 2]])
    for kind, wrong in (*many, (ovsdb.integer, True), (ovsdb.truth, 1), (ovsdb.uuid, ["named-uuid", "x"])):
        with pytest.raises(ValueError, match=r"instead of|no |in one set"):
            kind(wrong)
    assert mapping({"a": "1"}) == ["map", [["a", "1"]]]
    assert entries(["map", [["a", "1"], ["b", "2"]]]) == {"a": "1", "b": "2"}
    for value, found in ((["set", [1, 2]], [1, 2]), (["set", []], []), (["uuid", "x"], [["uuid", "x"]]), (7, [7])):
        assert elements(value) == found


def test_another_machines_answer_is_shorter_than_this_ones(serve: Serve, tmp_path: Path) -> None:
    answer = saying(b'{"id":0,"result":[{"rows":"' + b"x" * (3 << 20) + b'"}]}')
    assert patient(serve(answer, socket.AF_UNIX, at=str(tmp_path / "db.sock")), [])
    with pytest.raises(OvsdbError, match="too long"):
        patient(serve(answer), [])
    with pytest.raises(ValueError, match="too many parts"):
        JsonObjects(1 << 20, 1000).feed(b'{"a":[' + b"1," * 1000)


FLOODS = {
    "spaces": b" " * 65536,
    "openings": b"[" * 65536,
    "closings": b"}" * 65536,
    "a string without an end": b'{"' + b"a" * 65534,
    "escapes": b'{"' + b"\\" * 65534,
    "echoes": ECHO * 1500,
    "lists": b'{"a":[' + b"[]," * 21843,
}
ENDLESS = [pytest.param("tcp", piece, 0.0, id=name) for name, piece in FLOODS.items()]
# never silent for as long as the timeout
ENDLESS += [pytest.param(*its, 0.05, id=f"drips {its}") for its in (("tcp", b" "), ("tcp", b'{"a":'), ("ssl", b"\x16\x03\x01"))]


@pytest.mark.parametrize(("kind", "piece", "pause"), ENDLESS)
def test_a_server_that_sends_without_end_costs_the_timeout_and_little_memory(kind: str, piece: bytes, pause: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as peer:
                while True:
                    peer.sendall(piece)
                    time.sleep(pause)

        thread = threading.Thread(target=send)
        thread.start()
        tracemalloc.start()
        try:
            with pytest.raises(OvsdbError):
                transact(f"{kind}:127.0.0.1:{listener.getsockname()[1]}", [], timeout=0.5)
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
        finally:
            tracemalloc.stop()
        thread.join()


VALUES = st.recursive(st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES), max_size=5)


@settings(max_examples=50)
@given(messages=OBJECTS, cuts=st.lists(st.integers(1, 40), min_size=1), ascii_only=st.booleans())
@example([{"": "\\"}], [1], True)
@example([{"\\\\": '\\"'}], [1], True)
def test_objects_are_cut_apart_wherever_they_are_cut(messages: list[object], cuts: list[int], ascii_only: bool) -> None:
    data = " ".join(json.dumps(message, ensure_ascii=ascii_only) for message in messages).encode()
    stream, found, at = JsonObjects(len(data)), [], 0
    for cut in itertools.cycle(cuts):
        found += stream.feed(data[at : at + cut])
        at += cut
        if at >= len(data):
            break
    assert [json.loads(text) for text in found] == messages
