"""The client of the engine in a process whose sockets eventlet has patched, as ryu-manager's are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.helpers.certificates import Authority
from topologies.lab.etcd import PrivateEtcd, Tls

SCRIPT = """
import eventlet
eventlet.monkey_patch()
import json, sys
from pathlib import Path
from sopa_ryu.cluster.address import Access, parse
from sopa_ryu.cluster.engine import Engine
from topologies.lab.standstill import pause

address, ca, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
access = Access(Path(ca))
engine, other = (Engine(parse(address), access, timeout=2.0) for _ in range(2))
ticks, seen = [0], []

def tick():
    while True:
        eventlet.sleep(0.01)
        ticks[0] += 1

def watch(revision):
    for contents in engine.watch(revision):
        seen.append((ticks[0], {key: kept and kept.value for key, kept in contents.keys.items()}))

eventlet.spawn(tick)
watching = eventlet.spawn(watch, engine.read().revision)
def reached(condition):
    with eventlet.Timeout(60):
        while not condition():
            eventlet.sleep(0.01)

reached(lambda: len(seen) > 2)          # quiet for a while
quiet = seen[2][0] - seen[0][0]
pause(pid)                              # the node of both
before = ticks[0]
lease = other.grant(60)
stopped = ticks[0] - before
other.write({"view": "1"})
reached(lambda: any(keys == {"view": "1"} for _, keys in seen))
renewed = other.renew(lease)
engine.close()
watching.wait()
print(json.dumps({"quiet": quiet, "stopped": stopped, "renewed": renewed}))
"""


def test_green_threads_go_on_while_a_watch_or_a_stopped_node_is_waited_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = authority.sign("node")
    tls = Tls(authority.certificate, node.certificate, node.key)
    with PrivateEtcd(tmp_path / "etcd", 3, tls) as etcd:
        first = next(node for node in range(3) if node != etcd.leader())
        words = [etcd.address(first=first), str(tls.ca), str(etcd.pid(first))]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, *words],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # with a hub that stands still there would be none at all
    assert told["quiet"] > 0
    assert told["stopped"] > 0
    assert told["renewed"] is True
