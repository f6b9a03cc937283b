"""What labs start and read: the arbiter, the agents' log, and OpenFlow messages on a controller's machine."""

import os
import struct
from pathlib import Path

import pytest

from experiments.emulation.cluster_watch import NotSeenError, links_of_one_pod, streams
from experiments.emulation.host_agents import AgentsLog
from experiments.emulation.openflow_capture import OPENFLOW_PORT, OpenFlowCapture
from experiments.emulation.sopa_lab import SopaLab
from experiments.schemes.scheme import Slots
from tests.helpers.frames import ip
from topologies import Clos, FatTree
from topologies.lab.management import ROOT

LINE = "2026-11-23 04:48:43,{ms:03} INFO 10.{pod}.0.2: version {version}{term} in force: 8 path sets for 8 racks, round-robin\n"


def test_the_log_of_agents_says_when_the_last_one_had_a_version(tmp_path: Path) -> None:
    log = AgentsLog(file := tmp_path / "agents.log")
    first = LINE.format(ms=100, pod=0, version=3, term=" of term 7")
    file.write_text(f"{first}2026-11-23 04:48:43,100 WARNING other\n")
    assert log.all_at(3, 2) is None
    late = LINE.format(ms=250, pod=1, version=4, term=" of term 9")
    with file.open("a") as more:
        more.write(late[:40])
    assert log.all_at(3, 2) is None  # half a line
    with file.open("a") as more:
        more.write(late[40:] + LINE.format(ms=300, pod=2, version=2, term=""))
    at = log.all_at(3, 2)
    assert at is not None
    assert at - log.entries[0].at == pytest.approx(0.15)
    told = [(entry.agent, entry.term, entry.version) for entry in log.entries]
    assert told == [("10.0.0.2", 7, 3), ("10.1.0.2", 9, 4), ("10.2.0.2", 0, 2)]
    assert log.all_at(5, 1) is None


def frame(source: int, destination: int, *messages: bytes) -> bytes:
    tcp = struct.pack("!HHIIBBHHH", source, destination, 1, 1, 5 << 4, 0, 0, 0, 0)
    return ip(tcp + b"".join(messages)) + bytes(6)  # padding of a short frame


def message(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), 1) + body


@pytest.mark.lab
def test_commands_of_a_controller_and_refusals_of_switches_are_counted() -> None:
    capture = OpenFlowCapture(f"/proc/{os.getpid()}/ns/net", "lo")
    try:
        ours, theirs = (OPENFLOW_PORT, 40000), (40000, OPENFLOW_PORT)
        for each in (
            frame(*ours, message(14, bytes(48)), message(15), message(20), message(24, bytes(16))),
            frame(*ours, message(13, bytes(16))),
            frame(*theirs, message(1, struct.pack("!HH", 1, 10)), message(3)),
            frame(*theirs, message(1, struct.pack("!HH", 11, 0)), message(1, bytes(4))),
            frame(*theirs, message(14)),
            frame(8080, 40000, b"HTTP/1.1 200 OK"),
            b"short",
        ):
            capture.count(each)
    finally:
        capture._socket.close()
    assert capture.sent == {"flow-mod": 1, "group-mod": 1, "role-request": 1, "packet-out": 1}
    assert capture.refused == {"IS_SLAVE": 1, "STALE": 1, "error 0/0": 1}


@pytest.mark.parametrize("tree", [FatTree(4), FatTree(6), Clos(1, 4, 3, 0, 2)], ids=["k=4", "k=6", "leaf-spine"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_one_stream_uses_the_links_that_fail_and_the_other_never(tree: Clos, seed: int) -> None:
    first, second = links_of_one_pod(tree, seed)
    beside, across = streams(tree, first)

    def links(src: str, dst: str) -> set[str]:
        paths = tree.candidate_paths(tree.host(src), tree.host(dst))
        return {name for path in paths for name in map("-".join, zip(path.hops, path.hops[1:], strict=False))}

    failing = {tree.name(first), tree.name(second)}
    reversed_too = failing | {"-".join(reversed(name.split("-"))) for name in failing}
    assert not links(*map(tree.name, beside)) & reversed_too
    assert links(*map(tree.name, across)) & reversed_too


def test_a_fabric_of_two_pods_has_no_stream_beside_the_links_that_fail() -> None:
    with pytest.raises(NotSeenError, match="too few pods"):
        streams(FatTree(2), links_of_one_pod(FatTree(4), 1)[0])


def test_the_arbiter_of_a_cluster_runs_beside_the_agents_and_knows_all_controllers(tmp_path: Path) -> None:
    its = SopaLab(FatTree(4), 4.0, slots=Slots(), controllers=3, directory=tmp_path)
    assert its.cluster is not None
    assert its.arbiter is not None
    command = its.arbiter.command
    assert command[:2] == ["nsenter", "--net=/run/netns/agents"]
    urls = [word.partition("=")[2] for word in command if word.startswith("--controller=")]
    assert urls == [its.cluster.url_of(name) for name in ("controller1", "controller2", "controller3")]
    assert f"--metrics-host={its.agents_address}" in command
    assert its.lab.beyond == ROOT.network
