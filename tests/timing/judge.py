"""Verdicts on how fast the product is, on machines that are shared: each sample beside a control, and never by one sample.

A sample counts only if the bare machine was on time meanwhile: one during which the control was later than tolerated is *void* and
taken again, up to `MAX_VOID` times, also if it could not be taken. A bound is kept if `NEEDED` of at most ``2 * NEEDED - 1``
samples that count keep it, which is to say that their median does: a product that keeps it in 95% of the cases fails one run of 860
(binomial, 3 of 5), one that keeps it in 10% passes one of 117.

A shared processor may be on time and slow: the same work took 2.3 times as long in one hour as in the next. What a *reaction* takes
is therefore divided by how much longer `work_seconds` is, before and after the sample, than where the bounds were set.
"""

from collections.abc import Callable

from tests.helpers import report
from tests.timing import controls
from tests.timing.controls import Control

NEEDED = 3
MAX_VOID = 15


class Timing:
    """Takes samples, judges them and records both (`tests.helpers.report`)."""

    def at_most(
        self, bound: float, sample: Callable[[], float], *, what: str, control: Control, tolerated: float, reaction: bool = False
    ) -> None:
        """Check that a value is at most ``bound``, as a rule.

        Args:
            bound: In the unit of the value.
            sample: Measures once. It is called 3 to 5 times, and again for each sample that is void.
            what: Is measured, with its unit, for the record.
            control: Runs beside each sample.
            tolerated: By how many seconds the control may be late in a sample that counts.
            reaction: Whether the value is in proportion to the time that the product needs of a processor.

        Raises:
            AssertionError: Three samples that count miss the bound; or `MAX_VOID` samples were void, so that nothing is known.
        """
        self._judge("at most", bound, _at_this_pace(sample) if reaction else sample, what, control, tolerated)

    def at_least(self, bound: float, sample: Callable[[], float], *, what: str, control: Control, tolerated: float) -> None:
        """Check that a value is at least ``bound``, as a rule; otherwise like `at_most`."""
        self._judge("at least", bound, sample, what, control, tolerated)

    def _judge(
        self, relation: str, bound: float, sample: Callable[[], float], what: str, control: Control, tolerated: float
    ) -> None:
        values: list[float] = []
        late: list[float] = []
        void: list[float] = []
        kept = 0
        while kept < NEEDED and len(values) - kept < NEEDED and len(void) < MAX_VOID:
            failed = None
            with control:
                try:
                    value = sample()
                except AssertionError as error:
                    failed = error
            if control.late > tolerated:
                void.append(control.late)
                continue
            if failed is not None:
                raise failed
            values.append(value)
            late.append(control.late)
            kept += value <= bound if relation == "at most" else value >= bound
        report.record(
            "timing",
            what=what,
            relation=relation,
            bound=bound,
            samples=[round(value, 4) for value in values],
            control=control.name,
            late=[round(seconds, 4) for seconds in late],
            void=[round(seconds, 4) for seconds in void],
        )
        if kept < NEEDED:
            known = f"{what}: {', '.join(f'{value:.4g}' for value in values) or 'no sample'}"
            if len(void) == MAX_VOID:
                why = f"the {control.name} was late by {min(void):.3f} to {max(void):.3f} s ({tolerated:g} tolerated)"
                raise AssertionError(f"{known}; {MAX_VOID} more samples say nothing, as {why}: free this machine")
            raise AssertionError(f"{known}; expected {relation} {bound:g} in {NEEDED} of {2 * NEEDED - 1}")


def _at_this_pace(sample: Callable[[], float]) -> Callable[[], float]:
    """Return a sample's value as it would be on the machine on which the bounds were set."""

    def paced() -> float:
        before = controls.work_seconds()
        value = sample()
        work = (before + controls.work_seconds()) / 2
        return value / max(1.0, work / controls.WORK_SECONDS)

    return paced
