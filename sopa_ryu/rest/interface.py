"""The operations of the REST interface below ``/sopa/v1``, each with the method of `Resources` that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from sopa_ryu.events.store import MAX_PAGE
from sopa_ryu.fabric.drain import MAX_REASON
from sopa_ryu.rest.operations import MAX_TIME, ROOT, Operation, Param, number, seconds
from sopa_ryu.rest.operators import Role
from sopa_ryu.rest.resources import Resources, a_host
from sopa_ryu.rest.schemas import END
from sopa_ryu.rest.traces import TraceResources
from sopa_ryu.runtime.foreign_text import printable

_ELEMENT = "^[aceh][0-9_]{3,11}(-[ace][0-9_]{3,7})?$"
MAX_PACKETS = 10_000
MAX_WITHOUT = 64
# the document has own names only: an alias is taken, too, but which there are is the fabric file's
_ELEMENTS = rf"^{_ELEMENT[1:-1]}(,{_ELEMENT[1:-1]}){{0,{MAX_WITHOUT - 1}}}$"
_ELSEWHERE = "it is not part of this fabric"


def _reason(text: str) -> str:
    if len(text) > MAX_REASON or text != printable(text, MAX_REASON):
        raise ValueError(f"write printable ASCII, {MAX_REASON} characters at most")
    return text


def _name(text: str) -> str:
    if not re.fullmatch(_ELEMENT, text):
        raise ValueError("write the name of a link, switch or host, as in a0_0-c0_1, c0_1 or h0_0_2")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if len(names) > MAX_WITHOUT:
        raise ValueError(f"write {MAX_WITHOUT} names at most")
    return tuple(map(_name, names))


def _time(name: str, description: str) -> Param:
    return Param(name, "query", {"type": "number", "minimum": 0, "maximum": MAX_TIME}, description, seconds)


_DRAIN = (
    Param(
        "reason",
        "query",
        {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": "^[ -~]*$"},
        "Why; it is listed with the drain.",
        _reason,
    ),
    _time("until", "When the drain ends by itself, in seconds since 1970; without it, it stays until it is restored."),
)
_WITHOUT = Param(
    "without",
    "query",
    {"type": "string", "pattern": _ELEMENTS, "examples": ["c0_0", "c0_0,a0_1-c1_0"]},
    f"Links and switches, separated by commas, {MAX_WITHOUT} at most: what if they were drained, too?",
    _names,
    names=True,
)
_EVENTS = (
    _time("since", "Only events from then on, in seconds since 1970."),
    Param(
        "element", "query", {"type": "string", "pattern": _ELEMENT}, "Only events of this link, switch or host.", _name, names=True
    ),
    number("after", "Only events with a higher id: the `last` of the answer before.", 0, 10**12 - 1),
    number("limit", f"Maximum number of events; {MAX_PAGE} by default.", 1, MAX_PAGE),
)


def _endpoint(name: str) -> Param:
    description = "a host's IPv4 address or name, as in 10.0.0.2 or h0_0_2"
    families = "or its IPv6 address, in a fabric with prefix6; of two addresses, both are of one family"
    schema = {**END, "description": families, "examples": ["10.0.0.2", "h1_0_2", "fd53:4f50:4100::2"]}
    return Param(name, "query", schema, description, a_host, required=True, names=True)


def _element(description: str) -> Param:
    return Param("name", "path", {"type": "string", "pattern": _ELEMENT}, description, str, names=True)


_PATHS = (
    _endpoint("src"),
    _endpoint("dst"),
    _WITHOUT,
    number("packets", "Include the path of each of the first N packets of a flow.", 1, MAX_PACKETS),
    number("protocol", "The flow's IPv4 protocol number; 6 (TCP) by default.", 0, 255),
    number("sport", "The flow's source port. Without ports, its first packet takes the first path.", 0, 65535),
    number("dport", "The flow's destination port; 0 if only the source port is given.", 0, 65535),
    number("seed", "The --seed of the sending host's agent; 1 by default, like the agent's.", 0, 2**32 - 1),
)


def _get(answer: Callable[[], Any], summary: str, listed: bool = False, costly: bool = False) -> Operation:
    """Return the operation without parameters whose path and schema have the name of the method that answers it."""
    name = answer.__name__
    return Operation("GET", f"{ROOT}/{name}", name, summary, answer, name.capitalize(), listed=listed, costly=costly)


def paths_operation(resources: Resources) -> Operation:
    """Return the operation of candidate paths, which relays answer, too."""
    return Operation(
        "GET",
        f"{ROOT}/paths",
        "paths",
        "The candidate paths between two hosts, and the excluded ones",
        resources.paths,
        "Paths",
        _PATHS,
        {HTTPStatus.NOT_FOUND: _ELSEWHERE},
    )


def operations(resources: Resources, traces: TraceResources) -> tuple[Operation, ...]:
    """Return the operations, each of which calls a method of the resources."""
    lists = (
        (resources.switches, "All switches of the plan"),
        (resources.links, "All links of the plan, with their traffic"),
        (resources.hosts, "All hosts of the plan"),
        (resources.names, "What operators call switches and hosts, their racks, and the labels of ports, by the fabric file"),
        (resources.failures, "Failed and drained elements, with the remaining hold-down of restored ones"),
        (resources.changes, "The last versions, the latest first: what failed or healed, and when it took effect"),
        (resources.drains, "Links and switches that operators have drained"),
        (resources.wiring, "Links whose cabling differs from the plan, or is not confirmed"),
        (resources.agents, "The connected agents, with their versions and lag"),
    )
    element = _element("a link or a switch, as in a0_0-c0_1 or c0_1")
    drains = {
        HTTPStatus.NOT_FOUND: _ELSEWHERE,
        HTTPStatus.CONFLICT: "it is the only link of a host, or `until` is over",
        HTTPStatus.PRECONDITION_FAILED: "If-Match is given, and the drains have changed since",
        HTTPStatus.INSUFFICIENT_STORAGE: "the drain cannot be stored; nothing has changed",
    }
    return (
        _get(resources.fabric, "Size, connected switches, version and failures of the fabric"),
        _get(resources.process, "Memory, open files and green threads of the controller, to diagnose leaks", costly=True),
        *(_get(answer, summary, listed=True) for answer, summary in lists),
        Operation(
            "GET",
            f"{ROOT}/health",
            "health",
            "Loss and delay of the links between switches by probes, and which are suspect",
            resources.health,
            "Health",
            (number("suspects", "1: only links that are suspect.", 0, 1),),
            listed=True,
        ),
        Operation(
            "GET",
            f"{ROOT}/events",
            "events",
            "What has happened: failures, healings, drains, agents, leaders, refusals, the oldest first; kept on disk, by each "
            "member of a cluster what it has seen itself",
            resources.events,
            "Events",
            _EVENTS,
            {HTTPStatus.SERVICE_UNAVAILABLE: "the events cannot be read, or too many requests wait for them"},
            costly=True,
        ),
        paths_operation(resources),
        Operation(
            "GET",
            f"{ROOT}/impact",
            "impact",
            "What the fabric is left with now, and what if more were drained: pairs of racks without a path, capacity, "
            "oversubscription",
            resources.impact,
            "Impact",
            (_WITHOUT,),
            {HTTPStatus.NOT_FOUND: _ELSEWHERE, HTTPStatus.SERVICE_UNAVAILABLE: "too many requests wait for answers that cost much"},
            costly=True,
        ),
        Operation(
            "GET",
            f"{ROOT}/switches/{{name}}/rules",
            "rules",
            "The intended and the installed flow entries and groups of a switch, with their counters",
            resources.rules,
            "Rules",
            (_element("a switch, as in e0_0"),),
            {HTTPStatus.NOT_FOUND: _ELSEWHERE, HTTPStatus.SERVICE_UNAVAILABLE: "the switch is not connected, or does not answer"},
            costly=True,
        ),
        Operation(
            "PUT",
            f"{ROOT}/drains/{{name}}",
            "drain",
            "Drain a link or switch: exclude it from the candidate paths, for maintenance",
            resources.put_drain,
            "Drains",
            (element, *_DRAIN),
            drains,
            token=True,
            actor=True,
        ),
        Operation(
            "DELETE",
            f"{ROOT}/drains/{{name}}",
            "restore",
            "Restore a drained link or switch",
            resources.delete_drain,
            "Drains",
            (element,),
            drains,
            token=True,
            actor=True,
        ),
        *_cluster(resources),
        *_traces(traces),
    )


def _cluster(resources: Resources) -> Iterator[Operation]:
    alone = {HTTPStatus.NOT_FOUND: "the controller is of no cluster: it was started without --sopa-cluster"}
    yield Operation(
        "GET",
        f"{ROOT}/cluster",
        "cluster",
        "The members of the cluster, who leads and since which term, the relays, and whether the engine answers",
        resources.cluster,
        "Cluster",
        problems=alone,
    )
    yield Operation(
        "POST",
        f"{ROOT}/cluster/step-down",
        "step_down",
        "Let another member lead the cluster, as before maintenance of the leader's machine",
        resources.step_down,
        "Cluster",
        problems=alone,
        status=HTTPStatus.ACCEPTED,
        token=True,
        role=Role.ADMIN,
        actor=True,
    )


def _traces(traces: TraceResources) -> Iterator[Operation]:
    which = number("trace", "the trace's id", 1, 2**31 - 1, "path")
    gone = {HTTPStatus.BAD_REQUEST: "the id is no number, or is too large", HTTPStatus.NOT_FOUND: "there is no such trace any more"}
    yield Operation(
        "POST",
        f"{ROOT}/traces",
        "trace",
        "Send probes on candidate paths from a host's agent, or ask which way a flow takes; the answer has the id to read it by",
        traces.begin,
        "Trace",
        problems={
            HTTPStatus.NOT_FOUND: _ELSEWHERE,
            HTTPStatus.CONFLICT: "the source has no agent, or one without probes, or another trace; or it contradicts itself",
            HTTPStatus.SERVICE_UNAVAILABLE: "as many traces are running as there may be",
        },
        body="TraceRequest",
        status=HTTPStatus.ACCEPTED,
        token=True,
    )
    summary = "What a trace has found so far; one that nobody reads for ten seconds ends"
    yield Operation("GET", f"{ROOT}/traces/{{trace}}", "traced", summary, traces.read, "Trace", (which,), gone)
    yield Operation(
        "DELETE", f"{ROOT}/traces/{{trace}}", "untrace", "End a trace", traces.cancel, "Trace", (which,), gone, token=True
    )
