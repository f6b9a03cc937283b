"""The REST interface on a fabric that is only a state, request by request without a server, behind a front in memory."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from webob import Request, Response

from sopa_ryu.channel.connected import ConnectedAgent
from sopa_ryu.channel.messages import FlowLabels
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.front import wire
from sopa_ryu.front.agents import AgentsChannel
from sopa_ryu.front.arbiter_channel import ArbiterChannel
from sopa_ryu.front.child import FrontApplication
from sopa_ryu.front.handing import Handing
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.answers import problem_answer, request_of
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.operations import Problem
from sopa_ryu.runtime import clock
from tests.helpers.stub_fabric import StubFabric
from topologies import Clos, FatTree


class FrontInMemory:
    """What clients get: requests one by one, and agents whose connections are given to `notifier`."""

    def __init__(self, fabric: StubFabric, tokens: Tokens, rest: RestApplication) -> None:
        self.fabric, self.rest = fabric, rest
        tree = self.tree = fabric.state.tree
        self.feed, self.passed = None, self
        names = ("https://fabric.example",), ("http://C1.example:1",)
        self.config = wire.Config({}, "mac", False, (), 1, (), *names, "", False, False, 1, 0)
        front: Any = self
        self.application = FrontApplication(front, self.config, tokens)
        self.channel = self.application.channel = AgentsChannel(
            tree, "mac", lambda: fabric.state.view, lambda session: None, clustered=False
        )
        self.notifier = self.channel.notifier
        self.handing = Handing(self.notifier, lambda effects: None)  # who pulls what is due sees whether it was woken
        self.handing.opened()
        self.desk = RelayDesk(tree, fabric.agents.probe_lists, lambda host, text: fabric.agents.traced(host, text, clock.now()))
        self.relayed = fabric.agents.front = self.desk.own(self)

    def ask(self, request: Request) -> Response:
        connection: Any = SimpleNamespace(
            peer=request.remote_addr, is_open=True, trust=lambda: None, finish=lambda answer: said.append(answer)
        )
        said: list[Response] = []
        cluster = self.fabric.cluster
        self.config.clustered = cluster is not None
        self.application.standing = wire.Standing(
            False, None, cluster is None or cluster.is_leader, None if cluster is None else cluster.leader_url()
        )
        self.exchange()
        self.view = self.fabric.state.view
        try:
            answer: Any = self.application.answer(request, connection)
            if answer is not None and not isinstance(answer, Response):
                answer = asyncio.run(answer)
        except Problem as problem:
            return problem_answer(problem)
        self.exchange()
        return answer if answer is not None else said[0]

    async def call(self, request: Request) -> Response:
        return self.rest.respond(request)

    def claim(self, request: Request, connection: Any, relay: str | None) -> None:
        def reject(text: str) -> None:
            connection.finish(problem_answer(Problem(HTTPStatus.CONFLICT, text)))

        channel: Any = SimpleNamespace(reject=reject)
        ArbiterChannel(self.fabric.arbiter).claimed(channel, wire.ClaimMessage(relay, connection.peer, request.query_string))

    def exchange(self) -> None:
        """Have the controller know of the front's agents, and hand on what is due."""
        agents, now = self.fabric.agents, clock.now()
        if self.handing.has_hosts:
            self.desk.received(self.relayed, self.handing.hosts())
        changed = {
            host: ConnectedAgent(
                each.name, each.peer, each.carrier, each.policy, each.spray, each.acknowledged, each.acknowledged_ms,
                each.behind_since(), each.heard, each.refused, each.refuses, each.probes,
            )
            for host, each in self.notifier.sessions.items()
        }  # fmt: skip
        agents.change(changed, [host for host in agents.sessions if host not in changed], now)
        agents.refused.update({name: count - agents.refused[name] for name, count in self.notifier.refused.items()})
        if answers := self.handing.answers():
            self.desk.received(self.relayed, answers)
        while self.fabric.handed:
            self.desk.ask(*self.fabric.handed.pop(0))
        while (text := self.desk.due(self.relayed)) is not None:
            for _ in self.handing.take(text):
                pass


class Rest:
    """The interface of a fabric, all of whose switches have been heard or none, and requests to it.

    Attributes:
        directory: The files with tokens.
    """

    def __init__(
        self,
        directory: Path,
        tree: Clos | None = None,
        fabric: type[StubFabric] = StubFabric,
        *,
        host_tokens_only: bool = False,
        read_token: bool = False,
        heard: bool = True,
    ) -> None:
        self.directory = directory
        self.state = FabricState(tree or FatTree(4), epoch=1)
        for switch in self.state.tree.switches() if heard else ():
            self.state.switch_heard(switch, {}, 0)
        self.state.settle(0)
        self.fabric = fabric(self.state)
        tokens = Tokens(directory, host_tokens_only=host_tokens_only, read_token=read_token)
        self.application = RestApplication(self.fabric, tokens)
        self.front = FrontInMemory(self.fabric, tokens, self.application)

    def secret(self, name: str) -> str:
        """Return what a file of tokens has: ``token`` (the operators'), ``agent-token`` or ``agent-secret``."""
        return (self.directory / name).read_text().strip()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        authorization: str | None = "operator",
        peer: str = "192.0.2.9",
        **headers: str,
    ) -> Response:
        """Send a request, below ``/sopa/v1/`` unless its path begins with a slash; names of headers have underscores.

        ``authorization`` is the header, None for none; "operator" stands for the operators' token.
        """
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorization is not None:
            operator = f"Bearer {self.secret('token')}"
            headers["Authorization"] = operator if authorization == "operator" else authorization
        target = path if path.startswith("/") else f"/sopa/v1/{path}"
        if headers.get("Upgrade"):
            headers |= {"Connection": "Upgrade", "Sec-WebSocket-Key": "A" * 22 + "==", "Sec-WebSocket-Version": "13"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = [(name.lower(), value) for name, value in ({"Host": "localhost"} | headers).items()]
        return self.front.ask(request_of(method, target, named, data, peer, "http", "HTTP/1.1"))

    def get(self, path: str, **more: Any) -> Response:
        """Send a GET request without a token."""
        return self.ask("GET", path, authorization=None, **more)

    def check(self, body: Any, schema: str) -> None:
        """Check an answer by a schema of the interface's document, such as ``Trace``."""
        document = self.get("/openapi.json").json
        registry: Registry[Any] = Registry().with_resource("urn:sopa", DRAFT202012.create_resource(document))
        validator = Draft202012Validator({"$ref": f"urn:sopa#/components/schemas/{schema}"}, registry=registry)
        validator.validate(body)


def problem(response: Response) -> dict[str, Any]:
    """Check that an answer is a problem document (RFC 9457), and return it."""
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = response.json
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == response.status_int
    return body


def refused(response: Response, status: int, text: str = "") -> None:
    """Check that an answer is a problem document with a status and a text."""
    assert problem(response)["status"] == status, response.body
    assert text in response.json["detail"]


def flow_labels(text: str) -> FlowLabels:
    """Read how a script writes an agent's labels of a flow: policy, exactness, length and labels."""
    policy, exact, length, *labels = text.split()
    return FlowLabels(policy, exact == "exact", int(length), tuple((int(it[0]), int(it[2])) for it in labels))
