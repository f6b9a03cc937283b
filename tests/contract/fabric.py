"""The contracts of a running controller with real switches behind it: REST, metrics, queries.

One fabric goes through all situations, one after the other, and is healthy again after each. Switches are Open vSwitch's with the
dummy datapath, so that root is needed, but no packet.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.contract.running import ASKED, ROOT, Running, running
from tests.contract.values import HEALTHY, TEXT, masked
from tests.helpers.waiting import eventually

PARTS = ("rest", "openapi", "metrics", "queries")
MAX_VALUES = 20
"""Of a metric's label with more values only the name is recorded."""


def collect(directory: Path) -> dict[str, Any]:
    rest: dict[str, dict[str, Any]] = {}
    with running(directory) as its:
        its.rated()
        rest[HEALTHY] = its.state()
        rest["healthy, asked more"] = asked(its)
        document = json.loads(its.request("GET", "/openapi.json").body)
        document["info"]["version"] = TEXT  # of each commit another one
        parts = {"openapi": masked(document)}
        parts |= {ask.__name__: ask(its) for ask in (metrics, queries)}
        for situation, act, undo, names in situations(its):
            its.failing()
            its.rated()
            its.version = its.body("/fabric")["version"]
            more = act() or {}
            its.failing(*names)
            rest[situation] = {**its.state(), **more}
            undo()
        its.failing()
        rest["gone and back"] = {"GET /fabric": its.answer("GET", f"{ROOT}/fabric")}
    return {"rest": rest, **parts}


# -- the situations ---------------------------------------------------------------------------------------------------

Situation = tuple[str, Callable[[], dict[str, Any] | None], Callable[[], object], tuple[str, ...]]


def situations(its: Running) -> Iterator[Situation]:
    """Yield each situation: its name, what leads to it, what leads out of it, and what has failed in it."""
    link, drained = "a0_0-c0_1", ("c1_0", "e2_1-a2_0")
    elsewhere, four = ("a1_0-c0_0", "a3_1-c1_1"), ("a1_0-c0_1", "a3_0-c0_0", "c1_1", "e0_1-a0_0")
    yield "a link is down", lambda: its.set_link(link, False), lambda: its.set_link(link, True), (link,)
    yield (
        "a switch and a link are drained",
        lambda: {f"PUT {name}": its.drain("PUT", name) for name in drained},
        lambda: [its.drain("DELETE", name) for name in drained],
        drained,
    )
    yield ("a switch is gone", lambda: gone(its, "a2_1"), lambda: back(its, "a2_1"), ("a2_1",))
    yield "cables lead elsewhere", lambda: miswire(its), lambda: pull_and_plug(its, *elsewhere), elsewhere
    yield "several have failed", lambda: several(its), lambda: several_undone(its), four


def gone(its: Running, name: str) -> dict[str, Any]:
    its.ovs.vsctl("del-controller", name)
    eventually(lambda: its.body("/fabric")["missing"], [name])
    its.set_neighbours(name, False)
    its.failing(name)
    return {
        "GET rules": its.answer("GET", f"{ROOT}/switches/{name}/rules"),
        "sopa rules": its.sopa("rules", name),
        "sopa status --json": its.sopa("status", "--json"),
    }


def back(its: Running, name: str) -> None:
    its.ovs.vsctl("set-controller", name, its.controller.openflow)
    eventually(lambda: name in its.reasons(), False)  # its links are still out
    its.set_neighbours(name, True)


def miswire(its: Running) -> None:
    """Have another switch's probe arrive at one link, and a foreign device's at another."""
    its.hear("a1_0", 3, its.tree.dpid(its.tree.switch("c0_1")), 2)
    its.failing("a1_0-c0_0")
    its.hear("a3_1", 4, 0xFFFFFF, 1)


def pull_and_plug(its: Running, *names: str) -> None:
    """Forget what was heard at links' lower ends."""
    for up in (False, True):
        for name in names:
            its.set_link(name, up)


def several(its: Running) -> dict[str, Any]:
    its.set_link("a1_0-c0_1", False)
    its.failing("a1_0-c0_1")
    its.set_live("e0_1-a0_0", False)
    its.failing("a1_0-c0_1", "e0_1-a0_0")
    answers = {"PUT c1_1": its.drain("PUT", "c1_1")}
    its.drain("PUT", "a3_0-c0_0")
    its.settled()
    return answers | {
        "GET /switches/e0_1/rules": its.answer("GET", f"{ROOT}/switches/e0_1/rules"),
        "GET /changes?limit=4": its.answer("GET", f"{ROOT}/changes?limit=4"),
        "sopa failures --json": its.sopa("failures", "--json"),
        "sopa status --json": its.sopa("status", "--json"),
    }


def several_undone(its: Running) -> None:
    its.set_live("e0_1-a0_0", True)
    its.failing("a1_0-c0_1", "a3_0-c0_0", "c1_1")  # or two that heal at the same time are one version
    its.set_link("a1_0-c0_1", True)
    its.failing("a3_0-c0_0", "c1_1")
    its.drain("DELETE", "c1_1")
    its.drain("DELETE", "a3_0-c0_0")


def asked(its: Running) -> dict[str, Any]:
    """Return the answers to what is asked of the healthy fabric alone."""
    answers = {f"GET {path}": its.answer("GET", ROOT + path) for path in ASKED["healthy"]}
    for method, path, headers in ASKED["requests"]:
        answers[f"{method} {path} {headers or ''}".strip()] = its.answer(method, path, headers)
    for method, path, headers in ASKED["operators"]:
        named = f"{method} {path} {headers or ''}".strip()
        answers[f"{named}, with the token"] = its.answer(method, ROOT + path, {**headers, **its.operator})
    return answers


def metrics(its: Running) -> dict[str, Any]:
    """Return every metric family: type, names of samples, labels, and the values of labels that have few."""
    answer = its.request("GET", "/metrics")
    families: dict[str, Any] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        samples: dict[str, dict[str, Any]] = {}
        for sample in family.samples:
            labels = samples.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
        most = MAX_VALUES if family.name.startswith("sopa_") else 0  # others are Python's own
        for labels in samples.values():
            labels.update({label: sorted(its) if len(its) <= most else TEXT for label, its in labels.items()})
        families[family.name] = {"type": family.type, "help": TEXT if family.documentation else "", "samples": samples}
    return {"status": answer.status, "content-type": answer.headers["content-type"], "families": families}


def queries(its: Running) -> dict[str, Any]:
    """Run the commands that ask a controller, also wrong ones."""
    answers = {}
    for words in [*ASKED["queries"], *(f"{query} --json" for query in ASKED["queries"]), *ASKED["usage"]]:
        answers[words] = its.sopa(*words.split())
    for words in ASKED["drains"]:
        answers[f"then: {words}"] = its.sopa(*words.split())
    answers["watch --json --last 2"] = watched(its)
    return answers


def watched(its: Running) -> dict[str, Any]:
    """Return the lines of ``sopa watch`` up to the first about the whole fabric."""
    command = [str(Path(sys.executable).with_name("sopa")), "watch", "--json", "--last", "2"]
    watch = subprocess.Popen(
        [*command, "--controller", its.controller.url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert watch.stdout
    lines = [watch.stdout.readline() for _ in range(3)]
    watch.send_signal(signal.SIGINT)
    rest, _ = watch.communicate(timeout=60)
    return {"exit": watch.returncode, "stdout": masked([json.loads(line) for line in lines], its.version), "rest": rest}
