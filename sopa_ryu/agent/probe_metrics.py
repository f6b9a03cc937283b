"""The metrics of path probes: `AgentMetrics` has them among the others."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sopa_ryu.agent.probing.path_health import CAUSES
from sopa_ryu.agent.probing.prober import Prober
from sopa_ryu.agent.probing.programs import REFUSED, ProbeProgram, Seen
from sopa_ryu.agent.probing.streams import Refusal
from sopa_ryu.agent.reaction import Reaction


class ProbeMetrics:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._probes = _counter("probes", "Probes of this host by what became of them; unsent ones the device did not take.",
                                "result")  # fmt: skip
        self._answers = _counter("probe_answers", "Probes of other hosts that were answered.")
        self._refused = _counter("refused_probes", "Probes and answers that were refused, by reason.", "reason")
        self._avoided = GaugeMetricFamily("sopa_agent_avoided_paths", "Candidate paths, of all racks together, that this host "
                                          "avoids by itself.", labels=["interface"])  # fmt: skip
        self._left = _counter("paths_left", "How often this host has left paths, those over a link together, by cause: row (probes "
                              "in a row lost), share (of losses).", "cause")  # fmt: skip
        self._returned = _counter("paths_returned", "How often it has taken such paths again.")
        self._again = _counter(
            "retransmissions", "TCP segments sent again of which it is known which path had carried them."
        )

    @property
    def families(self) -> list[Metric]:
        """All of them."""
        return [self._probes, self._answers, self._refused, self._avoided, self._left, self._returned, self._again]

    def add(self, labels: Sequence[str], prober: Prober, program: ProbeProgram) -> None:
        """Add an interface's."""
        streams, seen = prober.streams, program.seen()
        results = (("came_back", streams.came_back), ("lost", streams.lost), ("unsent", prober.unsent))
        for result, count in results:
            self._probes.add_metric([*labels, result], count)
        self._answers.add_metric(labels, seen[Seen.ANSWERED])
        for what in REFUSED:
            self._refused.add_metric([*labels, what.name.lower()], seen[what])
        for refusal in Refusal:
            self._refused.add_metric([*labels, str(refusal)], streams.refused[refusal])

    def add_reaction(self, labels: Sequence[str], reaction: Reaction, avoided: int) -> None:
        """Add what an interface's host has left, and the paths that it avoids now."""
        self._avoided.add_metric(labels, avoided)
        for cause in CAUSES:
            self._left.add_metric([*labels, cause], reaction.left[cause])
        self._returned.add_metric(labels, reaction.returned)
        self._again.add_metric(labels, reaction.retransmissions)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_agent_{name}", text, labels=["interface", *labels])
