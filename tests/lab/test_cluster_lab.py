"""``sopa lab --controllers 3`` as a user types it."""

import re
from pathlib import Path

from tests.lab.test_commands import LEAF_SPINE, sopa

TYPED = Path(__file__).parent / "scripts/typed/cluster.txt"


def test_parts_of_a_cluster_are_killed_stopped_and_cut_off_at_the_prompt(tmp_path: Path) -> None:
    script, scattered, fabric = tmp_path / "script", tmp_path / "scattered", tmp_path / "fabric.yaml"
    fabric.write_text(LEAF_SPINE)
    script.write_text(TYPED.read_text().replace("SCATTERED", str(scattered)))
    # with MCS the lab begins once all hosts scatter to one another, whichever relay or controller their agents are connected to
    done = sopa("lab", "--controllers", "3", "--fabric", str(fabric), "--no-limit", "--policy", "mcs", "--script", str(script))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "5 packets captured" in scattered.read_text()
    asked_by_host = said.partition("1 packets transmitted, 1 received")[2].partition("Connecting to host")[0]
    assert {"controller1", "controller2", "controller3", "relay1", "relay2"} <= set(asked_by_host.split()), said
    killed = re.findall(r"^(controller\d) ended$", said, re.MULTILINE)
    assert killed
    assert "etcd1 has nothing to do with switches: cut it off from etcd, controllers, relays" in said
    assert "there is no part 'controller9': there are etcd1, etcd2, etcd3, controller1, " in said
    assert "usage: partition NAME from " in said
    assert "relay2 runs already" in said
    unusual = re.findall(r"^in this lab   (.*)$", said, re.MULTILINE)
    assert {"etcd1 ended", "relay2 stopped", "relay1 is cut off", f"{killed[0]} ended"} <= set(unusual[0].split(", "))
    assert "a0_0: drained" in said  # by the next leader
    assert unusual[1] == "all parts run"
