"""How soon a client is answered while others flood the controller: three kinds that keep it busy; ``make flood`` tries all."""

from pathlib import Path

import pytest

from tests.floods.measure import MAX_ANSWER_SECONDS, measure
from tests.helpers.fabrics import running
from tests.timing.controls import Timer
from tests.timing.judge import Timing

pytestmark = pytest.mark.switch

KINDS = "rest pings", "rest packets", "openflow echoes"


def test_another_client_is_answered_during_a_flood(timing: Timing, tmp_path: Path) -> None:
    with running(4, tmp_path) as fabric:
        for kind in KINDS:
            timing.at_most(
                MAX_ANSWER_SECONDS,
                lambda kind=kind: measure(fabric, kind, seconds=0.5).slowest,
                what=f"the slowest answer to another client during a flood of {kind}, s",
                control=Timer(),
                tolerated=0.1,
            )
