"""Traces as the controller keeps them, by scripts: who may begin one, what agents may answer, and when one ends."""

from pathlib import Path

import pytest

from sopa_ryu.channel import protocol, traces
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.trace_desk import MAX_RUNNING, Asked, BusyError, Trace, TraceDesk, UnableError
from sopa_ryu.channel.traces import BACK, LOST, LOST_BACK, LOST_OUT, Answer, Cancel, FlowLabels, FlowOf, Outcome
from tests.helpers.golden import Step, play, scripts
from tests.models.push_channel import TREE, Agent, PushChannel
from tests.models.relayed_channels import follow
from topologies import Host

FIRST, SECOND, *_, LAST = list(TREE.hosts())
HOSTS = {"first": FIRST, "second": SECOND, "last": LAST}
ASKED = Asked(((0, 0), (1, 0)), 3, 10.0)
FATES = {"back": BACK, "lost": LOST, "lost-out": LOST_OUT, "lost-back": LOST_BACK}


class Desk:
    """A controller that knows what has failed, and the agents of two hosts that probe; paths of a trace are 0 and 1."""

    def __init__(self) -> None:
        self.channel = PushChannel()
        self.channel.settle()
        self.traces: list[Trace] = []
        for name in ("first", "second"):
            self.do_connect(name)

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command)(*step.words, **step.options)
        return "\n".join(filter(None, [said, *(self._state(trace) for trace in self.traces[-1:])]))

    def do_connect(self, name: str, probes: str = "yes") -> None:
        agent = Agent(HOSTS[name])
        assert self.channel.claim(agent).accepted
        follow(self.channel, agent)
        session = self.channel.session(agent)
        assert session is not None
        session.probes = probes == "yes"

    def do_begin(self, source: str, destination: str, flow: str = "no") -> str:
        ends = HOSTS[source], HOSTS[destination]
        asked = Asked(flow=FlowOf(6, 40000, 5201)) if flow == "yes" else ASKED
        try:
            trace, effects = self.channel.notifier.begin_trace(ends, asked, 1, self.channel.now)
        except UnableError as error:
            return f"unable: {error}"
        self.channel.carry_out(effects)
        self.traces.append(trace)
        return f"trace {trace.number}"

    def do_sent(self, name: str) -> str:
        """Say what the controller has sent a host's agent of traces, and take it off."""
        connection, said = self.channel.notifier.sessions[HOSTS[name]].connection, []
        while connection.to_agent:  # the writer waits until it is read
            asked = protocol.trace_asked(connection.to_agent.popleft())
            self.channel.carry_out([])
            if isinstance(asked, Cancel):
                said.append(f"cancel {asked.number}")
            elif asked is not None and asked.flow is not None:
                said.append(f"trace {asked.number} of flow {asked.flow} to {asked.destination}")
            elif asked is not None:
                paths = ", ".join(f"{each.destination} {each.up1} {each.up2}" for each in asked.streams)
                said.append(f"trace {asked.number}: {asked.probes} probes every {asked.interval_ms:g} ms by {paths}")
        return "\n".join(said) or "nothing"

    def do_answer(
        self, name: str, number: str, *fates: str, done: str = "no", problem: str = "", flow: str = "no"
    ) -> str:
        """Let an agent answer: a fate is the number of a path, what happened, and the delay."""
        outcomes = [fate.split(":") for fate in fates]
        found = tuple(Outcome(int(at), FATES[fate], int(delay[0]) if delay else 0) for at, fate, *delay in outcomes)
        labels = FlowLabels("round-robin", True, 2, ((0, 0), (1, 0))) if flow == "yes" else None
        its = Answer(int(number), found, done=done == "yes", problem=problem, flow=labels)
        session = self.channel.notifier.sessions.get(HOSTS[name])
        return self._receive(session, traces.answer_text(its)) if session is not None else "it has been cut off"

    def do_repeat(self, times: str, name: str, number: str) -> str:
        return [self.do_answer(name, number, done="yes") for _ in range(int(times))][-1]

    def do_ack(self, name: str) -> str:
        return self._receive(self.channel.notifier.sessions[HOSTS[name]], protocol.ack(self.channel.view, 0))

    def _receive(self, session: AgentSession, text: str) -> str:
        self.channel.carry_out(self.channel.notifier.received(session, text, self.channel.now))
        return f"{session.refused} refused"

    def do_cancel(self) -> None:
        self.channel.carry_out(self.channel.notifier.cancel_trace(self.traces[-1], self.channel.now))

    def do_leave(self, name: str) -> None:
        self.channel.carry_out(self.channel.notifier.closed(self.channel.notifier.sessions[HOSTS[name]]))

    def do_wait(self, seconds: str, read: str = "no") -> None:
        """Let time pass; the trace is read each second, or not."""
        for _ in range(int(seconds)):
            self.channel.now += 1
            if read == "yes":
                self.channel.notifier.traces.find(self.traces[-1].number, self.channel.now)
            self.channel.carry_out(self.channel.notifier.tick(self.channel.now))

    def do_kept(self) -> str:
        desk = self.channel.notifier.traces
        kept = [str(its.number) for its in self.traces if desk.find(its.number, self.channel.now)]
        return f"{', '.join(kept) or 'none'}; {len(desk)} are running"

    def _state(self, trace: Trace) -> str:
        found = []
        for its in trace.found:
            fates = [f"{name} {its.fates[fate]}" for name, fate in FATES.items() if fate in its.fates]
            found.append(" ".join([*fates, f"us {list(its.delays)}"]))
        problem = f": {trace.problem}" if trace.problem else ""
        labels = f" labels {trace.labels}" if trace.labels is not None else ""
        return f"{trace.number} is {trace.state.name.lower()}{problem} | {'; '.join(found)}{labels}"


@pytest.mark.parametrize("script", scripts(__file__, "traces"), ids=lambda path: path.stem)
def test_traces(script: Path, request: pytest.FixtureRequest) -> None:
    play(script, Desk().handle, record=request.config.option.record)


def test_all_hosts_together_have_so_many_traces() -> None:
    desk, session = TraceDesk(), Desk().channel.notifier.sessions[FIRST]
    for number in range(MAX_RUNNING):
        desk.begin(session, (Host(number, 0, 2), LAST), TREE.ip(LAST), ASKED, 1, 0.0)
    with pytest.raises(BusyError):
        desk.begin(session, (Host(99, 0, 2), LAST), TREE.ip(LAST), ASKED, 1, 0.0)


def test_old_ones_make_room_for_new_ones() -> None:
    its = Desk()
    its.do_begin("first", "last")
    desk, session = its.channel.notifier.traces, its.channel.notifier.sessions[SECOND]
    for _ in range(100):
        desk.cancel(desk.begin(session, (SECOND, LAST), TREE.ip(LAST), ASKED, 1, 0.0), 0.0)
    assert len(desk._by_number) <= 33
    assert desk.find(its.traces[0].number, 0.0) is its.traces[0]  # it is running
