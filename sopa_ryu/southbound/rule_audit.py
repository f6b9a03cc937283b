"""Comparison of a switch's intended rules with the installed ones, entry by entry with counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flowrules.model import (
    Action,
    AnswerArp,
    Choose,
    ConsumeHop,
    Does,
    Field,
    Flow,
    HashOver,
    LearnNoMore,
    LearnSender,
    LookUp,
    Output,
    SendNoMore,
    SendStart,
    SetField,
    SwitchRules,
    Table,
    ToController,
    ToGroup,
)
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.messages import UNKNOWN_INSTRUCTIONS, Installed
from sopa_ryu.southbound import openflow

_WORDS: dict[type, Callable[[Any], str]] = {
    Output: lambda action: f"output to port {action.port}",
    ToGroup: lambda action: f"hand to group {action.group}",
    ToController: lambda _action: "send to the controller",
    SendStart: lambda action: f"send {action.bytes} bytes of it to the controller",
    SendNoMore: lambda action: f"send no more for a second, up to {1 << action.bits}",
    SetField: lambda action: f"set {action.field} to {action.value}",
    Choose: lambda action: (
        f"choose one of {action.number} by a hash of the {'addresses' if action.addresses else 'flow'}"
    ),
    ConsumeHop: lambda action: f"write 'not taken' over up{action.hop + 1}",
    AnswerArp: lambda action: f"answer ARP with {action.mac}",
    LearnSender: lambda action: (
        "learn the sender's Ethernet address" + (f" for {action.seconds} s" if action.seconds else "")
    ),
    LearnNoMore: lambda action: f"learn no more for a second, up to {1 << action.bits} senders",
    LookUp: lambda action: f"look up table {int(action.table)}",
    HashOver: lambda action: f"hash over ports {', '.join(map(str, action.ports))}",
}
LEARNED = {
    Table.DOWN: "an undeliverable packet was sent to the controller less than a second ago",
    Table.DELIVER: "a host's Ethernet address, learned from its ARP",
    Table.LEARN: "a sender was learned less than a second ago",
}


def rules(
    name: str,
    wanted: SwitchRules,
    version: int,
    rules_version: int,
    flows: Iterable[Any],
    groups: dict[int, tuple[int, ...]],
) -> dict[str, Any]:
    """Return the body of ``GET /sopa/v1/switches/{name}/rules``.

    Args:
        name: The switch's name.
        wanted: The intended rules at the fabric's version.
        version, rules_version: The fabric's version, and the version of the rules that the switch was sent last.
        flows: Bodies of the switch's flow statistics.
        groups: From the id of each of the switch's groups to its ports.
    """
    missing = rule_changes.identities(wanted)
    entries = []
    others = []
    for body in flows:
        installed = openflow.installed_flow(body)
        flow = rule_changes.intended(installed, missing)
        if flow is not None:
            entries.append(_entry(flow, "installed", body.packet_count, body.byte_count))
        else:
            others.append((body, installed))
    for body, installed in others:
        place = (installed.table, installed.priority, frozenset(installed.match))
        replaced = next((key for key, flow in missing.items() if place == _place(flow)), None)
        if replaced is None:
            entries.append(_unknown(body, installed))
        else:
            # in the place of an intended entry: it does something else, or somebody else installed it
            entry = _entry(missing.pop(replaced), "different", body.packet_count, body.byte_count)
            entries.append({**entry, "does": _installed_does(installed)})
    entries += [_entry(flow, "missing", None, None) for flow in missing.values()]
    entries.sort(key=lambda entry: (entry["table"], -entry["priority"], str(entry["match"])))
    group_list = _groups(wanted, groups)
    return {
        "switch": name,
        "version": version,
        "rules_version": rules_version,
        "right": all(each["state"] in ("installed", "learned") for each in (*entries, *group_list)),
        "entries": entries,
        "groups": group_list,
    }


def _entry(flow: Flow, state: str, packets: int | None, size: int | None) -> dict[str, Any]:
    return {
        "table": int(flow.table),
        "priority": flow.priority,
        "match": {field: _value(value) for field, value in flow.match},
        "does": _does(flow),
        "purpose": flow.purpose,
        "state": state,
        "packets": packets,
        "bytes": size,
    }


def _unknown(body: Any, installed: Installed) -> dict[str, Any]:
    learned = rule_changes.is_learned(installed)
    why = LEARNED[Table(installed.table)] if learned else "unknown to this controller"
    return {
        "table": body.table_id,
        "priority": body.priority,
        "match": {field: _value(value) for field, value in body.match.items()},
        "does": [] if learned else _installed_does(installed),
        "purpose": why,
        "state": "learned" if learned else "stale",
        "packets": body.packet_count,
        "bytes": body.byte_count,
    }


def _place(flow: Flow) -> tuple[int, int, frozenset[Field]]:
    return flow.table, flow.priority, frozenset(flow.match)


def _installed_does(installed: Installed) -> list[str]:
    if installed.does is None or installed.does == UNKNOWN_INSTRUCTIONS:
        return ["something that no rule does"]
    return _does(installed.does)


def _does(flow: Flow | Does) -> list[str]:
    def words(actions: tuple[Action, ...]) -> list[str]:
        return [_WORDS[type(action)](action) for action in actions]

    done = words(flow.apply) + words(flow.write)
    if flow.metadata is not None:
        done.append(f"set metadata to {flow.metadata}")
    if flow.goto is not None:
        done.append(f"go to table {int(flow.goto)}")
    return done or ["drop"]


def _value(value: Any) -> Any:
    return "/".join(map(str, value)) if isinstance(value, tuple) else value


def _groups(wanted: SwitchRules, groups: dict[int, tuple[int, ...]]) -> list[dict[str, Any]]:
    meant = {group.id: tuple(bucket.port for bucket in group.buckets) for group in wanted.groups}
    found = []
    for number in sorted({*meant, *groups}):
        if number not in groups:
            state = "missing"
        elif number not in meant:
            state = "stale"
        else:
            state = "installed" if groups[number] == meant[number] else "different"
        found.append({"id": number, "ports": list(groups.get(number, meant.get(number, ()))), "state": state})
    return found
