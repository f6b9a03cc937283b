"""``sopa trace`` as it is typed: what it asks for, what it shows and how it ends, with answers of the controller's own code."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from sopa_ryu.channel.messages import BACK, LOST, LOST_BACK, FlowLabels, FlowOf
from sopa_ryu.channel.trace_desk import Asked, Found, State, Trace
from sopa_ryu.cli import client, main, trace
from sopa_ryu.rest.trace_answer import tell
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.rest import flow_labels
from topologies import Failures, FatTree, Host
from topologies.aliases import NONE
from topologies.identity import PREFIX6, Family

TREE = FatTree(4, str(PREFIX6))
HEALTHY = Failures(TREE)
SRC, DST = Host(0, 0, 2), Host(2, 1, 3)
FATES = {"back": BACK, "lost": LOST, "lost back": LOST_BACK}
UPS = TREE.choices_between(SRC, DST)


def found(fates: dict[str, int], delay: int = 80_000) -> Found:
    its = Found()
    its.fates.update({FATES[name]: count for name, count in fates.items()})
    its.delays.extend([delay] * fates.get("back", 0))
    return its


def body(state: State, problem: str = "", fates: dict[int, dict[str, int]] | None = None) -> dict[str, Any]:
    """The answer about a trace of all four paths with 20 probes each; ``fates`` of the paths that are not clean."""
    made = Trace(7, SRC, DST, Asked(UPS, 20, 10.0), 3, 0.0, 0.0)
    made.found = [found((fates or {}).get(place, {"back": 20}), 80_000 + 1000 * place) for place in range(4)]
    made.end(state, problem)
    return tell(made, HEALTHY, ())


def flow_body(labels: FlowLabels | None, family: Family) -> dict[str, Any]:
    asked = Asked(flow=FlowOf(6, 40000, 5201), family=family)
    made = Trace(7, SRC, DST, asked, 3, 0.0, 0.0, labels=labels, asked_agent=labels is not None)
    made.end(State.DONE)
    return tell(made, HEALTHY, ())


class Answers:
    aliases = NONE

    def __init__(self, *bodies: Any) -> None:
        self.bodies = iter(bodies)
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, url: str, *_files: object) -> "Answers":
        return self

    def send(self, method: str, path: str, given: Any = None) -> Any:
        self.asked.append((method, path, given))
        return self._next()

    def get(self, path: str, **_params: object) -> Any:
        self.asked.append(("GET", path, None))
        return {"k": 4, **TREE.described6} if path == "/fabric" else self._next()

    def close(self) -> None:
        """Nothing is open."""

    def _next(self) -> Any:
        answer = next(self.bodies)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@each_script(__file__, "trace")
def test_trace(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LOOK_SECONDS", 0.0)
    monkeypatch.setenv("OVS_RUNDIR", "/nowhere")

    clean: set[str] = set()

    def handle(step: Step) -> str:
        """Type ``sopa trace`` with these words; what is printed of any trace, only ``asked`` shows.

        The controller answers of traces in the states ``answers``, the last with ``fates`` of its probes, or about a flow with
        ``labels``: policy, exactness, length and labels. ``way`` is what ofproto/trace says of the flow.
        """
        states = step.options.get("answers", "done").split()
        fates = {int(place): its for place, its in json.loads(step.options.get("fates", "{}")).items()}
        bodies = [KeyboardInterrupt() if state == "ctrl-c" else body(State(state)) for state in states[:-1]]
        bodies.append(body(State(states[-1]), step.options.get("problem", ""), fates))
        if "labels" in step.options:
            labels = step.options["labels"]
            family = TREE.families["[" in " ".join(step.words)]
            bodies = [flow_body(None if labels == "hashed" else flow_labels(labels), family)]
        controller = Answers(*bodies)
        monkeypatch.setattr(client, "Controller", controller)
        with monkeypatch.context() as patched:
            if "way" in step.options:
                patched.setattr(trace, "way_of", lambda *_: step.options["way"].split())
            done = CliRunner().invoke(main, ["trace", *step.words])
        if "--json" in step.words:
            assert json.loads(done.stdout) == bodies[-1]
            return f"exit {done.exit_code}"
        asked = [" ".join([*words, json.dumps(given) if given else ""]) for *words, given in controller.asked]
        told = [line for line in done.stdout.splitlines() if "─" not in line and line not in clean]
        return "\n".join([*asked, *told, *done.stderr.splitlines(), f"exit {done.exit_code}"])

    shown = handle(Step.read("trace h0_0_2 h2_1_3")).splitlines()
    if script.path.stem != "asked":
        clean.update(shown[1:-1])
    script.play(handle)
