"""Shifts the clock of a Python process by the seconds in CLOCK_SHIFT, as a machine's clock that was set back."""

import os
import time

_SHIFT, _REAL, _REAL_NS = float(os.environ.get("CLOCK_SHIFT", "0")), time.time, time.time_ns


def _shifted() -> float:
    return _REAL() + _SHIFT


def _shifted_ns() -> int:
    return _REAL_NS() + int(_SHIFT * 1e9)


time.time, time.time_ns = _shifted, _shifted_ns
