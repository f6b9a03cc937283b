"""The lab: hosts and switches of a fabric on this machine, in private namespaces with a private Open vSwitch."""

import logging
from contextlib import suppress

# mininet.log makes its class that of all loggers made later: they would drop INFO, and print lines without an end.
_logger_class = logging.getLoggerClass()
with suppress(ImportError):  # much of the lab needs no Mininet
    import mininet.log  # noqa: F401  # first here, so that nothing else imports it for the first time
logging.setLoggerClass(_logger_class)
