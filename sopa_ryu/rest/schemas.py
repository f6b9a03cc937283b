"""JSON Schemas (2020-12) of the answers of the REST interface: the components of its OpenAPI document."""

from __future__ import annotations

from typing import Any

from flowrules.label import Carrier
from sopa_ryu.channel.messages import MAX_COUNT, MAX_INTERVAL_MS, MAX_PATHS, MIN_INTERVAL_MS, REPORTED
from sopa_ryu.events.event import EventKind

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_BOOLEAN: Schema = {"type": "boolean"}
_REPORTED = {str: _STRING, int: _INTEGER, float: _NUMBER}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(properties: Schema, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": [name for name in properties if name not in optional], **more}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _page(key: str, items: Schema, optional: tuple[str, ...] = (), **more: Schema) -> Schema:
    its = {"version": _INTEGER, **more, "total": _INTEGER, "offset": _INTEGER, key: _list(items)}
    return _object(its, optional)


_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    (
        f"({_HEX}:){{7}}{_HEX}",
        f"({_HEX}:){{1,7}}:",
        *(f"({_HEX}:){{1,{7 - after}}}(:{_HEX}){{1,{after}}}" for after in range(1, 7)),
        f":(:{_HEX}){{1,7}}",
        "::",
    )
)
HOST_PATTERN = rf"^(({_OCTET}\.){{3}}{_OCTET}|{_IPV6}|h[0-9]{{1,3}}_[0-9]{{1,3}}_[0-9]{{1,3}})$"
"""A host's address or name."""
NAME_PATTERN = "^[A-Za-z][A-Za-z0-9._-]{0,126}$"
"""An own name or alias of a switch, link or host."""
END: Schema = {"type": "string", "pattern": HOST_PATTERN}
_UP = _list({"type": "integer", "minimum": 0, "maximum": 254}, maxItems=2)

_RELAYS: Schema = _list(
    _object({"name": _STRING, "url": _STRING, "agents": _INTEGER, "version": _INTEGER, "waiting": _INTEGER}),
    description="`version` is the latest that all of a relay's agents have in force, `waiting` how many have not the "
    "relay's present one",
)

_PATH: Schema = {"up": _UP, "option": {"type": "string", "pattern": "^9e04[0-9a-f]{4}$"}, "hops": _list(_STRING)}
_PROBED: Schema = {
    **dict.fromkeys(("sent", "lost", "lost_out", "lost_back"), _INTEGER),
    **dict.fromkeys(("min_us", "median_us", "p99_us"), _maybe({"type": "number"})),
}
_PORT: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
_FLOW: Schema = {"protocol": {"type": "integer", "minimum": 0, "maximum": 255}, "sport": _PORT, "dport": _PORT}

_GATEWAY: Schema = {"type": "string", "description": "of a path to the outside: the host that leads out of the fabric"}

_ALIAS: Schema = {"type": "string", "description": "what operators call it; absent without a name of theirs"}
_RACK: Schema = {"type": "string", "description": "where it is; absent if the fabric file does not say it"}

_SINCE: Schema = {**_maybe(_NUMBER), "description": "seconds since 1970"}
_DRAIN: Schema = _object(
    {"since": _SINCE, "actor": _STRING, "reason": _STRING, "until": _maybe(_NUMBER)},
    description="who drained it, since when and why, and when that ends by itself, or null; what is not known is null or empty",
)
_EVENT: Schema = _object(
    {
        "id": _INTEGER,
        "at": _NUMBER,
        "kind": {"type": "string", "examples": [str(kind) for kind in EventKind]},
        "element": _maybe(_STRING),
        "cause": _maybe(_STRING),
        "actor": _maybe(_STRING),
        "version": _maybe(_INTEGER),
        "alias": _ALIAS,
        "rack": _RACK,
    },
    optional=("alias", "rack"),
)

SCHEMAS: dict[str, Schema] = {
    "Problem": _object(
        {"type": _STRING, "title": _STRING, "status": {"type": "integer"}, "detail": _STRING},
        description="RFC 9457: `detail` says what is wrong with the request and how to correct it.",
    ),
    "Failure": _object(
        {
            "name": _STRING,
            "kind": {"enum": ["link", "switch"]},
            "reason": _STRING,
            "since": {**_maybe(_NUMBER), "description": "when it was excluded, as far as the controller knows: seconds since 1970"},
            "drain": _DRAIN,
            "held_seconds": _maybe(_NUMBER),
            "alias": _ALIAS,
            "rack": _RACK,
        },
        optional=("since", "drain", "held_seconds", "alias", "rack"),
    ),
    "Fabric": _object(
        {
            "k": _maybe({"type": "integer", "minimum": 2}),
            **dict.fromkeys(("pods", "edges", "aggregations", "cores", "hosts_per_edge"), _INTEGER),
            "hosts": _INTEGER,
            "prefix6": {**_STRING, "description": "of the hosts' IPv6 addresses; absent with IPv4 only"},
            "switches": _object({"edge": _INTEGER, "aggregation": _INTEGER, "core": _INTEGER}),
            "connected": _INTEGER,
            "version": _INTEGER,
            "epoch": _INTEGER,
            "settled": _BOOLEAN,
            "carrier": {"enum": [*map(str, Carrier)]},
            "troubles": _list(
                _object({"kind": _STRING, "count": _INTEGER, "text": _STRING}), description="what is not well; empty while all is"
            ),
            "failures": _list(_ref("Failure"), description="the first 1,000; /sopa/v1/failures has all"),
            "failures_total": _INTEGER,
            "no_switches": {**_BOOLEAN, "description": "no switch is this controller's (--sopa-no-switches); absent otherwise"},
            "missing": _list(_STRING),
            "rejected": _list(_object({"dpid": _STRING, "reason": _STRING})),
            "no_channel": _list(
                _STRING, description="switches without an OpenFlow channel that are presumed to forward by the rules they have"
            ),
            "management": _object(
                {"fault": _BOOLEAN, "detail": _STRING, "channels_faults": _INTEGER, "pauses_faults": _INTEGER},
                description="whether nothing is withdrawn because many channels were lost or the controller stood still",
            ),
            "bfd": _object({"enabled": _BOOLEAN, "detail": _STRING}),
            "setup": _object(
                {
                    "checked": _INTEGER,
                    "detail": _STRING,
                    "problems": _list(_object({"switch": _STRING, "check": _STRING, "problem": _STRING, "mend": _STRING})),
                }
            ),
            "gateways": _list(
                _object({"name": _STRING, "address": _STRING, "away": _maybe(_STRING)}),
                description="the hosts that lead out of the fabric, and why no packet may go to one; absent without any",
            ),
            "cluster": _object(
                {"role": {"enum": ["leader", "standby"]}, "term": _INTEGER, "leader": _maybe(_STRING)},
                description="of a member of a cluster: whether it leads, since which term, and who does; absent without one",
            ),
            "arbiter": _object(
                {
                    "connected": _BOOLEAN,
                    "peer": _maybe(_STRING),
                    "term": _INTEGER,
                    "since": _NUMBER,
                    "version": _INTEGER,
                    "reports": _object({name: _REPORTED[kind] for name, kind in REPORTED.items()}, optional=tuple(REPORTED)),
                },
                description="the arbiter (sopa arbiter), connected or gone: its address, its term, since when (seconds since "
                "1970), the version that it has in force, and what it says of itself; absent until there has been one",
            ),
        },
        optional=("prefix6", "no_switches", "gateways", "cluster", "arbiter"),
    ),
    "Cluster": _object(
        {
            "name": _STRING,
            "term": _INTEGER,
            "leader": _maybe(_STRING),
            "members": _list(
                _object(
                    {
                        "name": _STRING,
                        "role": {"enum": ["leader", "standby", "away"]},
                        "lag": _maybe(_INTEGER),
                        "url": _STRING,
                        "program": _STRING,
                        "switches": _INTEGER,
                    }
                ),
                description="the controllers: `lag` is how many versions one's view is behind the leader's, null if that is not "
                "known; one that is `away` was a member, and has no lease any more",
            ),
            "relays": _RELAYS,
            "engine": _object({"reachable": _BOOLEAN, "problem": _maybe(_STRING)}),
        },
        description="`leader` is the name of the member that leads, null while nobody does",
    ),
    "Paths": _object(
        {
            "src": _STRING,
            "dst": _STRING,
            "kind": {"enum": ["intra-rack", "inter-rack", "inter-pod", "outside"]},
            "version": _INTEGER,
            "total": _INTEGER,
            "candidates": _list(
                _object(
                    {
                        **_PATH,
                        "weight": {
                            "type": "number",
                            "minimum": 0,
                            "maximum": 1,
                            "description": "the path's share of a flow's packets; those of all candidates sum to 1",
                        },
                        "gateway": _GATEWAY,
                        "usids": {**_STRING, "description": "with srv6 in the fabric file: the list of the path"},
                    },
                    optional=("address6", "gateway", "usids"),
                ),
                description="in round-robin order",
            ),
            "excluded": _list(_object({"up": _UP, "reason": _STRING, "gateway": _GATEWAY}, optional=("gateway",))),
            "packets": _list(_INTEGER, description="for each packet, the index of its path in `candidates`"),
        },
        optional=("packets",),
    ),
    "Switches": _page(
        "switches",
        _object(
            {
                "name": _STRING,
                "level": {"enum": ["edge", "aggregation", "core"]},
                "dpid": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
                "connected": _BOOLEAN,
                "rules_version": _maybe(_INTEGER),
                "failure": _maybe(_STRING),
                "address": _maybe(_STRING),
                "alias": _ALIAS,
                "rack": _RACK,
            },
            optional=("alias", "rack"),
        ),
    ),
    "Links": _page(
        "links",
        _object(
            {
                "name": _STRING,
                "lower": _object({"name": _STRING, "port": _maybe(_INTEGER)}),
                "upper": _object({"name": _STRING, "port": _INTEGER}),
                "failure": _maybe(_STRING),
                "up_bits_per_second": _maybe(_NUMBER),
                "down_bits_per_second": _maybe(_NUMBER),
                "capacity_bits_per_second": _maybe(_NUMBER),
                "alias": _ALIAS,
                "rack": _RACK,
            },
            optional=("alias", "rack"),
        ),
    ),
    "Hosts": _page(
        "hosts",
        _object(
            {
                "name": _STRING,
                "address": _STRING,
                "address6": {**_STRING, "description": "of IPv6; without a prefix for it nothing has this field"},
                "mac": _STRING,
                "switch": _STRING,
                "port": _INTEGER,
                "agent": _BOOLEAN,
                "gateway": {**_BOOLEAN, "description": "it leads out of the fabric; without gateways nothing has this field"},
                "alias": _ALIAS,
                "rack": _RACK,
            },
            optional=("address6", "gateway", "alias", "rack"),
        ),
    ),
    "Names": _page(
        "names",
        _object(
            {
                "name": _STRING,
                "alias": _ALIAS,
                "rack": _RACK,
                "ports": {"type": "object", "additionalProperties": _STRING, "description": "the labels of its ports, by port"},
            },
            optional=("alias", "rack", "ports"),
        ),
    ),
    "Failures": _page(
        "failures",
        _ref("Failure"),
        ("groups",),
        groups=_list(
            _object({"switch": _STRING, "links": _list(_STRING)}),
            description="switches all of whose links to others have failed: the likely cause of these failures",
        ),
    ),
    "Left": _object(
        {
            "pairs_without_path": {**_maybe(_INTEGER), "description": "of racks; null if that is too irregular to count"},
            "cut_off": _list(_STRING, description="racks that reach no other: the first 20"),
            "fewest_paths": {**_maybe(_INTEGER), "description": "between two racks that have any"},
            "bisection": {**_maybe(_NUMBER), "description": "at most so much fits between two halves of the fabric"},
            "oversubscription": {
                "type": "object",
                "additionalProperties": _object({"ratio": _maybe(_NUMBER), "switch": _STRING}),
                "description": "by level the largest ratio of the capacity below a switch to that above; null: nothing is above",
            },
        }
    ),
    "Impact": _object(
        {
            "version": _INTEGER,
            "without": _list(_STRING),
            "planned": _ref("Left"),
            "now": _ref("Left"),
            "left": {**_ref("Left"), "description": "if those of `without` were drained, or failed, as well"},
            "in_mbit": {**_BOOLEAN, "description": "whether capacities are in Mbit/s; otherwise they are in links"},
            "hosts_without_agent": {**_INTEGER, "description": "they learn of nothing: switches lead their packets around"},
        }
    ),
    "Changes": _page(
        "changes",
        _object(
            {
                "version": _INTEGER,
                "at": _NUMBER,
                "failed": {"type": "object", "additionalProperties": _STRING},
                "healed": _list(_STRING),
                "agents": _INTEGER,
                "acknowledged_ms": _maybe(_NUMBER),
                "installed_ms": _maybe(_NUMBER),
            }
        ),
        epoch=_INTEGER,
    ),
    "Drains": _page("drains", _STRING, details={"type": "object", "additionalProperties": _DRAIN}),
    "Events": _object(
        {
            "version": _INTEGER,
            "cluster": _object({"role": {"enum": ["leader", "standby"]}, "term": _INTEGER, "leader": _maybe(_STRING)}),
            "events": _list(_EVENT),
            "last": {**_INTEGER, "description": "the next request's `after`"},
            "more": {**_BOOLEAN, "description": "whether there are more by now"},
        },
        optional=("cluster",),
    ),
    "Wiring": _page(
        "problems",
        _object({"link": _STRING, "kind": {"enum": ["swapped", "foreign", "missing"]}, "detail": _STRING}),
        links=_INTEGER,
        right=_INTEGER,
        unchecked=_INTEGER,
        refused=_INTEGER,
        also_heard=_list(_object({"at": _STRING, "who": _STRING})),
    ),
    "Agents": _page(
        "agents",
        _object(
            {
                "host": _STRING,
                "address": _STRING,
                "peer": _STRING,
                "since": _SINCE,
                "carrier": _maybe(_STRING),
                "policy": _maybe(_STRING),
                "spray": _maybe(_STRING),
                "version": _INTEGER,
                "lag": {"type": "integer"},
                "lag_seconds": _NUMBER,
                "acknowledged_ms": _maybe(_NUMBER),
                "last_contact_seconds": _NUMBER,
                "refused": _INTEGER,
                "refuses": _INTEGER,
                "alias": _ALIAS,
                "rack": _RACK,
            },
            optional=("alias", "rack"),
        ),
        optional=("relays",),
        epoch=_INTEGER,
        behind=_INTEGER,
        refused={"type": "object", "additionalProperties": _INTEGER},
        relays=_RELAYS,
    ),
    "TraceRequest": _object(
        {
            "src": END,
            "dst": END,
            "up": _list(
                _UP, description="the paths; all candidate paths by default, if they are 64 at most", minItems=1, maxItems=MAX_PATHS
            ),
            "all": {**_BOOLEAN, "description": "all candidate paths, however many"},
            "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT, "description": "probes of each path; 20 by default"},
            "interval_ms": {
                "type": "number",
                "minimum": MIN_INTERVAL_MS,
                "maximum": MAX_INTERVAL_MS,
                "description": "between probes; 10 by default",
            },
            "flow": _object(
                _FLOW,
                optional=tuple(_FLOW),
                additionalProperties=False,
                description="tell which way this flow takes, instead of sending probes",
            ),
        },
        optional=("up", "all", "count", "interval_ms", "flow"),
        additionalProperties=False,
    ),
    "Trace": _object(
        {
            "id": _INTEGER,
            "src": _STRING,
            "dst": _STRING,
            "kind": {"enum": ["intra-rack", "inter-rack", "inter-pod"]},
            "version": _INTEGER,
            "state": {"enum": ["running", "done", "failed", "cancelled"]},
            "problem": _maybe(_STRING),
            "count": _INTEGER,
            "interval_ms": _NUMBER,
            "probes": {**_INTEGER, "description": "of all paths"},
            "decided": {**_INTEGER, "description": "probes whose fate is known"},
            "paths": _list(_object({**_PATH, "weight": _NUMBER, **_PROBED}), description="in round-robin order"),
            "links": _list(
                _object({"links": _list(_STRING), "paths": _list(_INTEGER), **_PROBED, "loss": _NUMBER}),
                description="groups of links that the same of `paths` cross, so that nothing tells them apart: sent and lost of "
                "these paths; the part lost and the delay there and back by difference to the groups beside it",
            ),
            "undecided": {**_INTEGER, "description": "lost probes that are too few to say on which links"},
            "excluded": _list(_object({"up": _UP, "reason": _STRING}), description="candidate paths that packets do not take now"),
            "order": _object(
                {"paths": _list(_UP), "length": _INTEGER},
                description="the order in which a flow's packets take the candidate paths, from a start of its own: the first 64",
            ),
            "flow": _maybe(
                _object(
                    {
                        **_FLOW,
                        "labelled": _BOOLEAN,
                        "policy": _maybe(_STRING),
                        "exact": _BOOLEAN,
                        "why": _STRING,
                        "ways": _list(_object({**_PATH, "links": _list(_STRING), "share": _maybe(_NUMBER)})),
                        "order": _object({"ways": _list(_INTEGER), "length": _INTEGER}),
                        "others": _list(_object({**_PATH, "links": _list(_STRING)}), description="ways of other flows"),
                    }
                )
            ),
        },
        optional=("count", "interval_ms", "probes", "decided", "paths", "links", "undecided", "excluded", "order", "flow"),
    ),
    "Health": _page(
        "links",
        _object(
            {
                "name": _STRING,
                "loss": _object(
                    {"up": _maybe(_SHARE), "down": _maybe(_SHARE)},
                    description="the share of packets lost in each direction; null while no probe crosses the link",
                ),
                "delay_us": {**_maybe(_NUMBER), "description": "microseconds there and back"},
                "suspect": _BOOLEAN,
                "confidence": {**_SHARE, "description": "of a suspect: the probability that it is this link and no other"},
                "hosts": {**_INTEGER, "description": "of a suspect: how many hosts have reported losses"},
                "action": _maybe({"enum": ["drained"]}),
            }
        ),
        running={**_BOOLEAN, "description": "whether reports are being evaluated"},
        policy={"enum": ["warn", "drain"]},
        probing={**_INTEGER, "description": "hosts whose agents probe and answer probes"},
        suspects={**_INTEGER, "description": "suspect links"},
        streams={**_INTEGER, "description": "streams of probes that the controller has given to agents"},
        unknown={**_INTEGER, "description": "links in use that no probe has crossed in five minutes: nothing is known of them"},
    ),
    "Process": _object({"pid": _INTEGER, "memory_mib": _NUMBER, "open_files": _INTEGER, "greenlets": _INTEGER}),
    "Rules": _object(
        {
            "switch": _STRING,
            "version": _INTEGER,
            "rules_version": _INTEGER,
            "right": {"type": "boolean", "description": "whether exactly the intended entries and groups are installed"},
            "entries": _list(
                _object(
                    {
                        "table": _INTEGER,
                        "priority": _INTEGER,
                        "match": _object({}, additionalProperties=True),
                        "does": _list(_STRING),
                        "purpose": _STRING,
                        "state": {"enum": ["installed", "missing", "stale", "different", "learned"]},
                        "packets": _maybe(_INTEGER),
                        "bytes": _maybe(_INTEGER),
                    }
                )
            ),
            "groups": _list(
                _object(
                    {
                        "id": _INTEGER,
                        "ports": _list({"type": "integer"}),
                        "state": {"enum": ["installed", "missing", "stale", "different"]},
                    }
                )
            ),
        }
    ),
}
