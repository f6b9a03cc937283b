"""A switch's intended rules beside the installed ones; every few minutes what somebody else changed is mended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flowrules.model import (
    IN_PORT,
    Action,
    AnswerArp,
    AnswerSolicitation,
    Choose,
    ConsumeHop,
    Does,
    Field,
    Flow,
    HashOver,
    LearnNeighbour,
    LearnNoMore,
    LearnNoNeighbour,
    LearnSender,
    LookUp,
    Output,
    OutputHop,
    SendNoMore,
    SendNoMore6,
    SendStart,
    SetField,
    SwitchRules,
    Table,
    ToController,
    ToGroup,
)
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.messages import UNKNOWN_INSTRUCTIONS, Installed, InstalledState
from sopa_ryu.fabric.rule_changes import cookie_mark
from sopa_ryu.fabric.switch_session import SwitchError, SwitchPhase, SwitchSession
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import connection_of
from topologies import Switch


def _learns(action: LearnSender | LearnNeighbour) -> str:
    return "learn the sender's Ethernet address" + (f" for {action.seconds} s" if action.seconds else "")


def _learns_no_more(action: LearnNoMore | LearnNoNeighbour) -> str:
    return f"learn no more for a second, up to {1 << action.bits} senders"


def _sends_no_more(action: SendNoMore | SendNoMore6) -> str:
    return f"send no more for a second, up to {1 << action.bits}"


_WORDS: dict[type, Callable[[Any], str]] = {
    Output: lambda action: f"output to {'the port it came by' if action.port == IN_PORT else f'port {action.port}'}",
    ToGroup: lambda action: f"hand to group {action.group}",
    ToController: lambda _action: "send to the controller",
    SendStart: lambda action: f"send {action.bytes} bytes of it to the controller",
    **dict.fromkeys((SendNoMore, SendNoMore6), _sends_no_more),
    SetField: lambda action: f"set {action.field} to {action.value}",
    Choose: lambda action: f"choose one of {action.number} by a hash of the {'addresses' if action.addresses else 'flow'}",
    ConsumeHop: lambda action: f"write 'not taken' over up{action.hop + 1}",
    OutputHop: lambda action: f"output to the port that up{action.hop + 1} names",
    AnswerArp: lambda action: f"answer ARP with {action.mac}",
    AnswerSolicitation: lambda action: f"answer the neighbour solicitation with {action.mac}",
    **dict.fromkeys((LearnSender, LearnNeighbour), _learns),
    **dict.fromkeys((LearnNoMore, LearnNoNeighbour), _learns_no_more),
    LookUp: lambda action: f"look up table {int(action.table)}",
    HashOver: lambda action: f"hash over ports {', '.join(map(str, action.ports))}",
}
LEARNED = {
    Table.DOWN: "an undeliverable packet was sent to the controller less than a second ago",
    Table.DELIVER: "a host's Ethernet address, learned from its ARP or neighbour discovery",
    Table.LEARN: "a sender was learned less than a second ago",
}


class RuleChecker:
    """Compares what is installed with what was confirmed, of each switch once in ``interval`` seconds.

    A switch says nothing when another program changes its entries. An update never waits for this: what was read while the rules
    changed is thrown away, and read again in the next round. ``found`` is called with what is installed.

    Attributes:
        others: First bytes of the cookies of other applications in this controller; their entries are ignored.
        unanswered: How many checks a switch refused, or did not answer.
    """

    def __init__(
        self, sessions: Mapping[Switch, SwitchSession], interval: float, found: Callable[[SwitchSession, InstalledState], None]
    ) -> None:
        self.interval = interval
        self.others: set[int] = set()
        self.unanswered = 0
        self._sessions = sessions
        self._found = found

    def rounds(self) -> None:
        """Run until killed: check one switch after the other, each once an interval."""
        while True:
            turns: Collection[Switch | None] = sorted(self._sessions) or [None]
            for switch in turns:
                hub.sleep(self.interval / len(turns))
                session = None if switch is None else self._sessions.get(switch)
                if session is not None and session.phase is SwitchPhase.IN_FORCE:
                    self.check(session)

    def check(self, session: SwitchSession) -> None:
        """Read a switch's rules, and hand on what was found if its rules were not changed meanwhile."""
        confirmed, connection = session.rules, connection_of(session)
        try:
            bodies, groups = connection.flow_statistics(), connection.groups()
        except SwitchError:
            self.unanswered += 1  # a lost channel and a refused message have log lines of their own
            return
        if session.phase is SwitchPhase.IN_FORCE and session.rules is confirmed:
            flows = [entry for entry in map(openflow.installed_flow, bodies) if cookie_mark(entry) not in self.others]
            self._found(session, InstalledState(flows, groups))


def rules(
    name: str, wanted: SwitchRules, version: int, rules_version: int, flows: Iterable[Any], groups: dict[int, tuple[int, ...]]
) -> dict[str, Any]:
    """Return the body of ``GET /sopa/v1/switches/{name}/rules``.

    ``wanted`` are the rules at the fabric's version, ``rules_version`` is that of the rules that the switch was sent last.
    ``flows`` are bodies of the switch's flow statistics, ``groups`` the ports of each of its groups.
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
        "does": _does(flow, flow.table),
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
    return _does(installed.does, installed.table)


def _does(flow: Flow | Does, table: int) -> list[str]:
    def words(actions: tuple[Action, ...]) -> list[str]:
        return [_WORDS[type(action)](action) for action in actions]

    done = words(flow.apply) + words(flow.write)
    if flow.metadata is not None:
        done.append(f"set metadata to {flow.metadata}")
    if flow.goto is not None:
        done.append(f"go to table {int(flow.goto)}")
    # what gets there has its port already, in the action set
    return done or ["nothing more: already sent to its port" if table == Table.DELIVER else "drop"]


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
