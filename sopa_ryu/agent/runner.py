"""The agent's process: takes all interfaces, runs their agents until a signal, and puts everything back."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NoReturn

from sopa_ryu.agent.agent_metrics import metrics_served
from sopa_ryu.agent.agent_options import AgentError, AgentOptions
from sopa_ryu.agent.host.tcp_settings import TO_CHECK
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.slots.cfr_sender import PRIORITY_OF_LOOP, SlotSender, ask_for_priority
from sopa_ryu.agent.supervisor import Supervisor
from sopa_ryu.runtime.process import allow_files
from sopa_ryu.runtime.service import SIGNALS, cancel, exit_status, first_signal, keep_short

LOG = logging.getLogger("sopa.agent")

MAX_THREADS = 64


def run_agents(interfaces: Sequence[Interface], options: AgentOptions) -> int:
    """Label interfaces until SIGTERM, SIGINT or SIGHUP, then put everything back. One that goes meanwhile is waited for.

    Args:
        options: With `AgentOptions.metrics` their metrics are served meanwhile.

    Returns:
        The exit status: 0 after SIGINT, 128 + n after another signal n.

    Raises:
        AgentError, ClientOptionError, SettingsError, BpfError: If an interface cannot be taken (unless it is away, with
            `AgentOptions.wait`), or the metrics' port; what was changed is put back first.
    """
    allow_files()  # a host's maps and programs are some twenty
    supervisors: list[Supervisor] = []
    taken = ExitStack()
    received = 0
    sender = SlotSender() if options.is_timed else None
    if sender is not None:
        taken.callback(sender.close)
    try:
        with _signals_raise():
            for interface in interfaces:
                supervisor = Supervisor(interface, options, sender)
                taken.push(_reports_failure(interface))
                taken.callback(supervisor.release)
                if not supervisor.take() and not options.wait:
                    raise AgentError(f"{supervisor.away}. With --wait the agent waits until it is there")
                supervisors.append(supervisor)
            if options.metrics is not None:
                taken.enter_context(metrics_served(supervisors, *options.metrics))
            if sender is not None:
                ask_for_priority(PRIORITY_OF_LOOP)  # a grant that is read too late is lost
            received = asyncio.run(_run_all(supervisors))
    except _Ended as ended:
        received = ended.signum
    finally:
        with _signals_ignored():
            taken.close()
            if supervisors:
                LOG.info("the settings of %d interfaces are put back. Packets go on unlabelled", len(supervisors))
    return exit_status(received)


def _reports_failure(interface: Interface) -> Callable[[object, BaseException | None, object], bool]:
    """Return an exit callback that logs why an interface's settings could not be put back, so that the others' are."""

    def report(_kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, Exception):
            LOG.error("%s: not everything could be put back. Check its %s", interface, TO_CHECK, exc_info=error)
            return True
        return False

    return report


async def _run_all(agents: Sequence[Supervisor]) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(min(MAX_THREADS, len(agents)), thread_name_prefix="swap"))
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(keep_short())]
    tasks += [asyncio.create_task(agent.run(), name=str(agent.interface)) for agent in agents]
    try:
        return await first_signal(tasks)
    finally:
        await asyncio.gather(*(agent.stop_scattering() for agent in agents))
        await cancel(tasks)
        await asyncio.gather(*(agent.until_quiet() for agent in agents))


class _Ended(BaseException):
    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise an exception at a signal outside the event loop, so that what was taken is given back."""

    def end(number: int, _frame: object) -> NoReturn:
        raise _Ended(number)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore signals while settings are put back, also a second Ctrl-C."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
