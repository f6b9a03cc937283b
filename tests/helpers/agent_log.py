"""What agents log, as golden scripts show it."""

import pytest


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call, each with its level."""
    records = [record for record in caplog.records if record.name == "sopa.agent"]
    caplog.clear()
    return [f"{record.levelname.lower()}: {record.getMessage()}" for record in records]
