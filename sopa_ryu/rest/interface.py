"""Everything that the REST interface offers below ``/sopa/v1``: its operations, over the resources."""

from __future__ import annotations

import re
from http import HTTPStatus

from sopa_ryu.rest.operations import ROOT, Operation, Param, number
from sopa_ryu.rest.resources import Resources

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HOST = rf"^(({_OCTET}\.){{3}}{_OCTET}|h[0-9]{{1,3}}_[0-9]{{1,3}}_[0-9]{{1,3}})$"
_ELEMENT = "^[aceh][0-9_]{3,11}(-[ace][0-9_]{3,7})?$"
MAX_PACKETS = 10_000
_ELSEWHERE = "it is not one of this fabric's"


def _host(text: str) -> str:
    if not re.fullmatch(_HOST[1:-1], text):
        raise ValueError("write a host's IPv4 address or its name, as in 10.0.0.2 or h0_0_2")
    return text


def _endpoint(name: str) -> Param:
    description = "a host of the fabric, by its IPv4 address or its name, as in 10.0.0.2 or h0_0_2"
    schema = {"type": "string", "pattern": _HOST, "examples": ["10.0.0.2", "h1_0_2"]}
    return Param(name, "query", schema, description, _host, required=True)


def _element(description: str) -> Param:
    return Param("name", "path", {"type": "string", "pattern": _ELEMENT}, description, str)


_PATHS = (
    _endpoint("src"),
    _endpoint("dst"),
    number("packets", "Tell also which path each of that many packets of a flow takes.", 1, MAX_PACKETS),
    number("protocol", "The flow's IPv4 protocol number; 6, TCP, by default.", 0, 255),
    number("sport", "The flow's source port. Without ports its first packet takes the first path.", 0, 65535),
    number("dport", "The flow's destination port; 0 if only the other is given.", 0, 65535),
    number("seed", "The --seed of the sending host's agent; 1 by default, as there.", 0, 2**32 - 1),
)


def operations(its: Resources) -> tuple[Operation, ...]:
    """The operations, each calling a method of the resources."""
    plain = (
        ("fabric", its.fabric, "Fabric", "What the fabric is, who is connected, and what has failed"),
        ("process", its.process, "Process", "What the controller's process holds, for who suspects that it leaks"),
    )
    lists = (
        ("switches", its.switches, "Switches", "Every switch of the plan"),
        ("links", its.links, "Links", "Every link of the plan, with what it carries"),
        ("hosts", its.hosts, "Hosts", "Every host of the plan"),
        ("failures", its.failures, "Failures", "What has failed, and for how long it is still held down if it is back"),
        (
            "changes",
            its.changes,
            "Changes",
            "The last versions, the latest first: what failed or healed, told after how long",
        ),
        ("drains", its.drains, "Drains", "What operators have taken out of the candidate paths"),
        ("wiring", its.wiring, "Wiring", "Every link that is not where the fat-tree wants it"),
        ("agents", its.agents, "Agents", "The connected agents: what they have in force, and how far behind they are"),
    )
    element = _element("a link or a switch, as in a0_0-c0_1 or c0_1")
    drains = {
        HTTPStatus.NOT_FOUND: _ELSEWHERE,
        HTTPStatus.CONFLICT: "it is the only link of a host",
        HTTPStatus.PRECONDITION_FAILED: "If-Match is given, and the drains are others meanwhile",
        HTTPStatus.INSUFFICIENT_STORAGE: "it cannot be kept, so nothing has changed",
    }
    return (
        *(Operation("GET", f"{ROOT}/{name}", name, summary, answer, schema) for name, answer, schema, summary in plain),
        *(
            Operation("GET", f"{ROOT}/{name}", name, summary, answer, schema, listed=True)
            for name, answer, schema, summary in lists
        ),
        Operation(
            "GET",
            f"{ROOT}/paths",
            "paths",
            "The candidate paths between two hosts, and those that failures exclude",
            its.paths,
            "Paths",
            _PATHS,
            {HTTPStatus.NOT_FOUND: _ELSEWHERE},
        ),
        Operation(
            "GET",
            f"{ROOT}/switches/{{name}}/rules",
            "rules",
            "The entries and groups that a switch is meant to hold beside those that it holds, with their counters",
            its.rules,
            "Rules",
            (_element("a switch, as in e0_0"),),
            {
                HTTPStatus.NOT_FOUND: _ELSEWHERE,
                HTTPStatus.SERVICE_UNAVAILABLE: "it is not connected, or does not answer",
            },
        ),
        Operation(
            "PUT",
            f"{ROOT}/drains/{{name}}",
            "drain",
            "Take a link or switch out of the candidate paths, for maintenance",
            its.put_drain,
            "Drains",
            (element,),
            drains,
            token=True,
        ),
        Operation(
            "DELETE",
            f"{ROOT}/drains/{{name}}",
            "restore",
            "Take a drained link or switch back into use",
            its.delete_drain,
            "Drains",
            (element,),
            drains,
            token=True,
        ),
    )
