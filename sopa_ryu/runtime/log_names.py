"""Names in log lines, as they are shown everywhere: an own name, and its alias behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from topologies.aliases import Aliases


class LogNames(logging.Filter):
    """Puts the alias behind each own name in a line, but in the JSON of events, which has a field for it.

    It needs whole lines: a handler has it behind `sopa_ryu.runtime.log_pace.LogPace`, which needs text and values apart.
    """

    def __init__(self, aliases: Callable[[], Aliases]) -> None:
        super().__init__()
        self._aliases = aliases

    def filter(self, record: logging.LogRecord) -> bool:
        """Change a line, unless nothing has an alias; let it pass."""
        aliases = self._aliases()
        if aliases and record.name != "sopa.events":
            record.msg, record.args = aliases.within(record.getMessage()), None
        return True
