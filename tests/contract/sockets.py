"""The contracts of the WebSockets: the agents' push channel, and the page's feed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.contract.running import ROOT, Running
from tests.contract.values import NUMBER, TEXT, masked
from tests.helpers.waiting import eventually


def channel(its: Running) -> list[dict[str, Any]]:
    """Return what a model agent and the controller say to each other, and what follows from wrong messages."""
    its.settled()
    its.failing()
    its.version = its.body("/fabric")["version"]
    log: list[dict[str, Any]] = []
    where = f"{its.controller.url.replace('http', 'ws')}{ROOT}/agents/"

    def opened(host: str = "10.0.0.2") -> ClientConnection:
        return connect(where + host, additional_headers=its.agent, proxy=None, ping_interval=None)

    def heard(talk: ClientConnection, why: str) -> dict[str, Any]:
        while (message := json.loads(talk.recv(timeout=30)))["type"] == "ping":
            pass
        log.append({"after": why, "controller sends": masked(message, its.version)})
        found: dict[str, Any] = message
        return found

    def said(talk: ClientConnection, **message: Any) -> None:
        talk.send(json.dumps(message))

    def agents(why: str, wanted: Callable[[Any], bool]) -> None:
        body = eventually(lambda: its.body("/agents"), wanted)
        log.append({"after": why, "GET /agents": masked(body, its.version)})

    with opened() as talk:
        first = heard(talk, "connect")
        ack = {"type": "ack", "epoch": first["epoch"]}
        agents("snapshot, not acknowledged", lambda body: body["total"] == 1)
        said(talk, **ack, refused=0, version=first["version"])
        agents("snapshot acknowledged", lambda body: body["behind"] == 0)
        its.drain("PUT", "c0_0")
        said(talk, **ack, refused=0, version=heard(talk, "drain")["version"])
        its.drain("PUT", "a0_0-c0_1")
        last = heard(talk, "another drain")
        agents("not acknowledged", lambda body: body["agents"][0]["lag"] == 1)
        said(talk, **ack, version=last["version"], refused=2)
        agents("acknowledged, with refused messages", lambda body: body["behind"] == 0)
        log.append({"GET /hosts": masked(its.body("/hosts?limit=2"), its.version)})
        its.settled()
        known = lambda body: body["changes"][0]["acknowledged_ms"] is not None  # noqa: E731 - one condition
        changes = eventually(lambda: its.body("/changes?limit=2"), known)
        log.append({"GET /changes": masked(changes, its.version)})
        said(talk, type="resync")
        said(talk, **ack, version=heard(talk, "resync")["version"], refused=2)
        with opened("h1_0_2") as other:
            heard(other, "another host's agent, by name")
            agents("two agents", lambda body: body["total"] == 2)
        agents("it has left", lambda body: body["total"] == 1)
        with ThreadPoolExecutor() as second:
            claim = second.submit(opened)
            # the controller asks the first agent whether it is still there
            log.append({"after": "another claims its place", "controller sends": json.loads(talk.recv(timeout=30))})
            said(talk, **ack, version=last["version"], refused=2)
            refused = claim.exception(timeout=30)
        assert isinstance(refused, InvalidStatus)
        body = masked(json.loads(refused.response.body))
        log.append({"a second agent of one host": refused.response.status_code, "body": body})
        agents("claim rejected", lambda body: body["refused"]["claims"] == 1)
        its.drain("DELETE", "c0_0")
        its.drain("DELETE", "a0_0-c0_1")
        heard(talk, "restore")
        heard(talk, "restored, too")
    agents("no agent", lambda body: body["total"] == 0)
    for name, text in (
        ("no JSON", "{"),
        ("no object", "[]"),
        ("an unknown type", '{"type": "later"}'),
        ("a version that does not exist yet", json.dumps({**ack, "version": 1 << 40, "refused": 0})),
        ("a field missing", '{"type": "ack"}'),
        ("another epoch", json.dumps({**ack, "epoch": 1, "version": 1, "refused": 0})),
    ):
        with opened() as talk:
            heard(talk, f"connect, to send {name}")
            talk.send(text)
            said(talk, type="resync")
            try:
                after = json.loads(talk.recv(timeout=30))["type"]
                log.append({name: "goes on", "then": after, "refused": its.body("/agents")["refused"]})
            except ConnectionClosed as closed:
                received = closed.rcvd
                log.append({name: "closed", "code": received and received.code, "reason": TEXT if received else None})
        eventually(lambda: its.body("/agents")["total"], 0)
    return log


def live(its: Running) -> Any:
    its.failing()
    its.version = its.body("/fabric")["version"]
    with connect(f"{its.controller.url.replace('http', 'ws')}{ROOT}/live", proxy=None) as feed:
        message = json.loads(feed.recv(timeout=30))
    message["links"] = [[rate if rate is None else NUMBER for rate in link] for link in message["links"]]
    return masked(message, its.version)
