"""A rack and a pod are added to a running fabric, as docs/operating.md says: no switch that is there loses its channel or rules."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sopa_ryu.fabric.switch_setup import problems
from sopa_ryu.southbound import switch_database
from tests.helpers.commands import sopa
from tests.helpers.fabrics import running
from tests.helpers.waiting import eventually
from topologies import Clos
from topologies.lab.private_ovs import PrivateOvs

pytestmark = pytest.mark.switch


def grown(old: Clos, new: Clos) -> Iterator[tuple[Clos, list[str]]]:
    """Yield the fabric with what is new announced, all its links absent, then the whole one; and the switches it lacks."""
    added = [switch for switch in new.switches() if new.name(switch) not in {old.name(each) for each in old.switches()}]
    links = [new.name(link) for link in new.switch_links() if link.lower in added or link.upper in added]
    absent = dict.fromkeys(links, "absent")
    yield Clos.from_document({**new.document(), "links": absent}), [new.name(switch) for switch in added]
    yield new, []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Clos(pods=1, edges=1, aggregations=2, cores=0, hosts=1), Clos(pods=1, edges=2, aggregations=2, cores=0, hosts=1)),
        (Clos(pods=1, edges=1, aggregations=1, cores=2, hosts=1), Clos(pods=2, edges=1, aggregations=1, cores=2, hosts=1)),
    ],
    ids=["rack", "pod"],
)
def test_what_is_there_stays(tmp_path: Path, old: Clos, new: Clos) -> None:
    there = {old.name(element) for element in (*old.switches(), *old.links())}

    with running(old, tmp_path, "--sopa-settle=3") as fabric:
        its, ovs = fabric.controller, fabric.ovs
        for tree, missing in grown(old, new):
            its.read_anew(json.dumps(tree.document()))
            # while the new switches are away, those that are there are connected, with and without their new ports
            eventually(lambda: set(its.fabric()["missing"]), set(missing))
            if missing:
                plan(ovs, old, new, its.openflow, tmp_path)
            its.wait_connected(new.switch_count)
            assert its.fabric()["rejected"] == []
            assert there.isdisjoint(failure["name"] for failure in its.get("/failures").json()["failures"])
        found = [each for setup in switch_database.read(ovs.database) for each in problems(new, setup)]
        assert found == []


def plan(ovs: PrivateOvs, old: Clos, new: Clos, target: str, tmp_path: Path) -> None:
    """Type what ``sopa fabric plan`` prints for the switches that ``sopa fabric diff`` names."""
    files = before, file = tmp_path / "old.yaml", tmp_path / "new.yaml"
    for each, tree in zip(files, (old, new), strict=True):
        each.write_text(repr(tree.document()))
    named = {line.partition(":")[0] for line in sopa("fabric", "diff", str(before), str(file)).stdout.splitlines()}
    for name in sorted(named & {new.name(switch) for switch in new.switches()}):
        words = [f"--switch={name}", f"--bridge={name}", f"--interface={name}-eth{{port}}", f"--controller={target}"]
        for line in sopa("fabric", "plan", str(file), *words).stdout.splitlines():
            if its := shlex.split(line, comments=True):
                ovs.vsctl(*its[1:])
