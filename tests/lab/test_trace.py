"""``sopa trace`` in a lab: a link that silently loses everything, and the way of a flow against its packets on the wire."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.cli.doctor_host import check_probes
from tests.helpers.sopa_lab import UDP_PORT, datagrams, in_lab
from tests.helpers.waiting import eventually
from topologies.structure import BFD_MAC

pytestmark = pytest.mark.lab

SRC, DST, LINK = "h0_0_2", "h2_1_3", "a0_0-c0_1"


def trace(lab: SopaLab, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return its exit status, its answer and what it says besides."""
    variables = {"SOPA_CONTROLLER": lab.url, "SOPA_TOKEN_FILE": str(lab.controller.token_file)}
    command = [sys.executable, "-m", "sopa_ryu.cli", "trace", *words, "--json"]
    environment = os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, env=environment)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def swallow(lab: SopaLab, everything: bool) -> None:
    """Drop all that a0_0 sends to c0_1 but BFD, which would take the link out of use: it is alive, and carries nothing else."""
    tree = lab.tree
    interface = lab.lab.interface(tree.switch("a0_0"), tree.port(tree.switch("a0_0"), tree.switch("c0_1")))
    end = int(BFD_MAC.replace(":", "")[4:], 16)
    stolen, next_filter = (4 if everything else 2**32 - 1), 2**32 - 1
    code = f"4,32 0 0 2,21 0 1 {end},6 0 0 {next_filter},6 0 0 {stolen}"
    words = f"dev {interface} egress pref 1 handle 1 protocol all bpf direct-action bytecode".split()
    subprocess.run(["tc", "filter", "replace", *words, code], check=True, timeout=30)


def traced(lab: SopaLab, lost: list[int], *words: str) -> tuple[int, dict[str, Any], str]:
    """Trace, until so many probes of some path each are lost: an answer that is late for want of a processor is a loss, too."""
    return eventually(
        lambda: trace(lab, *words), lambda found: sorted(path["lost"] for path in found[1]["paths"]) == lost, seconds=60
    )


def test_a_silent_link_is_named_and_a_flow_takes_the_way_that_is_told() -> None:
    def body(lab: SopaLab) -> None:
        swallow(lab, True)
        status, answer, said = traced(lab, [0, 0, 0, 10], "--all", SRC, DST, "--count", "10")
        assert status == 1, said
        lost = {tuple(path["up"]): (path["sent"], path["lost"]) for path in answer["paths"]}
        assert lost == {(0, 0): (10, 0), (1, 0): (10, 0), (0, 1): (10, 10), (1, 1): (10, 0)}
        named = [(group["links"], group["loss"]) for group in answer["links"] if group["loss"]]
        assert named == [([LINK, "a2_0-c0_1"], 1.0)]
        for host, seen in ((SRC, "(\\d+) answers to this host's"), (DST, "^(\\d+) probes of other hosts answered")):
            with inside(lab.lab.netns(host)):
                found = check_probes(lab.lab.interface(lab.tree.host(host), 0), others=host == SRC)
            counted = re.search(seen, found.text)
            assert found.right, found
            assert counted is not None, found
            assert int(counted[1]) >= 30
        # the other direction, from another pod: the way back is lost
        status, answer, said = traced(lab, [0, 10], "h1_0_2", SRC, "--up", "0,1", "--up", "0,0", "--count", "10")
        assert [path["lost"] for path in answer["paths"]] == [0, 10]
        swallow(lab, False)
        status, answer, said = traced(lab, [0, 0, 0, 0], SRC, DST)
        assert (status, answer["state"], answer["decided"]) == (0, "done", 80), said
        assert all(path["min_us"] > 0 for path in answer["paths"])

        # a flow that the agent labels: what is told, and what its first packets carry
        status, answer, said = trace(lab, "--flow", f"{SRC}:40001", f"{DST}:{UDP_PORT}", "--protocol", "udp")
        assert status == 0, said
        flow = answer["flow"]
        told = [tuple(flow["ways"][way]["up"]) for way in flow["order"]["ways"]]
        assert len(set(told)) == 4
        assert datagrams(lab, SRC, DST, 8, 40001) == [*told, *told]

    # so that the host does not leave the path by itself
    in_lab(body, probes=True, agent_options=["--keep-paths"])
