"""What a relay makes of the engine's keys."""

import logging
from collections.abc import Callable

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.relay.following import Following
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

CHARTERS = {k: records.write(records.Charter(records.FORMAT, FatTree(int(k)).document(), "option")) for k in ("4", "6")}
MALFORMED = {"format": CHARTERS["4"].replace('"format":1', '"format":2'), "pods": CHARTERS["4"].replace('"pods":4', '"pods":0')}


class Engine:
    """A relay of the cluster fabric-b, and the engine's keys: the words of the scripts."""

    def __init__(self, logged: Callable[[], list[str]]) -> None:
        self.following, self._logged = Following("fabric-b", "secret"), logged
        self._revision, self._told = 1, 0
        self._said: list[str] = []

    def handle(self, step: Step) -> str:
        """Write keys at one time: ``put view=5.2:a0_0-c0_1 leader=m1 charter=none``, or ``raw view=x``; tell what changes."""
        self._revision = now = self._revision + 1
        values = step.options if step.command == "raw" else {key: self._value(key, its) for key, its in step.options.items()}
        kept = {key: None if value == "none" else Kept(value, now, now, 0) for key, value in values.items()}
        its, news = self.following, self.following.take(Contents(now, kept))
        state = [f"fabric {its.tree}, labels' carrier {its.carrier}"] if its.tree is not None else []
        if its.view is not None:
            state.append(f"view {its.view.epoch}.{its.view.version} of {its.view.cluster}: {', '.join(its.view.failures)}")
        state += [f"refused {its.refused}", f"controllers {' '.join(its.controllers)}, leader {its.leader is not None}"]
        changed = [line for line in state if line not in self._said]
        self._said = state
        logged, self._told = self._logged()[self._told :], len(self._logged())
        names = [name for name, is_new in news._asdict().items() if is_new]
        return "\n".join([f"news: {' '.join(names)}"] * bool(names) + changed + [f"log: {line}" for line in logged])

    def _value(self, key: str, value: str) -> str:
        match key.split("/")[0]:
            case "charter" if value != "none":
                return (CHARTERS | MALFORMED)[value]
            case "view" if value != "none":
                number, _, failed = value.partition(":")
                term, version = map(int, number.split("."))
                return records.write(records.CommittedView(term, version, dict.fromkeys(failed.split(), "down")))
            case "leader" if value != "none":
                return records.write(records.Leader(value, 5, f"http://{value}").sealed("secret"))
            case "members":
                return records.write(records.MemberRecord(value, f"http://{value}", "0.1.0", 1, "standby", 5, 1, 0, 0, ""))
        return value


@each_script(__file__, "following")
def test_script(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.relay")
    script.play(Engine(lambda: caplog.messages).handle)
