"""``sopa lab --tutorial``: what an operator does, step by step, each one checked against the lab."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

Answer = Callable[..., "dict[str, Any] | None"]
"""The body of the controller's answer to a path below ``/sopa/v1`` with parameters; None if it does not answer."""
LINK = "a0_0-c0_1"
WIDTH = 100


class Step(NamedTuple):
    """A step: its explanation, the commands to type, and the check that it is complete.

    Attributes:
        commands: As they are typed; the last one, or another of the same beginning, is looked for.
        done: Whether the lab is as it should be then.
        later: What to do if the command was typed and the lab is not so yet.
    """

    text: str
    commands: tuple[str, ...]
    done: Callable[[Answer], bool] = lambda _answer: True
    later: str = ""

    def is_typed(self, line: str) -> bool:
        """Tell whether a line is the last command: its first words are the same, whatever hosts and numbers follow."""
        return line.split()[:3] == self.commands[-1].split()[:3]


def _has_failed(answer: Answer) -> bool:
    return LINK in _names(answer("/failures"), "failures")


def _is_suspect(answer: Answer) -> bool:
    return LINK in _names(answer("/health", suspects="1"), "links")


def _is_drained(answer: Answer) -> bool:
    return LINK in (answer("/drains") or {}).get("drains", [])


def _names(body: dict[str, Any] | None, key: str) -> set[str]:
    return {each["name"] for each in (body or {}).get(key, [])}


STEPS = (
    Step(
        "This fabric has four pods. Between two of them are four equal paths, one by each core switch. First look at the whole: "
        "how many switches are connected, and what has failed. Status 0 means that all is well.",
        ("sh sopa status",),
    ),
    Step(
        "The sending host chooses the path. These are the candidates of one pair, each with the two bytes that a packet carries.",
        ("sh sopa paths h0_0_2 h2_1_3",),
    ),
    Step(
        "Watch the packets of one connection. The source address is 02:53:9e:04, then the path: another one on each packet.",
        ("h2_1_3 iperf3 -s -D", "h0_0_2 timeout 9 tcpdump -c 8 -ne -Q out -i h0_0_2-eth0 tcp &", "h0_0_2 iperf3 -c h2_1_3 -n 1M"),
    ),
    Step(
        "Now cut a cable. Switches send packets around it at once, and some milliseconds later every host has left the paths "
        f"over {LINK}.",
        ("link a0_0 c0_1 down",),
        _has_failed,
        "the controller does not know it yet: sh sopa failures",
    ),
    Step("Three candidates are left for this pair, and the fourth says why it is out.", ("sh sopa paths h0_0_2 h2_1_3",)),
    Step(
        "Plug it in again. A link that comes back is held down for two seconds, twice as long after each further failure.",
        ("link a0_0 c0_1 up", "sh sopa failures"),
        lambda answer: not _has_failed(answer),
        "it is still held down: sh sopa failures, again",
    ),
    Step(
        "A cable that loses some of its packets is worse than one that is cut: both ports are up. Hosts send probes over every "
        "path; when enough were lost, the link and its direction are named. That takes a quarter of a minute on links this slow.",
        ("loss a0_0 c0_1 10", "sh sopa health"),
        _is_suspect,
        "not enough probes were lost yet: sh sopa health, again in some seconds",
    ),
    Step(
        "Look closer from one host: 100 probes on each path of a pair, and by difference what each link lost.",
        ("sh sopa trace h0_0_2 h2_1_3 --count 100",),
    ),
    Step(
        "Before somebody changes the cable: what would the fabric be left with? This changes nothing.",
        (f"sh sopa drain {LINK} --dry-run",),
    ),
    Step(
        "Take it out of use. The command ends when no host and no switch sends by it; the reason is for whoever comes next.",
        (f'sh sopa drain {LINK} --reason "loses packets, cable ordered"',),
        _is_drained,
        "it is not drained yet: what does the command say?",
    ),
    Step(
        "The cable is new. Put it back into use.",
        ("loss a0_0 c0_1 0", f"sh sopa restore {LINK}"),
        lambda answer: not _is_drained(answer),
        "it is still drained: what does the command say?",
    ),
    Step("All of it is in the log of events: when, what, by whom and why.", ("sh sopa events --since 1h",)),
)


class Tutorial:
    """The steps, told one after the other as each is done.

    Args:
        answer: Asks the lab's controller.
        say: Shows a text.
    """

    def __init__(self, answer: Answer, say: Callable[[str], None], steps: tuple[Step, ...] = STEPS) -> None:
        self._answer, self._say, self._steps = answer, say, steps
        self._at, self._typed = 0, False

    def begin(self) -> None:
        self._say("A tutorial of fifteen minutes. Type the commands at the prompt. Other commands are welcome in between.")
        self._tell()

    def after(self, line: str) -> None:
        """Look whether a command that was typed has done the step, and tell the next one."""
        if self._at == len(self._steps):
            return
        step = self._steps[self._at]
        self._typed |= step.is_typed(line)
        if not self._typed:
            return
        if not step.done(self._answer):
            self._say(f"Not yet: {step.later}.")
            return
        self._at, self._typed = self._at + 1, False
        self._tell()

    def _tell(self) -> None:
        if self._at == len(self._steps):
            self._say("That was all. docs/operating.md has the rest. exit ends the lab.")
            return
        step = self._steps[self._at]
        self._say(textwrap.fill(f"Step {self._at + 1} of {len(self._steps)}. {step.text}", WIDTH))
        for command in step.commands:
            self._say(f"    {command}")
