"""When a member may command, and when it campaigns: its lease, its clock, its term."""

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.cluster.candidacy import MARGIN, Candidacy
from tests.helpers.golden import Script, Step, each_script


class Member:
    def handle(self, step: Step) -> str:
        numbers = [float(word) for word in step.words]
        match step.command, numbers:
            case "member", []:
                self.its = Candidacy("m1")
            case "granted", [lease, seconds, now]:
                self.its.granted(int(lease), seconds, now)
            case "lead", []:
                self.its.lead(7, 42)
            case "cut-off", [has, most, now]:
                return "it gives way" if self.its.is_cut_off(int(has), int(most), now) else "it goes on"
            case "may", [now]:
                what = {
                    "command": self.its.may_command(now),
                    "lead": self.its.may_lead(now),
                    "campaign": self.its.may_campaign(now),
                }
                return ", ".join(name for name, may in what.items() if may) or "nothing"
            case name, _:
                getattr(self.its, name.replace("-", "_"))(*numbers)
        return ""


@each_script(__file__, "candidacy")
def test_candidacy(script: Script) -> None:
    script.play(Member().handle)


@given(last=st.integers(0, 1 << 62), clock=st.integers(0, 1 << 62), generation=st.integers(0, 1 << 62))
def test_a_term_is_above_the_last_one_and_above_what_switches_know(last: int, clock: int, generation: int) -> None:
    term = Candidacy.next_term(last, clock, generation)
    assert term > last
    assert term > generation
    assert term >= clock


@given(seconds=st.floats(0.5, 60.0), renewals=st.lists(st.floats(0.0, 100.0), max_size=20), now=st.floats(0.0, 200.0))
def test_a_leader_never_commands_later_than_the_engine_could_have_given_its_lease_away(
    seconds: float, renewals: list[float], now: float
) -> None:
    its = Candidacy("m1")
    its.granted(11, seconds, 0.0)
    its.lead(7, 42)
    for sent in renewals:
        its.renewed(sent)
    last = max([0.0, *renewals])
    assert its.may_command(now) == (now < last + seconds * (1 - MARGIN))
