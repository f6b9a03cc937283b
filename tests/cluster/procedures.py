"""The procedures of docs/controllers.md, as written there, with real controllers, a relay, etcd and Open vSwitch.

Switches forward all the time: the entries of some of them are compared all along.

    .venv/bin/python -m tests.cluster.procedures [upgrade format node restore empty]
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.testing import Result

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from tests.helpers.cluster import Cluster, running_cluster
from tests.helpers.commands import sopa
from tests.helpers.waiting import eventually
from topologies.lab.etcd import loopback
from topologies.lab.isolation import isolated

SECONDS = 120.0
RUN = "import sys, sopa_ryu, sopa_ryu.cluster.records as r; {change}; from sopa_ryu.manager import main; sys.exit(main())"
NEWER = "sopa_ryu.__version__ = '99.0'"
OTHER_FORMAT = f"{NEWER}; r.FORMAT = 2"


class Watched:
    """A cluster, a relay, and a thread that looks whether its switches keep their entries."""

    def __init__(self, cluster: Cluster, relay: RelayProcess) -> None:
        self.its, self.relay = cluster, relay
        self.samples = 0

    @contextmanager
    def keeping_entries(self) -> Iterator[None]:
        """Fail if an entry changes meanwhile."""
        expected, ended, self.samples = self.its.rules(), threading.Event(), 0
        wrong: list[object] = []

        def watch() -> None:
            while not wrong and not ended.wait(0.2):
                found = self.its.rules()
                self.samples += 1
                if found != expected:
                    wrong.append(found)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert not wrong, f"entries changed: {wrong}\nexpected: {expected}"
        assert self.samples

    def sopa(self, *words: str) -> Result:
        """Return what a command answers that may ask any member that runs, or the relay."""
        urls = [*(its.url for its in self.its.members.values() if its.running), self.relay.url]
        where = [word for url in urls for word in ("--controller", url)]
        return sopa(*words, *where, "--token-file", str(self.relay.state_dir / "token"))

    def wait_whole(self) -> None:
        """Wait until ``sopa cluster`` ends with status 0, with all members and switches."""
        eventually(lambda: self.sopa("cluster").exit_code, 0, seconds=SECONDS)
        self.its.wait_whole()
        eventually(lambda: self.sopa("cluster").exit_code, 0, seconds=SECONDS)

    def programs(self) -> dict[str, str]:
        """Return which program each member runs."""
        body = json.loads(self.sopa("cluster", "--json").stdout)
        return {member["name"]: member["program"] for member in body["members"]}

    def told(self, part: ControllerProcess | RelayProcess, text: str) -> None:
        """Wait until a part's log has a text."""
        eventually(lambda: text in part.log.read_text(), seconds=SECONDS)

    def stop_all(self) -> None:
        for member in self.its.members.values():
            member.stop()

    def start_all(self) -> None:
        for member in self.its.members.values():
            member.start()

    def one_by_one(self, change: Callable[[ControllerProcess], object]) -> None:
        """Restart members with a change: those that stand by first, then the leader, which steps down before."""
        former = str(self.its.leader())
        for name in [*self.its.standbys(), former]:
            if name == former:
                done = self.sopa("cluster", "step-down")
                assert done.exit_code == 0, done.output
                self.its.next_leader(former)
            self.its.members[name].stop()
            change(self.its.members[name])
            self.its.members[name].start()
            self.wait_whole()

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Drain a switch: that has to outlive what is done meanwhile, under a higher term."""
        assert self.sopa("drain", "c1_1").exit_code == 0
        self.its.wait_in_force({"c1_1": "drained"})
        term = self.its.fabric(str(self.its.leader()))["epoch"]
        with self.keeping_entries():
            yield
            self.wait_whole()
            self.its.wait_in_force({"c1_1": "drained"})
        assert self.its.fabric(str(self.its.leader()))["epoch"] > term
        assert self.sopa("restore", "c1_1").exit_code == 0
        self.its.wait_in_force({})


def _run(member: ControllerProcess, change: str) -> None:
    """Have a member run another program from its next start on."""
    words = member.command
    options = words[words.index("-m") + 2 if "-m" in words else words.index("-c") + 2 :]
    member.command = [sys.executable, "-c", RUN.format(change=change), *options]


def upgrade(its: Watched) -> None:
    with its.keeping_entries():
        its.one_by_one(lambda member: _run(member, NEWER))
    assert set(its.programs().values()) == {"99.0"}


def other_format(its: Watched) -> None:
    """Members with another record format take no part; all are stopped, the charter is deleted, and the new ones start."""
    cluster = its.its
    first = cluster.standbys()[0]
    with its.keeping_entries():
        cluster.members[first].stop()
        _run(cluster.members[first], OTHER_FORMAT)
        cluster.members[first].start()
        its.told(cluster.members[first], "does not take part in cluster sopa")
        assert its.sopa("cluster").exit_code == 3
        its.stop_all()
        cluster.etcd.ctl("del", "/sopa/charter")
        for member in cluster.members.values():
            _run(member, OTHER_FORMAT)
        its.start_all()
        its.wait_whole()


def replace_node(its: Watched) -> None:
    """A node of etcd is lost, and another one at another address takes its place; then controllers are given its address."""
    etcd = its.its.etcd
    [place] = loopback(1)
    with its.keeping_entries():
        etcd.kill(0)
        etcd.remove(0)
        etcd.add(place)
        etcd.ctl("endpoint", "health", "--cluster")
        its.wait_whole()
        its.one_by_one(lambda member: _address(member, f"--sopa-cluster={etcd.address()}"))
        _address(its.relay, f"--cluster={etcd.address()}")
        its.relay.stop()
        its.relay.start()
        its.wait_whole()


def _address(part: ControllerProcess | RelayProcess, option: str) -> None:
    """Give a part another value of an option that it has."""
    name = option.partition("=")[0]
    part.command = [option if word.partition("=")[0] == name else word for word in part.command]


def restore(its: Watched) -> None:
    """A snapshot is taken, all controllers and etcd are stopped, and etcd begins again with the snapshot."""
    etcd, snapshot = its.its.etcd, its.its.directory / "etcd.db"
    with its.drained():
        etcd.ctl("snapshot", "save", str(snapshot), endpoints=[etcd.members[0]])
        its.stop_all()
        etcd.stop()
        etcd.token = f"sopa-{time.time_ns()}"
        etcd.restore(snapshot)
        its.start_all()
        its.told(its.relay, "another engine")
        its.relay.stop()
        its.relay.start()


def empty(its: Watched) -> None:
    """Etcd loses all of its data while the controllers run, and is made anew: with the same token they go on by themselves."""
    member = its.its.members[str(its.its.leader())]
    said = len(member.log.read_text())
    with its.drained():
        its.its.etcd.stop()
        eventually(lambda: "leads no longer" in member.log.read_text()[said:], seconds=SECONDS)
        its.its.etcd.start()


PROCEDURES: dict[str, Callable[[Watched], None]] = {
    "upgrade": upgrade,
    "node": replace_node,
    "restore": restore,
    "empty": empty,
    "format": other_format,
}


def run(names: tuple[str, ...]) -> int:
    """Carry out procedures in a cluster of their own; the exit status, 0 if all went as it is written."""
    with tempfile.TemporaryDirectory(prefix="sopa-procedures-") as directory, running_cluster(Path(directory), lease=2) as cluster:
        [port] = free_ports(1)
        log = Path(directory) / "r1.log"
        with RelayProcess(cluster.etcd.address(), log, port, cluster.members["m0"].state_dir) as relay:
            its = Watched(cluster, relay)
            for name in names or tuple(PROCEDURES):
                began, its.samples = time.monotonic(), 0
                try:
                    PROCEDURES[name](its)
                except AssertionError as error:
                    print(f"{name}: WRONG: {error}", flush=True)
                    for part in (*cluster.members.values(), relay):
                        print(f"--- {part.log.name}\n{part.log_tail(40)}", flush=True)
                    return 1
                samples = f", entries looked at {its.samples} times" if its.samples else ""
                print(f"{name}: as written, {time.monotonic() - began:.1f} s{samples}", flush=True)
    return 0


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PROCEDURES)))
def main(names: tuple[str, ...]) -> None:
    """Carry out what docs/controllers.md, says of upgrades, nodes of etcd, backups and lost data. All without NAMES."""
    sys.exit(isolated(lambda: run(names)))


if __name__ == "__main__":
    main(prog_name="python -m tests.cluster.procedures")
