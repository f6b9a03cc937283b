"""``sopa cluster``, and commands that change something asked of any member: real HTTP, members that are states only."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner, Result
from webob import Request, Response

from sopa_ryu.cli import client, main
from sopa_ryu.cli.client import Controller, NoAnswer, Refused
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.answers import problem_answer
from sopa_ryu.rest.operations import Problem
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.rest import Rest
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.wsgi import served
from topologies import Reason

NOWHERE = "http://127.0.0.1:1"


class Member(Rest):
    def __init__(self, directory: Path, leader: str | None) -> None:
        super().__init__(directory, heard=False)
        self.cluster = self.fabric.cluster = StubCluster(leader)
        self.asked: list[tuple[str, str, str]] = []
        self.url = ""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.asked.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_AUTHORIZATION", "")))
        return self.application.respond(Request(environ))(environ, start_response)


class Cluster:
    """A standby (`c1` in its own stub) and the leader, with one operator token."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.standby, self.leader = Member(directory, "c2"), Member(directory, "c1")
        for member in (self.standby, self.leader):
            member.url = stack.enter_context(served(member))
        self.standby.cluster.urls["c2"] = self.leader.url
        self.token_file = directory / "token"
        self.token = self.token_file.read_text().strip()

    def controller(self, *urls: str) -> Controller:
        return Controller(urls or self.standby.url, self.token_file)

    def sopa(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--token-file", str(self.token_file)])


@pytest.fixture
def its(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.delenv("SOPA_CONTROLLER", raising=False)
    monkeypatch.setattr(client, "REDIRECT_SECONDS", 0.01)
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_status_goes_on_to_a_leader_that_is_given_without_a_token(its: Cluster) -> None:
    given, leads = ("--controller", its.standby.url), ("--controller", its.leader.url)
    assert "a standby answers" in its.sopa("status", *given).stdout
    assert its.leader.asked == []
    assert "a leader answers" in its.sopa("status", *given, *leads).stdout
    assert {token for _, _, token in its.leader.asked} == {""}


def test_reads_have_the_token_once_they_need_one(its: Cluster) -> None:
    tokens, respond = Tokens(its.token_file.parent, read_token=True), its.leader.application.respond

    def guarded(request: Request) -> Response:
        try:
            tokens.check_reader(request)
        except Problem as problem:
            return problem_answer(problem)
        return respond(request)

    its.leader.application.respond = guarded  # type: ignore[method-assign]
    controller = its.controller(its.leader.url)
    for _ in range(2):
        assert controller.listing("/links", "links")["total"] == 48
    assert [bool(token) for _, _, token in its.leader.asked] == [False, True, True]
    with pytest.raises(Refused, match="no token was sent"):
        Controller(its.leader.url).get("/fabric")


def test_a_token_that_nobody_names_goes_to_this_machines_controller_only(its: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "DEFAULT_TOKEN_FILE", its.token_file)
    port = urlsplit(its.leader.url).port
    assert port is not None
    assert [client._listeners(host, port) for host in ("127.0.0.1", "192.0.2.1")] == [{os.geteuid()}, set()]
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(401, json={"detail": "say it"})

    def ask(url: str, ca_file: Path | None = None) -> set[str | None]:
        """Return what a server at a URL is shown that wants a token for everything."""
        ours = Controller(url, ca_file=ca_file)
        ours._client = httpx.Client(transport=httpx.MockTransport(answer))
        asked.clear()
        for request in (lambda: ours.get("/fabric"), lambda: ours.change("PUT", "/drains", "c0_0")):
            with pytest.raises(Refused, match="no token was sent" if ca_file is None else "is not this controller's"):
                request()
        return {each.headers.get("Authorization") for each in asked}

    shown = {None, f"Bearer {its.token}"}  # after the first answer
    monkeypatch.setattr(client, "_authorities", lambda urls, ca_file: True)
    assert ask("http://192.0.2.1:8080") == ask("https://controller.example") == {None}
    assert ask("https://192.0.2.1:8080", Path("ca.pem")) == shown
    assert Controller(its.leader.url).change("PUT", "/drains", "c0_0")["drains"] == ["c0_0"]
    monkeypatch.setattr(client, "_listeners", lambda host, port: {12345})  # another user's, while the controller is down
    assert ask("http://127.0.0.1:8080") == {None}


def test_a_change_asked_of_a_standby_is_done_by_the_leader_it_names(its: Cluster) -> None:
    controller = its.controller()
    assert controller.change("PUT", "/drains", "c0_0")["drains"] == ["c0_0"]
    assert (list(its.standby.state.drained), list(its.leader.state.drained)) == ([], ["c0_0"])
    assert its.leader.asked == [("PUT", "/sopa/v1/drains/c0_0", f"Bearer {its.token}")]
    controller.get("/drains")  # the leader knows what came of it
    assert its.leader.asked[-1][:2] == ("GET", "/sopa/v1/drains")
    assert its.leader.asked[-1][2] == ""
    with pytest.raises(Refused, match="no agent of the source is connected"):  # a body follows, too
        its.controller().send("POST", "/traces", {"src": "h0_0_2", "dst": "h2_1_3"})
    assert its.leader.asked[-1][:2] == ("POST", "/sopa/v1/traces")


WRONG = ("https://h", "ftp://h", "http://user@h", "http:///", "", "//192.0.2.2:8080", "/sopa/v1/fabric", "http://[::1")
SENT = """
http://127.0.0.1:1 http://[::1]:2 yes, http://127.0.0.1:1 http://192.0.2.1:80 no, http://192.0.2.1:80 http://127.0.0.1:1 no
http://192.0.2.1:80 http://192.0.2.1:81 no, http://192.0.2.1:80 HTTP://192.0.2.2:80/ http://192.0.2.2 yes
https://192.0.2.1 http://192.0.2.2 http://192.0.2.2 no, http://192.0.2.1:80 ca.pem http://192.0.2.2:80 no
https://192.0.2.1 https://192.0.2.2 no, https://192.0.2.1 ca.pem https://192.0.2.2 yes, https://192.0.2.1 ca.pem http://192.0.2.2 no
"""
CASES = [*(f"{NOWHERE} {wrong} no".split(" ") for wrong in WRONG), *map(str.split, SENT.strip().replace(",", "\n").splitlines())]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_token_is_sent_where_the_operator_allows_it_and_nowhere_else(case: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_authorities", lambda urls, ca_file: True)
    *given, named, sent = case
    ours = Controller([url for url in given if url != "ca.pem"], ca_file=Path("ca.pem") if "ca.pem" in given else None)
    answer = httpx.Response(307, headers={"Location": f"{named}/sopa"}, request=httpx.Request("PUT", given[0]))
    with nullcontext() if sent == "yes" else pytest.raises(Refused, match="the token is not sent there"):
        assert ours._leader(answer) == named


def test_a_leader_that_leads_no_more_sends_nobody_farther(its: Cluster) -> None:
    """The token goes to those only whom the first one names."""
    with served(other := Member(its.token_file.parent, "c1")) as url:
        its.leader.cluster.leader, its.leader.cluster.urls["c2"] = "c2", url
        with pytest.raises(Refused, match="this controller stands by"):
            its.controller().change("PUT", "/drains", "c0_0")
        assert other.asked == []
    assert len(its.standby.asked) == len(its.leader.asked) == client.TRIES


def test_the_next_leader_is_asked_once_it_is_named(its: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    its.leader.cluster.leader = "c3"

    def elected(_seconds: float) -> None:
        its.leader.cluster.leader = "c1"

    monkeypatch.setattr(client.time, "sleep", elected)
    assert its.controller().change("PUT", "/drains", "c0_0")["drains"] == ["c0_0"]


def test_the_first_that_answers_is_asked_and_kept(its: Cluster) -> None:
    controller = its.controller(NOWHERE, its.standby.url, its.leader.url)
    assert controller.get("/fabric")["cluster"]["role"] == "standby"
    assert controller.url == its.standby.url
    with pytest.raises(NoAnswer, match=f"no answer from {NOWHERE}"):
        its.controller(NOWHERE, "http://127.0.0.1:2").get("/fabric")


def test_what_may_have_been_done_is_not_asked_for_again(its: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take_and_close() -> None:
            taken, _ = server.accept()
            taken.recv(1000)
            taken.close()

        thread = threading.Thread(target=take_and_close)
        thread.start()
        with pytest.raises(NoAnswer):
            its.controller(f"http://127.0.0.1:{server.getsockname()[1]}", its.leader.url).change("PUT", "/drains", "c0_0")
        thread.join()
    assert its.leader.asked == []


@each_script(__file__, "cluster")
def test_commands(its: Cluster, script: Script) -> None:
    cluster = its.leader.cluster

    def handle(step: Step) -> str:
        """Type a command to the leader or, with ``at=standby``, to the standby; or say what both are to tell."""
        if step.command == "sopa":
            member = its.standby if step.options.get("at") == "standby" else its.leader
            done = its.sopa(*step.words, "--controller", member.url)
            return "\n".join([*(line for line in done.output.splitlines() if "─" not in line), f"exit {done.exit_code}"])
        if step.command == "leader":
            cluster.leader = its.standby.cluster.leader = step.words[0] if step.words else None
        elif step.command == "cut":
            state, tree = its.leader.state, its.leader.state.tree
            for switch in tree.switches():
                state.switch_heard(switch, {}, 0)
                state.switch_ready(switch, 0)
            state.port_changed(tree.switch(step.words[0]), int(step.words[1]), Reason.DOWN, 1)
        elif step.command == "loads":  # NAME=UP,DOWN in Mbit/s, of 10
            loads = {name: [1e6 * float(way) for way in ways.split(",")] for name, ways in step.options.items()}
            its.leader.fabric.link_rates = lambda link: loads.get(its.leader.state.tree.name(link))
            its.leader.fabric.link_capacity = lambda _link: 1e7
        elif step.command == "away":
            cluster.away = set(step.words)
        elif step.command == "etcd":
            cluster.engine = {"reachable": not step.words, "problem": " ".join(step.words) or None}
        else:
            assert step.command == "alone"
            its.leader.fabric.cluster = None
        return ""

    script.play(handle)


def test_the_environment_may_name_several(its: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOPA_CONTROLLER", f"{NOWHERE} {its.leader.url}")
    assert its.sopa("cluster").exit_code == 0
    monkeypatch.setenv("SOPA_CONTROLLER", f"{NOWHERE} ftp:nonsense")
    assert its.sopa("cluster").exit_code == 2
