"""The REST interface, request by request, without a server: what it answers and refuses (docs/architecture.md, section 7)."""

import os
import re
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from webob import Request, Response, dec

from flowrules.label import Carrier
from flowrules.switch_rules import switch_rules
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.host_tokens import arbiter_token, host_token, relay_token
from sopa_ryu.channel.messages import Outcome, TraceRequest
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.cli import main
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.state_directory import Drains
from sopa_ryu.fabric.suspects import Suspected
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.rest.access import TokenError, Tokens
from sopa_ryu.rest.controller_metrics import ControllerMetrics
from sopa_ryu.rest.operators import digest
from sopa_ryu.rest.reader import UndecidedError
from sopa_ryu.rest.schemas import SCHEMAS
from sopa_ryu.rest.troubles import troubles
from sopa_ryu.runtime import clock
from sopa_ryu.southbound import rule_audit
from sopa_ryu.southbound.port_stats import PortStatsPoller
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.picked import shown
from tests.helpers.rest import Rest, flow_labels, problem, refused
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import FatTree, Level, Switch
from topologies.fabric_file import parse
from topologies.failures import Reason
from topologies.identity import PREFIX6

FATES = {"back": messages.BACK, "lost": messages.LOST, "lost-out": messages.LOST_OUT, "lost-back": messages.LOST_BACK}
HEADERS = ("Location", "Retry-After", LEADER_HEADER)


class Fabric(StubFabric):
    """A state whose drains are stored, and whose core switches are not connected."""

    drains: Drains

    def set_drained(self, name: str, drain: Drain | None, actor: str = "", why: str = "") -> None:
        self.state.drain(self.drains.remove(name) if drain is None else self.drains.add(name, drain), 1, actor, why)

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        if switch.level is Level.CORE:
            raise SwitchError("it is not connected")
        wanted = switch_rules(self.state.tree, switch)
        return rule_audit.rules(self.state.tree.name(switch), wanted, self.state.version, 0, [], {})


class Talk:
    """Requests to the interface of a k=4 fabric, or of another, and what else happens to it."""

    def __init__(self, directory: Path) -> None:
        self.parent, self.seen, self.now = directory, "", 1000.0
        self.agents: dict[str, AgentSession] = {}
        self.begin(FatTree(4))

    def begin(self, tree: Any) -> None:
        self.directory = self.parent / f"{len([*self.parent.iterdir()])}"
        self.directory.mkdir()
        self.rest = Rest(self.directory, tree, Fabric)
        self.state, self.fabric = self.rest.state, self.rest.fabric
        assert isinstance(self.fabric, Fabric)
        self.fabric.drains = Drains(self.directory, tree, self.state.drainable)

    def handle(self, step: Step) -> str:
        if step.command.isupper():
            return self.request(step)
        return str(getattr(self, f"do_{step.command}")(*step.words, **step.options) or "")

    def request(self, step: Step) -> str:
        """Send a request, a POST with this body; say parts of the answer, or what is wrong. ``as=`` is another's token, or none."""
        options = step.options
        path = "".join(f"{name}={options.pop(name)}" for name in [*options] if "?" in name) or step.words.pop(0)
        body = step.words.pop(0).encode() if step.command == "POST" and step.words else b""
        token, peer = options.pop("as", "token"), options.pop("peer", "192.0.2.9")
        sent = None if token == "none" else f"Bearer {'wrong' if token == 'wrong' else self.rest.secret(token)}"
        headers = {name: self.seen if its == "seen" else its for name, its in options.items()}
        version = self.state.version
        response = self.rest.ask(step.command, path, body, authorization=sent, peer=peer, **headers)
        assert self.state.version == version or response.status_int < 300
        return "\n".join(
            [
                self.told(response, step.words, step.command == "GET" and path.startswith("traces")),
                *(f"{n}: {response.headers[n]}" for n in HEADERS if n in response.headers),
            ]
        )

    def told(self, response: Response, parts: list[str], is_trace: bool) -> str:
        if response.status_int == 304:
            assert not response.body
        elif response.status_int < 400 and response.status_int != 307:
            self.seen = response.headers.get("ETag", self.seen)
            if is_trace:
                self.rest.check(response.json, "Trace")
                assert set(response.json) <= set(SCHEMAS["Trace"]["properties"])
            return f"{response.status_int}\n{shown(response.json, parts)}"
        else:
            its = problem(response)
            assert response.headers.get("Allow", "") in its["detail"]
            return f"{its['status']} {its['title']}: {its['detail']}".replace("\0", "(NUL)").replace(str(self.directory), "DIR")
        return str(response.status_int)

    def do_fabric(self, text: str) -> None:
        self.begin(FatTree(int(text)) if text.isdigit() else parse(text).fabric)

    def do_operator(self, name: str, role: str) -> None:
        """Make a named token, or take it out."""
        file = self.directory / "operators"
        if role == "open":
            return file.chmod(0o666)
        if role == "gone":
            file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(f"{name} ")))
            return
        made = CliRunner().invoke(
            main, ["token", "--operator", name, "--role", role, f"--secret-file={self.directory}/agent-secret"]
        )
        (self.directory / name).write_text(made.stdout)

    def do_port(self, switch: str, number: str, reason: str) -> None:
        trouble = None if reason == "up" else Reason(reason)
        assert self.state.port_changed(self.state.tree.switch(switch), int(number), trouble, self.now) is (reason != "up")

    def do_hold_down(self, seconds: str) -> None:
        self.state.damping = HoldDown(float(seconds), 60.0)

    def do_reject(self, dpid: str, reason: str) -> None:
        self.state.rejected[int(dpid)] = reason

    def do_switches(self, what: str, *names: str) -> None:
        for switch in map(self.state.tree.switch, names or map(self.state.tree.name, self.state.tree.switches())):
            getattr(self.state, f"switch_{what}")(switch, 1)

    def do_suspect(self, *links: str) -> None:
        found = [Suspected(link, down, 0.05, 1.0, 3) for link in links for down in (True, False)]
        self.fabric.health.caretaker.confirmed = lambda: found  # type: ignore[method-assign]

    def do_arbiter(self, event: str) -> None:
        if event == "enters":
            self.session, _ = self.fabric.arbiter.enter("192.0.2.1", None, 0.0)
        else:
            self.fabric.arbiter.closed(self.session)

    def do_carrier(self, name: str) -> None:
        self.fabric.carrier = Carrier(name)

    def do_no_label(self, host: str) -> None:
        self.fabric.no_label = frozenset({self.state.tree.host(host)})

    def do_member(self, leader: str = "", away: str = "", problem: str = "") -> None:
        self.fabric.cluster = its = StubCluster(leader or None)
        its.away, its.engine = {away}, {"reachable": not problem, "problem": problem or None}

    def do_undecided(self) -> None:
        """Let the engine not answer any more."""

        def refuse(*_its: object) -> None:
            raise UndecidedError("the engine does not answer")

        for asked, name in ((self.fabric, "set_drained"), (self.fabric.cluster, "step_down")):
            setattr(asked, name, refuse)

    def do_metrics(self, commits: str = "0") -> str:
        poller, cluster = PortStatsPoller(self.state, {}, 0), self.fabric.cluster
        metrics = ControllerMetrics(self.state, SwitchManager(self.state), self.fabric.agents, poller, "mac", cluster=cluster)
        for _ in range(int(commits)):
            assert metrics.committed is not None
            metrics.committed.observe(0.004)
        text = Request.blank("/metrics").get_response(dec.wsgify(metrics.page)).text
        return "\n".join(re.findall(r"^sopa_cluster_(?!\w*(?:_bucket|_created)).*", text, re.M)) or "nothing"

    def do_relay(self, *hosts: str) -> None:
        self.fabric.agents.probe_lists.relays(Relayed("r1", "192.0.2.31", object()), set(map(self.state.tree.host, hosts)))

    def do_deposed(self) -> None:
        """Let another controller be the switches' master: its answer shows that a claim has got to the channel."""
        for notifier in (self.rest.front.notifier, self.fabric.arbiter):
            notifier.depose(True)

    def do_agent(self, name: str, probes: str = "yes") -> None:
        host, notifier = self.state.tree.host(name), self.rest.front.notifier
        session, _ = notifier.connected(host, "192.0.2.1", "mac", None, self.now, "round-robin", probes=probes == "yes")
        self.agents[name] = session
        self.do_asked(name)  # its snapshot comes first

    def do_asked(self, name: str) -> str:
        """Say what an agent has been sent of traces: its writer has gone on only if it was woken."""
        session, said = self.agents[name], []
        self.rest.front.exchange()
        while session.phase is Phase.WRITING and (text := self.rest.front.notifier.due(session, self.now)) is not None:
            asked = messages.from_controller(text)
            if isinstance(asked, TraceRequest) and not asked.cancel:
                self.asked = asked
                said.append(self._named(asked))
            elif isinstance(asked, TraceRequest):
                said.append(f"Cancel(number={asked.number})")
        return "\n".join(said) or "nothing"

    def _named(self, asked: TraceRequest) -> str:
        if asked.flow:
            return f"{asked.number}: how it labels {'/'.join(map(str, asked.flow))} to {asked.destination or asked.destination6}"
        ups = [(stream.up1, stream.up2) for stream in asked.streams]
        return f"{asked.number}: {asked.count} probes each {asked.interval_ms} ms on {ups}"

    def do_answer(
        self, name: str, *fates: str, done: str = "no", times: str = "1", labels: str = "", number: str = "", problem: str = ""
    ) -> str:
        """Let it answer of probes by their path's place, ``2:back:80000``, or of a flow: policy, exactness, length and labels."""
        outcomes = [
            Outcome(int(place), FATES[fate], int(delay)) for place, fate, delay in ((*each.split(":"), "0")[:3] for each in fates)
        ]
        flow, which = flow_labels(labels) if labels else None, int(number or self.asked.number)
        said = messages.trace_answers(which, tuple(outcomes) * int(times), done == "yes", problem, flow)
        return self._received(name, messages.encode(*said))

    def do_acks(self, name: str) -> str:
        return self._received(name, protocol.ack(self.state.view, 0))

    def do_garbage(self, name: str, times: str) -> str:
        return [self._received(name, "{}") for _ in range(int(times))][-1]

    def do_leave(self, name: str) -> None:
        self.rest.front.notifier.closed(self.agents[name])

    def do_wait(self, seconds: str, read: str = "") -> None:
        """Let time pass; a trace is read each second, or none is."""
        for _ in range(int(seconds)):
            self.now += 1
            if read:
                self.rest.get(f"traces/{read}")
            self.rest.front.notifier.tick(self.now)
            self.fabric.handed += self.fabric.agents.tick(self.now)

    def _received(self, name: str, text: str) -> str:
        session = self.agents[name]
        refused = session.refused
        self.rest.front.notifier.received(session, text, self.now)
        self.rest.front.exchange()
        if session.phase is Phase.CLOSED:
            return "it is cut off"
        return "refused" if session.refused > refused else ""


@each_script(__file__, "rest")
def test_rest(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(tmp_path)
    monkeypatch.setattr(clock, "now", lambda: talk.now)
    script.play(talk.handle)


@pytest.fixture
def rest(tmp_path: Path) -> Rest:
    talk = Talk(tmp_path)
    talk.begin(FatTree(4, str(PREFIX6)))
    return talk.rest


def fail(rest: Rest, switch: str = "a0_0", port: int = 4) -> None:
    assert rest.state.port_changed(rest.state.tree.switch(switch), port, Reason.DOWN, 1)


def test_a_drain_that_cannot_be_kept_is_refused(rest: Rest) -> None:
    (rest.directory / "drains.new").mkdir()
    refused(rest.ask("PUT", "drains/c0_0"), 507, "nothing has changed")
    assert rest.state.version == 1


def test_the_process_says_how_it_is(rest: Rest) -> None:
    process = rest.get("process").json
    assert process["pid"] == os.getpid()
    assert min(process["memory_mib"], process["open_files"], process["greenlets"]) > 0


def test_an_error_of_our_own_is_told_and_logged(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(rest.state, "fabric", broken)
    refused(rest.get("fabric"), 500)
    assert "the cause" in caplog.text


def test_a_change_needs_the_operators_token_and_the_leader(rest: Rest) -> None:
    its = [one for one in rest.application.operations if one.method != "GET"]
    assert all(one.token for one in its)
    # those of scripts/rest/cluster.txt
    written = {"PUT drains/{name}", "DELETE drains/{name}", "POST traces", "DELETE traces/{trace}", "POST cluster/step-down"}
    assert {f"{one.method} {one.path.removeprefix('/sopa/v1/')}" for one in its} == written


def test_tokens_are_made_at_the_first_start_readable_by_the_owner_only(tmp_path: Path) -> None:
    Tokens(tmp_path)
    kept = {name: (tmp_path / name).read_text() for name in ("token", "agent-token", "agent-secret")}
    assert len({*kept.values()}) == 3
    assert all(len(token.strip()) >= 43 for token in kept.values())
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o600 for name in kept)
    Tokens(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in kept} == kept


@pytest.mark.parametrize(("content", "mode", "problem"), [("x\n", 0o640, "chmod 600"), ("\n", 0o600, "is empty")])
def test_a_token_that_cannot_be_relied_on_is_refused(tmp_path: Path, content: str, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(TokenError, match=problem):
        Tokens(tmp_path)


HOST, OTHER = IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3")


@pytest.mark.parametrize("only_host_tokens", [False, True])
@pytest.mark.parametrize(
    ("given", "opens"),
    [
        ("Bearer {host}", {"host"}),
        ("Bearer {token}", {"host", "arbiter", "relay", "change", "read"}),
        ("Bearer {agents}", {"host"}),
        ("Bearer {arbiter}", {"arbiter"}),
        ("Bearer {relay}", {"relay", "read"}),
        ("Bearer {reader}", {"read"}),
        ("Bearer {another}", set()),
        ("Bearer {under_another_secret}", set()),
        ("Bearer {cut_short}", set()),
        ("Bearer {secret}", set()),
        *((header, set()) for header in (None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer é", "{token}", "Basic {token}")),
    ],
)
def test_what_each_token_opens(tmp_path: Path, given: str | None, opens: set[str], only_host_tokens: bool) -> None:
    rest = Rest(tmp_path, host_tokens_only=only_host_tokens, read_token=True)
    (tmp_path / "operators").write_text(f"ann read {digest('r')}\n")
    rest.fabric.cluster = StubCluster()
    rest.fabric.arbiter.depose(True)  # so that who is let in is refused with 409, as is an agent of another host
    secret = rest.secret("agent-secret")
    tokens = {
        "host": host_token(secret, HOST),
        "token": rest.secret("token"),
        "agents": rest.secret("agent-token"),
        "arbiter": arbiter_token(secret),
        "relay": relay_token(secret),
        "another": host_token(secret, OTHER),
        "under_another_secret": host_token(secret + "x", HOST),
        "cut_short": host_token(secret, HOST)[:-1],
        "secret": secret,
        "reader": "r",
    }
    if only_host_tokens and given == "Bearer {agents}":
        opens = set()

    def status(method: str, path: str) -> int:
        sent = given and given.format(**tokens)
        response = rest.ask(method, path, authorization=sent, peer=str(OTHER), Upgrade="websocket")
        assert response.status_int != 401 or response.headers["WWW-Authenticate"].startswith("Bearer")
        return response.status_int

    for name in ("10.0.0.2", "h0_0_2"):
        assert status("GET", f"agents/{name}") == (409 if "host" in opens else 401)
    for name, path in (("arbiter", "arbiter"), ("relay", "relays/r1")):
        assert status("GET", path) == (409 if name in opens else 401)
    assert (status("PUT", "drains/c0_0") in (401, 403)) is ("change" not in opens)
    for path in ("fabric", "paths?src=h0_0_2&dst=h1_0_2", "agents", "agents/", "arbiter/", "/openapi.json", "/metrics", "/webs"):
        assert (status("GET", path) == 401) is ("read" not in opens), path
    assert (status("GET", "/"), status("GET", "/web/main.js")) == (200, 200)


def test_a_number_of_very_many_digits_and_a_deep_body_are_refused(rest: Rest) -> None:
    refused(rest.get(f"links?limit={'9' * 5000}"), 400)
    refused(rest.ask("POST", "traces", b"[" * 60_000), 400, "no JSON")


def test_lists_longer_than_a_page_are_given_page_by_page(tmp_path: Path) -> None:
    rest = Rest(tmp_path, FatTree(16))
    names, following = [], "links"
    while following:
        response = rest.get(following)
        assert len(response.json["links"]) <= 1000
        assert response.json["total"] == 3072
        names += [link["name"] for link in response.json["links"]]
        following = response.headers.get("Link", "").partition(">")[0].removeprefix("<")
    assert names == [rest.state.tree.name(link) for link in rest.state.tree.links()]
    assert [link["name"] for link in rest.get("links?offset=7&limit=2").json["links"]] == names[7:9]


@pytest.mark.parametrize("failed", [False, True])
def test_packets_are_told_the_paths_that_the_agents_program_gives_them(rest: Rest, failed: bool) -> None:
    if failed:  # weights are uneven then
        fail(rest, "a2_0")
    table = path_table(rest.state.tree, rest.state.tree.host("h0_0_2"), rest.state.failures, 7, Policy.ROUND_ROBIN)
    for dst in ("10.2.0.3", "fd53:4f50:4100:200::3"):
        body = rest.get(f"paths?src=h0_0_2&dst={dst}&packets=100&protocol=17&sport=7001&dport=9000&seed=7").json
        key = FlowKey.of(body["src"], dst, 17, 7001, 9000, PREFIX6)
        assert [tuple(body["candidates"][at]["up"]) for at in body["packets"]] == [table.choose(key, n) for n in range(100)]
        assert len({path["weight"] for path in body["candidates"]}) == 1 + failed


def test_every_answer_is_as_the_openapi_document_says(rest: Rest) -> None:
    document = rest.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    rest.fabric.cluster = StubCluster()
    rest.ask("PUT", "drains/c0_0")
    fail(rest)
    for path, methods in document["paths"].items():
        if "get" not in methods or "{trace}" in path:
            continue  # traces: each of the scripts'
        named = path.replace("{name}", "e0_0")
        response = rest.get(named.replace("/paths", "/paths?src=h0_0_2&dst=h2_0_3&packets=3"))
        assert response.status_int == 200, path
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        rest.check(response.json, schema["$ref"].rpartition("/")[2])


def test_an_agent_is_in_trouble_after_a_second(tmp_path: Path) -> None:
    rest = Rest(tmp_path)
    rest.fabric.connect(host := rest.state.tree.host("h0_0_2"))
    rest.fabric.agents.sessions[host].behind_since = 10.0
    assert ["behind" in {each["kind"] for each in troubles(rest.fabric, now)} for now in (10.5, 11.5)] == [False, True]
