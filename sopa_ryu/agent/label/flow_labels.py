"""How an agent labels a flow: what it tells an operator who asks. Pure."""

from __future__ import annotations

from sopa_ryu.agent.label.spray import EVERYTHING, ICMP, ICMPV6, PROTOCOLS, Spray
from sopa_ryu.agent.paths.flow_hash import IPV6_KEY, FlowKey, flow_hash, scaled
from sopa_ryu.agent.paths.path_table import PathTable, Policy
from sopa_ryu.channel.messages import MAX_LABELS, FlowLabels

_BY_LOAD = (Policy.LEAST_USED, Policy.FLOWLET, Policy.FLOWCELL, Policy.SOPA_SKIP)
"""Policies whose choices depend on the packets' sizes, times and losses, or on other flows."""
_WITH_PORTS6 = frozenset(PROTOCOLS.values()) - {ICMP} | {ICMPV6}
"""Protocols whose ports or identifiers are hashed with IPv6; of others the flow label is, which who asks does not know."""


def flow_labels(table: PathTable, key: FlowKey, policy_name: str, spray: Spray = EVERYTHING) -> FlowLabels:
    """Return how an agent labels a flow's packets: by the table in force, from the flow's first packet on.

    Args:
        policy_name: The policy as on the command line: of MCS and CFR, which choose otherwise, it is not the table's.

    >>> from topologies import Failures, FatTree
    >>> from sopa_ryu.agent.paths.path_sets import path_table
    >>> tree = FatTree(4)
    >>> table = path_table(tree, tree.host("h0_0_2"), Failures(tree), 1, Policy.ROUND_ROBIN)
    >>> flow_labels(table, FlowKey.of("10.0.0.2", "10.2.1.3", 6, 40000, 5001), "round-robin").labels
    ((0, 1), (1, 1), (0, 0), (1, 0))

    A flow that is not sprayed has the path of its hash:

    >>> flow_labels(table, FlowKey.of("10.0.0.2", "10.2.1.3", 17, 40000, 443), "round-robin", Spray.of("tcp"))
    FlowLabels(policy='hash', exact=True, length=1, labels=((1, 1),))
    """
    if policy_name == table.policy.option_name and not spray.sprays(key):
        return flow_labels(table._replace(policy=Policy.HASH), key, Policy.HASH.option_name)
    hidden = bool(key.proto & IPV6_KEY) and key.protocol not in _WITH_PORTS6
    candidates = (not key.leaves and table.candidates(key.daddr)) or ()
    count = len(candidates)
    if not candidates or hidden or policy_name != table.policy.option_name or table.policy in _BY_LOAD:
        return FlowLabels(policy_name, count == 1, int(count == 1), tuple(dict.fromkeys(candidates)))
    if table.policy is Policy.HASH or count == 1:
        return FlowLabels(policy_name, True, 1, (candidates[scaled(flow_hash(key, table.seed), count)],))
    at_random = table.policy is Policy.RANDOM
    turns = min(count, MAX_LABELS) if not at_random else MAX_LABELS
    labels = [table.choose(key, n) for n in range(turns)]
    return FlowLabels(policy_name, True, 0 if at_random else count, tuple(label for label in labels if label))
