"""27,648 agents that run MCS, on four relays: until all know all, until one that ends is known, and another member that leads."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from experiments.bench.measure_relays import CROWDS, RELAYS, CrowdProcess
from experiments.bench.measuring import peak_mib
from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.mcs_hosts import SETTLE_SECONDS
from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine
from sopa_ryu.runtime.process import allow_files
from topologies import FatTree
from topologies.lab.etcd import PrivateEtcd

K = 48
POLL_SECONDS = 0.25
PATIENCE_SECONDS = 600.0
ENDS = 3
_AGENTS = re.compile(r"^sopa_relay_agents_connected (\S+)", re.MULTILINE)


def measure(k: int = K) -> dict[str, Any]:
    """Connect an agent for each host, let some end, then kill the controller and start it again, as another leader.

    The controller is a real one, the relays are real, agents are light clients (`relay_crowd`). There are no switches: the bench
    commits the view in the place of the leader, which has none.

    Args:
        k: Of the fat-tree.

    Returns:
        ``connected_s``: until relays had all agents; ``all_know_all_s``: from the first connection until every agent has been
        told of every host; ``one_ends_s``: from the end of an agent until the last other has been told;
        ``fewest_after_restart``: the least number of hosts that any agent knew while the controller was away, began again and
        had its lists complete; ``mib``: peak memory of relays, then of the controller.
    """
    allow_files()
    tree = FatTree(k)
    addresses = [str(tree.ip(host)) for host in tree.hosts()]
    query = mcs.request(mcs.POLICY, Variant(mcs.VERSION, ChannelKind.PATHS))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        etcd = stack.enter_context(PrivateEtcd(directory / "etcd", 1))
        openflow, rest, *ports = free_ports(2 + RELAYS)
        options = [f"--sopa-cluster={etcd.address()}", "--sopa-cluster-member=m0", "--sopa-no-switches"]
        controller = ControllerProcess(k, directory / "m0.log", openflow, rest, options=options)
        stack.enter_context(controller)
        engine = Engine(parse(etcd.address()), timeout=PATIENCE_SECONDS)
        stack.callback(engine.close)
        _commit(engine)
        relays = [
            stack.enter_context(RelayProcess(etcd.address(), directory / f"r{number}.log", port, controller.state_dir))
            for number, port in enumerate(ports)
        ]
        for relay in relays:
            relay.wait_until(partial(_has_view, relay), "it had a view")
        token = controller.agent_token_file.read_text().strip()
        share = -(-len(addresses) // CROWDS)
        began = time.monotonic()
        crowds = [
            stack.enter_context(CrowdProcess(ports, addresses[at : at + share], at, token, query))
            for at in range(0, len(addresses), share)
        ]
        connected = _connected(relays, len(addresses)) - began
        known = _until(crowds, len(addresses)) - began
        ends = []
        for number in range(1, ENDS + 1):
            left = time.monotonic()
            crowds[0].report("leave")
            ends.append(_until(crowds, len(addresses) - number) - left)
        memory = [peak_mib(process.pid) for process in (*relays, controller)]
        controller.stop(9)
        controller.start()
        _commit(engine)
        time.sleep(2 * SETTLE_SECONDS)
        found = [crowd.report() for crowd in crowds]
    return {
        "k": k,
        "agents": len(addresses),
        "relays": RELAYS,
        "connected_s": round(connected, 1),
        "all_know_all_s": round(known, 1),
        "one_ends_s": [round(seconds, 2) for seconds in ends],
        "left": ENDS,
        "fewest_after_restart": min(its["fewest"] for its in found),
        "mib": memory,
    }


def _commit(engine: Engine) -> None:
    """Commit a view of the present term, once there is a leader."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        keys = engine.read().keys
        if keys.get(records.LEADER) is not None and (term := keys.get(records.TERM)) is not None:
            view = records.CommittedView(json.loads(term.value)["term"], 1, {})
            engine.write({records.VIEW: records.write(view)})
            return
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"after {PATIENCE_SECONDS:g} s there is no leader")


def _has_view(relay: RelayProcess) -> bool:
    return relay.get("/sopa/v1/failures?limit=1").status_code == 200


def _connected(relays: Sequence[RelayProcess], agents: int) -> float:
    """Wait until relays have so many agents; return when that was (monotonic seconds)."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    found = 0.0
    while time.monotonic() < deadline:
        texts = [relay.get("/metrics").text for relay in relays]
        found = sum(float(its[1]) for its in map(_AGENTS.search, texts) if its is not None)
        if found == agents:
            return time.monotonic()
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"after {PATIENCE_SECONDS:g} s relays have {found:g} agents of {agents}")


def _until(crowds: Sequence[CrowdProcess], hosts: int) -> float:
    """Wait until so many agents know each other; return when the last was told (monotonic seconds)."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = [crowd.report() for crowd in crowds]
        counts: Counter[int] = Counter()
        for its in found:
            counts.update({int(count): agents for count, agents in its["listed"].items()})
        if counts == {hosts: hosts}:
            return float(max(its["heard"] for its in found))
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"after {PATIENCE_SECONDS:g} s agents know so many hosts: {counts.most_common(5)}")
