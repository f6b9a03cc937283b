"""Shifts the clock of a Python process by the seconds in CLOCK_SHIFT, as a machine's clock that was set back."""

import os
import time

_SHIFT, _REAL = float(os.environ.get("CLOCK_SHIFT", "0")), time.time


def _shifted() -> float:
    return _REAL() + _SHIFT


time.time = _shifted
