"""How relays send agents on until each has its share, and that they send nobody round and round."""

import random

from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from sopa_ryu.channel.addresses import SERVED_SECONDS, Addresses, Loss
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.protocol import SURPLUS
from sopa_ryu.cluster.records import RelayRecord
from sopa_ryu.cluster.relay.surplus import UNEVEN_AGENTS, UNEVEN_SECONDS, UNEVEN_SHARE, Surplus
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

HOSTS = list(FatTree(16).hosts())
SENT_ON = Loss("sent on", SERVED_SECONDS, ConnectionClosedError(Close(SURPLUS, ""), None))


class Relays:
    """Relays, by the last parts of their URLs, and agents that choose among them; records in the engine are a second old."""

    def __init__(self) -> None:
        self.now, self.sent = 0.0, 0

    def handle(self, step: Step) -> str:
        self.sent = 0
        getattr(self, "do_" + step.command.replace("-", "_"))(*step.words)
        at = [f"{name} {len(sessions)}" for name, sessions in sorted(self.sessions.items())]
        return ", ".join(at) + (f"; {self.sent} sent on" if self.sent else "")

    def do_fabric(self, agents: str, *names: str) -> None:
        """Let all relays start, then so many agents."""
        self.urls = {name: f"http://192.0.2.1:8080/{name}" for name in names}
        self.sessions: dict[str, dict[int, AgentSession]] = {name: {} for name in names}
        self.looks = {name: Surplus() for name in names}
        self.records, self.cut_off = self._records(), ""
        self.agents, self.moves = [self._agent(number) for number in range(int(agents))], [0] * int(agents)
        for number in range(len(self.agents)):
            self._enter(number)

    def _agent(self, number: int) -> Addresses:
        return Addresses(list(self.urls.values()), str(FatTree(16).ip(HOSTS[number])), random.Random(number))

    def _records(self) -> list[RelayRecord]:
        return [RelayRecord(name, self.urls[name], "", len(its), 1, 1, 0) for name, its in self.sessions.items()]

    def _enter(self, number: int) -> None:
        """Let an agent ask URLs until a relay answers."""
        agent = self.agents[number]
        while (name := agent.url.rpartition("/")[2]) not in self.sessions or (name == self.cut_off and number % 4 == 0):
            agent.lost(Loss("rejected"))
        host = HOSTS[number]
        self.sessions[name][number] = AgentSession(host, "", "", None, number, 0.0, 0.0, agent.first)

    def do_stop(self, name: str) -> None:
        left = self.sessions.pop(name)
        for number in left:
            self.agents[number].lost(Loss("lost", SERVED_SECONDS))
            self._enter(number)

    def do_cut_off(self, name: str) -> None:
        """Cut a relay off from every fourth host, for those that connect from now on."""
        self.cut_off = name

    def do_start(self, name: str) -> None:
        self.sessions[name], self.looks[name] = {}, Surplus()

    def do_wait(self, seconds: str, known: str = "known") -> None:
        for _ in range(int(seconds)):
            self.now += 1.0
            records = self.records if known == "known" else []
            looks = {name: self.looks[name].look(records, self.urls[name], its.values(), self.now)
                     for name, its in self.sessions.items()}  # fmt: skip
            self.records = self._records()
            for name, sent in looks.items():
                self.sent += len(sent)
                for session in sent:
                    number = session.connection
                    del self.sessions[name][number]
                    self.moves[number] += 1
                    self.agents[number].lost(SENT_ON)
                    self._enter(number)


@each_script(__file__, "surplus")
def test_script(script: Script) -> None:
    script.play(Relays().handle)


CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=8)


@given(st.integers(2, 6), st.integers(1, 400), CHANGES, st.sampled_from(["", "r0"]))
def test_after_relays_have_come_and_gone_shares_are_even_and_nobody_goes_twice(
    count: int, agents: int, changes: list[tuple[int, int]], cut_off: str
) -> None:
    its = Relays()
    its.do_fabric(str(agents), *(f"r{number}" for number in range(count)))
    its.do_cut_off(cut_off)
    for number, seconds in changes:
        name = f"r{number % count}"
        if name not in its.sessions:
            its.do_start(name)
        elif len(its.sessions) > 2:  # one that is not cut off stays
            its.do_stop(name)
        its.do_wait(str(seconds))
    its.moves = [0] * agents
    its.do_wait(str(2 * int(UNEVEN_SECONDS) + agents))
    at = [len(sessions) for sessions in its.sessions.values()]
    even = max(at) - min(at) < max(UNEVEN_AGENTS, UNEVEN_SHARE * agents / len(at))
    running = {its.urls[name] for name in its.sessions}
    assert even or not any(each.first in running for sessions in its.sessions.values() for each in sessions.values())
    assert max(its.moves) <= 1
