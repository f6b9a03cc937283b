"""One run of ``sopa demo``: a lab, its traffic and failures, and the tables of what came of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.cli import demo_cluster
from experiments.cli.demo_failure import play
from experiments.cli.lab_isolation import Rate
from experiments.core.machine import CpuIdle, describe
from experiments.emulation.emulated_fabric import DRAIN_SECONDS
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.transfers import PORT, TransferError, TransferResult, Transfers
from experiments.workloads import Plan, Transfer
from flowrules.label import Carrier
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from topologies import Clos, Failures, Host, Level
from topologies.identity import IPV4, Family
from topologies.lab.datapath import DatapathKind

# Of a 1500-byte packet, TCP with timestamps carries 1448 bytes of payload at most; on the wire it is a frame of 1514.
PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514
IPV6_BYTES = 20
"""By which IPv6's header is longer than IPv4's."""
TCP = 6
MINIMUM_IDLE = 10.0


def goodput(rate_mbit: float, carrier: Carrier) -> float:
    """Return the most payload in Mbit/s that TCP by IPv4 has on links of a rate."""
    return rate_mbit * (PAYLOAD_BYTES - carrier.overhead) / FRAME_BYTES


class Demo:
    """One run of the demo: lab, traffic, failures and output."""

    def __init__(
        self, tree: Clos, pairs: Sequence[tuple[Host, Host]], links: Rate, settings: dict[str, Any], out: Console, progress: Console
    ) -> None:
        self.tree = tree
        self.links = links
        self.settings = settings
        self.out = out
        self.progress = progress
        self.plan = tuple(Transfer(src, dst) for src, dst in pairs)
        self.family = tree.families[-1] if "ipv6" in settings else IPV4
        self.top = Level.CORE if tree.cores else Level.AGGREGATION

    def run(self, keep: Callable[[SopaLab], None] | None = None) -> dict[str, Any]:
        """Measure everything, then keep the lab as long as ``keep`` takes, and return the results."""
        settings = self.settings
        options = [f"--{name.replace('_', '-')}={settings[name]}" for name in ("policy", "spray", "fr_threshold", "seed")]
        lab = SopaLab(
            self.tree,
            self.links.mbit,
            say=self.progress.print,
            agent_options=options,
            carrier=Carrier(settings["carrier"]),
            datapath=DatapathKind(settings["datapath"]),
            controllers=settings.get("controllers", 1),
        )
        lab.lab.bfd_ms = self.links.bfd_ms
        with lab:
            before = {}
            if self.family is not IPV4 and lab.cluster is None:
                before["ipv4"] = self._measured(lab, IPV4)
                lab.controller.wait_until(lambda: not lab.controller.fabric()["failures"], "a link stayed out of use")
            measured = self._measured(lab, self.family)
            if keep is not None:
                keep(lab)
        return {**settings, "machine": describe(), **before, **measured}

    def _measured(self, lab: SopaLab, family: Family) -> dict[str, Any]:
        """Run the flows by one family, without a failure and with failures, and show what came of them."""
        if self.family is not IPV4:
            self._say(f"\nIPv{family.number}:")
        traffic, flows = self._traffic(lab, family)
        self._show(traffic, flows, self._goodput(family))
        if lab.cluster is not None:
            failure = demo_cluster.play(lab, self.settings["seed"], self._say, self.progress.print)
        else:
            sending = partial(self._flows, lab, family, "sending during a failure")
            failure = play(self.settings, self.plan, lab, sending, self._say, self.progress.print)
        return {"traffic": traffic, "flows": flows, "failure": failure}

    def _goodput(self, family: Family) -> float:
        """Return the most payload that TCP of a family has in Mbit/s: of IPv6, what its longer header leaves."""
        goodput: float = self.settings["goodput_mbit"]
        if family is IPV4:
            return goodput
        return goodput - self.settings["rate_mbit"] * IPV6_BYTES / FRAME_BYTES

    def _say(self, text: str) -> None:
        self.out.print(text, soft_wrap=True, highlight=False)

    # -- traffic ---------------------------------------------------------------------------------------------------

    def _traffic(self, lab: SopaLab, family: Family) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        before = lab.lab.port_packets(self.top)
        idle = CpuIdle()
        results = self._flows(lab, family, "sending", self.settings["duration"])
        percent = idle.percent()
        time.sleep(DRAIN_SECONDS)
        after = lab.lab.port_packets(self.top)
        core = {name: after[name] - before[name] for name in after}
        flows = [
            {
                "src": self.tree.name(result.transfer.src),
                "dst": self.tree.name(result.transfer.dst),
                "mbit": round(result.mbit, 3),
                "bytes": result.received,
                "seconds": round(result.seconds, 3),
                "retransmits": result.sender.retransmits if result.sender else 0,
                "first_path": self._first_path(result, family),
            }
            for result in results
        ]
        mbit = [result.mbit for result in results]
        rate = self.settings["rate_mbit"]
        traffic = {
            "mean_mbit": round(statistics.mean(mbit), 3),
            "min_mbit": round(min(mbit), 3),
            "share_of_rate": round(statistics.mean(mbit) / rate, 4),
            "share_of_goodput": round(statistics.mean(mbit) / self._goodput(family), 4),
            "core_packets": core,
            "core_max_min": round(max(core.values()) / max(1, min(core.values())), 4),
            "retransmits": sum(result.sender.retransmits for result in results if result.sender),
            "cpu_idle_percent": round(percent, 1),
        }
        return traffic, flows

    def _first_path(self, result: TransferResult, family: Family) -> list[int]:
        """Return the uplinks of the first packet of a flow, computed as the eBPF program of the host does; none without a label."""
        src, dst = result.transfer.src, result.transfer.dst
        if src in self.tree.no_label:
            return []
        policy = Policy.named(self.settings["policy"])
        table = path_table(self.tree, src, Failures(self.tree), self.settings["seed"], policy)
        key = FlowKey.of(family.address(src), family.address(dst), TCP, result.source_port, PORT, self.tree.prefix6)
        chosen = table.choose(key, 0)
        assert chosen is not None
        return list(chosen)

    def _flows(
        self, lab: SopaLab, family: Family, what: str, seconds: int, each: Callable[[float], None] = lambda _elapsed: None
    ) -> list[TransferResult]:
        """Run the permutation with a progress bar. ``each`` is called several times a second with the elapsed seconds."""
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        transfers = Transfers(self.tree, Plan(self.plan, float(seconds)), lab.lab.netns, self.settings["seed"], family=family)
        if not self.progress.is_terminal:
            self.progress.print(f"{what}: {len(self.plan)} flows, {seconds} s")
        with Progress(*columns, console=self.progress, transient=True, disable=not self.progress.is_terminal) as bar:
            task = bar.add_task(f"{what}: {len(self.plan)} flows", total=seconds)

            def tick(elapsed: float) -> None:
                bar.update(task, completed=min(elapsed, seconds))
                each(elapsed)

            transfers.run(tick=tick)
        for result in transfers.results:
            if not (result.completed and result.received):
                src, dst = self.tree.name(result.transfer.src), self.tree.name(result.transfer.dst)
                raise TransferError(f"the flow from {src} to {dst} failed: {result.problem or f'no data arrived in {seconds} s'}")
        return transfers.results

    def _show(self, traffic: dict[str, Any], flows: list[dict[str, Any]], goodput: float) -> None:
        settings = self.settings
        name = self.tree.title if "fabric" in settings else f"k={settings['k']}"
        title = f"{name}, {settings['rate_mbit']:g} Mbit/s links, {settings['datapath']} datapath, {settings['policy']}, "
        title += f"carrier {settings['carrier']}, seed {settings['seed']}"
        table = Table("from", "to", title=title, title_justify="left")
        for name in ("Mbit/s", "% of goodput", "retransmits"):
            table.add_column(name, justify="right")
        for flow in flows:
            share = f"{100 * flow['mbit'] / goodput:.1f}"
            table.add_row(flow["src"], flow["dst"], f"{flow['mbit']:.2f}", share, str(flow["retransmits"]))
        self.out.print(table)
        self._say(
            f"mean {traffic['mean_mbit']:.2f} Mbit/s, minimum {traffic['min_mbit']:.2f}: "
            f"{100 * traffic['share_of_rate']:.1f}% of the link rate, "
            f"{100 * traffic['share_of_goodput']:.1f}% of the maximum goodput of TCP ({goodput:.2f})"
        )
        cores = ", ".join(f"{name} {count}" for name, count in traffic["core_packets"].items())
        self._say(f"packets by {'core switch' if self.tree.cores else 'spine'}: {cores}, max/min {traffic['core_max_min']:.3f}")
        self._say(f"retransmits {traffic['retransmits']}, processor idle {traffic['cpu_idle_percent']:.0f}%")
        if traffic["cpu_idle_percent"] < MINIMUM_IDLE:
            self.out.print("the processors were busy: the results are limited by the machine; use a lower --rate")
