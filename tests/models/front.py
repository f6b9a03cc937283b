"""A front in memory: its application, notifier and what it hands on, as the process has them; the controller is a `StubFabric`."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from webob import Request, Response

from sopa_ryu.channel.connected import ConnectedAgent
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.front import wire
from sopa_ryu.front.agents import AgentsChannel
from sopa_ryu.front.arbiter_channel import ArbiterChannel
from sopa_ryu.front.child import FrontApplication
from sopa_ryu.front.handing import Handing
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.answers import problem_answer
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.operations import Problem
from sopa_ryu.runtime import clock
from tests.helpers.stub_fabric import StubFabric


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
        """Answer a request."""
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
