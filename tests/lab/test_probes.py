"""Probes through Open vSwitch: what traces, the controller and hosts make of them."""

import json
import re
import subprocess
from itertools import count
from typing import Any

from experiments.emulation.bad_links import BadLinks
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.cli.doctor import check_probes
from tests.helpers.commands import ask
from tests.helpers.sopa_lab import UDP_PORT, datagrams, failures, in_lab
from tests.helpers.waiting import eventually
from topologies import Clos
from topologies.structure import BFD_MAC

SRC, DST, LINK = "h0_0_2", "h1_1_3", "a0_0-c0_1"


def trace(lab: SopaLab, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return its exit status, its answer and what it says besides."""
    done = ask(lab.controller, "trace", *words, "--json")
    return done.exit_code, json.loads(done.stdout or "{}"), done.stderr


def swallow(lab: SopaLab, everything: bool) -> None:
    """Drop all that a0_0 sends to c0_1 but BFD, which would take the link out of use: it is alive, and carries nothing else."""
    tree = lab.tree
    interface = lab.lab.interface(tree.switch("a0_0"), tree.port(tree.switch("a0_0"), tree.switch("c0_1")))
    end = int(BFD_MAC.replace(":", "")[4:], 16)
    stolen, next_filter = (4 if everything else 2**32 - 1), 2**32 - 1
    code = f"4,32 0 0 2,21 0 1 {end},6 0 0 {next_filter},6 0 0 {stolen}"
    words = f"dev {interface} egress pref 1 handle 1 protocol all bpf direct-action bytecode".split()
    subprocess.run(["tc", "filter", "replace", *words, code], check=True)


def traced(lab: SopaLab, lost: list[int], *words: str) -> tuple[int, dict[str, Any], str]:
    """Trace, until so many probes of some path each are lost: an answer that is late for want of a processor is a loss, too."""
    return eventually(lambda: trace(lab, *words), lambda found: sorted(path["lost"] for path in found[1]["paths"]) == lost)


def test_a_trace_names_a_silent_link_and_the_way_of_a_flow(probing: SopaLab) -> None:
    swallow(probing, True)
    status, answer, said = traced(probing, [0, 0, 0, 10], "--all", SRC, DST, "--count", "10")
    assert status == 1, said
    lost = {tuple(path["up"]): (path["sent"], path["lost"]) for path in answer["paths"]}
    assert lost == {(0, 0): (10, 0), (1, 0): (10, 0), (0, 1): (10, 10), (1, 1): (10, 0)}
    named = [(group["links"], group["loss"]) for group in answer["links"] if group["loss"]]
    assert named == [([LINK, "a1_0-c0_1"], 1.0)]
    assert answers(probing) >= 30
    with inside(probing.lab.netns(DST)):
        found = check_probes(probing.lab.interface(probing.tree.host(DST), 0), others=False)
    assert found.right, found
    counted = re.search(r"^(\d+) probes of other hosts answered", found.text)
    assert counted is not None, found
    assert int(counted[1]) >= 30
    swallow(probing, False)
    status, answer, said = traced(probing, [0, 0, 0, 0], SRC, DST)
    assert (status, answer["state"], answer["decided"]) == (0, "done", 80), said
    assert all(path["min_us"] > 0 for path in answer["paths"])

    # a flow that the agent labels: what is told, and what its first packets carry, once it takes all paths again
    ports = count(40001)

    def told_and_carried() -> tuple[int, bool]:
        """Return how many paths a flow is told to take, and whether its packets take them in that order."""
        port = next(ports)
        status, answer, said = trace(probing, "--flow", f"{SRC}:{port}", f"{DST}:{UDP_PORT}", "--protocol", "udp")
        assert status == 0, said
        told = [tuple(answer["flow"]["ways"][way]["up"]) for way in answer["flow"]["order"]["ways"]]
        return len(set(told)), datagrams(probing, SRC, DST, 2 * len(told), port) == [*told, *told]

    eventually(told_and_carried, (4, True))
    subprocess.run(["tc", "filter", "del", "dev", "a0_0-eth4", "egress", "pref", "1"], check=True)


def answers(lab: SopaLab) -> int:
    """Return how many answers to its own probes the sender has had."""
    with inside(lab.lab.netns(lab.tree.host(SRC))):
        text = check_probes(lab.lab.interface(lab.tree.host(SRC), 0), others=True).text
    counted = re.search(r"(\d+) answers to this host's", text)
    return int(counted[1]) if counted else 0


def test_a_grey_link_is_named_and_drained_and_no_other() -> None:
    grey = "e0_1-a0_1"

    def body(lab: SopaLab) -> None:
        def suspects() -> Any:
            return lab.controller.get("/health", suspects="1").json()["links"]

        eventually(lambda: lab.controller.get("/health").json()["running"], True, seconds=120)
        with BadLinks(lab.lab) as bad:
            bad.set_loss(grey, "e0_1", 0.1, seed=3)
            [link] = eventually(
                suspects, lambda links: [(link["name"], link["action"]) for link in links] == [(grey, "drained")], seconds=180
            )
            eventually(lambda: failures(lab), {grey: "drained"})
            assert f"link {grey} loses" in lab.controller.log.read_text()
            assert bad.lost(grey, "e0_1").hit > 0
            assert link["delay_us"] is None or link["delay_us"] > 0

    in_lab(body, Clos(1, 3, 2, 0, 2), probes=True, controller_options=["--sopa-suspect=drain"])
