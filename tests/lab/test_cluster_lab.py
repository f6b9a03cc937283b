"""``sopa lab --controllers 3`` as a user types it."""

import re
from pathlib import Path

from tests.lab.test_commands import LEAF_SPINE, sopa

SCRIPT = """
h0_0_2 timeout 60 sh -c 'until ping -c 1 -W 5 h0_2_2 ; do true ; done'
h0_0_2 sopa cluster
h0_0_2 tcpdump -c 5 -ni h0_0_2-eth0 'tcp[12] & 8 != 0 and src host 10.0.0.2' > SCATTERED 2>&1 &
sh timeout 60 sh -c 'until grep -q listening SCATTERED; do sleep 0.1; done'
h0_2_2 iperf3 -s -1 -D
h0_2_2 timeout 60 sh -c 'until ss -ltn | grep -q :5201; do sleep 0.1; done'
h0_0_2 iperf3 -c h0_2_2 -n 500K
kill_controller leader
kill_controller leader
partition etcd1 from switches
partition controller9 from etcd
partition relay1 sometimes
partition relay1 from etcd sent
kill_etcd etcd1
stop_relay relay2
start_relay relay2
cluster
heal
continue_relay relay2
start_etcd etcd1
start_controller controller1
start_controller controller2
start_controller controller3
sh timeout 100 sh -c 'until sopa drain a0_0; do sleep 0.5; done'
cluster
"""


def test_parts_of_a_cluster_are_killed_stopped_and_cut_off_at_the_prompt(tmp_path: Path) -> None:
    script, scattered, fabric = tmp_path / "script", tmp_path / "scattered", tmp_path / "fabric.yaml"
    fabric.write_text(LEAF_SPINE)
    script.write_text(SCRIPT.replace("SCATTERED", str(scattered)))
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
