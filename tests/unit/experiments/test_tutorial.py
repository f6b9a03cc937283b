"""The tutorial of the lab: a step is done when its command was typed and the lab is as it should be."""

from typing import Any

from experiments.cli.lab_tutorial import LINK, STEPS, Tutorial


class Lab:
    """What the controller would answer after the commands that were typed; it is slow to notice."""

    def __init__(self) -> None:
        self.known: dict[str, bool] = {}
        self.looks = 0

    def typed(self, line: str) -> None:
        for words, path, is_so in (
            ("link a0_0 c0_1 down", "/failures", True),
            ("link a0_0 c0_1 up", "/failures", False),
            ("loss a0_0 c0_1 10", "/health", True),
            (f"sh sopa drain {LINK} --reason", "/drains", True),
            (f"sh sopa restore {LINK}", "/drains", False),
        ):
            if line.startswith(words):
                self.known[path], self.looks = is_so, 0

    def answer(self, path: str, **_params: str) -> dict[str, Any]:
        self.looks += 1
        is_so = self.known.get(path, False) is (self.looks > 1)
        key = {"/failures": "failures", "/health": "links", "/drains": "drains"}[path]
        return {key: [LINK if path == "/drains" else {"name": LINK}] if is_so else []}


def test_each_step_is_told_once_the_one_before_is_done() -> None:
    lab, said = Lab(), list[str]()
    tutorial = Tutorial(lab.answer, said.append)
    tutorial.begin()
    for number, step in enumerate(STEPS, start=1):
        assert "".join(said).count(f"Step {number} of {len(STEPS)}") == 1
        tutorial.after("sh ls")
        for line in step.commands:
            lab.typed(line)
            tutorial.after(f" {line}  ")
        if step.later:
            tutorial.after("sh sopa failures")  # any command shows that it is so now
    assert said[-1].startswith("That was all")
    assert sum("Not yet: " in text for text in said) == sum(bool(step.later) for step in STEPS)
