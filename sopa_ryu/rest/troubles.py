"""What is not well with a fabric: one rule for ``sopa status`` and the page. Pure."""

from __future__ import annotations

import re
from typing import Any

from sopa_ryu.rest.reader import FabricReader
from topologies import Reason

LAG_SECONDS = 1.0
"""Agents need tens of milliseconds for a version: longer than this one is behind."""


def troubles(fabric: FabricReader, now: float) -> list[dict[str, Any]]:
    """Return the field ``troubles`` of ``GET /fabric``: each kind with the number of its objects, none while all is well.

    A member that stands by does not know of agents, probes and arbiter. Where no agent has connected yet, hosts need none.
    """
    state, cluster, arbiter = fabric.state, fabric.cluster, fabric.arbiter.report()
    suspects = fabric.health.suspects
    failed = [each["reason"] for each in state.failure_list()]
    drained = failed.count(Reason.DRAINED)
    found = [
        ("leader", cluster is not None and cluster.report()["leader"] is None, "no member of the cluster leads"),
        ("failed", len(failed) - drained, "{} failed: sopa failures"),
        ("drained", drained, "{} drained: sopa failures"),
        ("missing", len(state.missing), "{} [switch|switches] not connected"),
        ("rejected", len(state.rejected), "{} [switch|switches] ignored"),
        ("setup", len(state.setup["problems"]), "{} [mistake|mistakes] in switches' set-up"),
        ("suspects", len({one.name for one in suspects}), "{} [link loses|links lose] packets: sopa health --suspects"),
        ("gateways", sum(each["away"] is not None for each in state.gateways()), "{} [gateway|gateways] away"),
        ("arbiter", arbiter is not None and not arbiter["connected"], "the arbiter is gone"),
    ]
    if cluster is None or cluster.is_leader:
        relays = [] if cluster is None else cluster.report()["relays"]
        needed = state.tree.host_count - len({*fabric.no_label, *state.tree.gateways})
        have = len(fabric.agents.sessions) + sum(relay["agents"] for relay in relays)
        late = [agent for agent in fabric.agents.behind(state.version) if now - (agent.behind_since or now) > LAG_SECONDS]
        if fabric.agents.seen or relays:
            found.append(("agents", max(0, needed - have), "{} [host|hosts] without an agent: sopa agents --missing"))
        found.append(("behind", len(late) + sum(relay["waiting"] for relay in relays), "{} [agent|agents] behind: sopa agents"))
    return [{"kind": kind, "count": int(count), "text": _counted(text, int(count))} for kind, count, text in found if count]


def _counted(text: str, count: int) -> str:
    """Return a text with its number, and of "[one|several]" what fits it."""
    return re.sub(r"\[(.*?)\|(.*?)\]", r"\1" if count == 1 else r"\2", text).format(count)
