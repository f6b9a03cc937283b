"""One switch's OpenFlow connection as a state machine: admitted to its rules, kept at the fabric's version. Pure.

A connected switch goes down this list; after a refusal or a silence it backs off and begins again:

1. `SwitchPhase.CLAIMING`: this controller asks which generation id the switch knows, and then to be its master.
2. `SwitchPhase.READING`: its flow entries and groups are read.
3. `SwitchPhase.WAITING`: it has rules of an earlier controller, which stay until it is known what has failed.
4. `SwitchPhase.INSTALLING`: what differs from its rules is changed, and a barrier confirms it.
5. `SwitchPhase.IN_FORCE`: it has its rules; `SwitchPhase.UPDATING` leads from one version's rules to the next one's.
"""

from __future__ import annotations

from enum import Enum, auto

from flowrules.model import SwitchRules
from sopa_ryu.fabric.messages import (
    Answer,
    BarrierRequest,
    EchoRequest,
    FlowsRequest,
    GenerationRequest,
    GroupsRequest,
    InstalledState,
    Message,
    Modification,
    Refusal,
    Request,
    RoleRequest,
    SendProbe,
    SwitchConnection,
)
from sopa_ryu.fabric.rule_changes import Installation, Sent
from topologies import Switch

ANOTHER_MASTER = "another controller, started later than this one, is its master. Restart this one to take it back"
ANSWER_SECONDS = 30.0
ERRORS_KEPT = 4
"""Of different error messages that a switch answers changes with."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 2.0, 60.0


class SwitchPhase(Enum):
    """How far a switch has come; the module's docstring has the order."""

    CLAIMING = auto()
    READING = auto()
    WAITING = auto()
    INSTALLING = auto()
    IN_FORCE = auto()
    UPDATING = auto()
    BACKING_OFF = auto()
    """It refused, or did not answer; it is claimed again when the retry is due."""
    TAKEN = auto()
    """Another controller is its master."""
    STANDING_BY = auto()
    """This controller is its slave: a standby of a cluster."""
    CLOSED = auto()


ADMITTING = frozenset(
    {SwitchPhase.CLAIMING, SwitchPhase.READING, SwitchPhase.WAITING, SwitchPhase.INSTALLING, SwitchPhase.BACKING_OFF}
)
"""Phases of a switch that is to get its rules, but has not confirmed them."""


class SwitchError(Exception):
    """A switch refused a message, did not answer, or went away; the text says which."""


class AnotherMasterError(SwitchError):
    """Another controller is the switch's master."""


class SwitchSession:
    """A connected switch.

    Attributes:
        deadline: When an answer is overdue or a retry is due.
        probes: Ports whose probes are still to be sent.
        generation: The latest generation id that the switch knew before it was claimed, once `knows_generation`.
    """

    def __init__(self, connection: SwitchConnection, switch: Switch, name: str, sent: Sent, now: float) -> None:
        self.connection = connection
        self.switch = switch
        self.name = name
        self.sent = sent
        self.connected_at = now
        self.phase = SwitchPhase.CLAIMING
        self.deadline: float | None = None
        self.probes: set[int] = set()
        self.generation: int | None = None
        self.knows_generation = False
        self._echo: EchoRequest | None = None
        self._echo_due = False
        self._awaited: dict[Request, bool] = {}
        self._errors: set[str] = set()
        self.installation = Installation(sent)
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._check_role = False

    # -- to the switch ------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether an answer of the switch is awaited on which the next message depends: not that to a role check."""
        return any(not isinstance(request, RoleRequest) or request.generation is not None for request in self._awaited)

    def take_probes(self) -> list[Message]:
        """Return the probes that are still to be sent, once; none while another controller may be the master."""
        if self.phase in (
            SwitchPhase.CLAIMING,
            SwitchPhase.BACKING_OFF,
            SwitchPhase.TAKEN,
            SwitchPhase.STANDING_BY,
            SwitchPhase.CLOSED,
        ):
            return []
        ports, self.probes = sorted(self.probes), set()
        return [SendProbe(port) for port in ports]

    def ask_alive(self) -> None:
        """Ask soon whether the switch is there; only an answer to this question counts."""
        self._echo, self._echo_due = EchoRequest(), True

    def take_echo(self) -> list[Message]:
        """Return the question whether the switch is there if it is due, once."""
        due, self._echo_due = self._echo_due, False
        return [self._echo] if due and self._echo is not None else []

    def is_alive(self, request: Request) -> bool:
        """Take the answer to an echo request; tell whether it is the one asked last."""
        if self._echo is None or request is not self._echo:
            return False
        self._echo = None
        return True

    def ask_generation(self) -> list[Message]:
        """Ask for the generation id that the switch knows."""
        return self._ask(GenerationRequest())

    def claim(self, generation: int) -> list[Message]:
        """Ask to be the master."""
        return self._ask(RoleRequest(generation))

    def stand_by(self, generation: int) -> list[Message]:
        """Ask to be a slave: with the generation id that the switch knows, which so stays, or the given one if it knows none."""
        return self._ask(RoleRequest(generation if self.generation is None else self.generation, slave=True))

    def begin_again(self) -> None:
        """Ask for a role anew: this controller leads now, or does so no longer."""
        self._forget()
        self.phase = SwitchPhase.CLAIMING

    def check_role(self) -> None:
        """Ask soon for the role: OpenFlow 1.3 does not tell by itself when another controller becomes master."""
        self._check_role = True

    def role_check(self) -> list[Message]:
        """Return the question for the role if it is due."""
        if not self._check_role or self._awaited:
            return []
        self._check_role = False
        return self._ask(RoleRequest(None))

    def read(self) -> list[Message]:
        """Ask for the flow entries and groups."""
        return [*self._ask(FlowsRequest()), *self._ask(GroupsRequest())]

    def install(self, wanted: SwitchRules, version: int) -> list[Message]:
        """Return what leads from the entries that were read to the wanted rules; a barrier comes last."""
        return self._confirmed_by_barrier(self.installation.begin(wanted, version))

    def update(self, wanted: SwitchRules, version: int) -> list[Message]:
        """Return what leads from the confirmed rules to the wanted ones; nothing if they are the same."""
        if self.rules is None:
            raise ValueError(f"{self.name} has no confirmed rules: they have to be read first")
        if self.rules == wanted:
            self.installation.version = version
            return []
        self.phase = SwitchPhase.UPDATING
        return self._confirmed_by_barrier(self.installation.change(self.rules, wanted, version))

    def holds(self, version: int) -> bool:
        """Tell whether the switch has the rules of a version in force, and nothing is due to it."""
        return self.phase is SwitchPhase.IN_FORCE and self.version == version and not self.installation.is_to_mend

    def compare(self, found: InstalledState) -> int:
        """Take what was read of a switch whose rules are in force; return how many entries and groups differ from them.

        If any do, `mend` is due.
        """
        if self.phase is not SwitchPhase.IN_FORCE or self.rules is None:
            return 0
        return self.installation.compare(self.rules, found)

    def mend(self, wanted: SwitchRules, version: int) -> list[Message]:
        """Return what leads from the entries that differ to the wanted rules; a barrier comes last."""
        changed = self.installation.mend(wanted, version)
        self.phase = SwitchPhase.UPDATING
        return self._confirmed_by_barrier(changed)

    def _confirmed_by_barrier(self, changed: list[Modification]) -> list[Message]:
        self._errors.clear()
        return [*changed, *self._ask(BarrierRequest())]

    def _ask(self, request: Request) -> list[Message]:
        self._awaited[request] = True
        self.deadline = None  # the time for the answer begins when the request has been sent
        return [request]

    def was_sent(self, now: float) -> None:
        """Note that everything due has been written to the connection."""
        if self._awaited and self.deadline is None:  # probes that are sent meanwhile do not prolong it
            self.deadline = now + ANSWER_SECONDS

    # -- from the switch ----------------------------------------------------------------------------------------------

    def answered(self, request: Request, answer: Answer) -> bool:
        """Take an answer; return False if nothing is waiting for it any more.

        Raises:
            AnotherMasterError: If another controller is the switch's master.
            SwitchError: If the switch refused what came before the barrier.
        """
        if not self._awaited.pop(request, False):
            return False
        if not self._awaited:
            self.deadline = None
        match request:
            case RoleRequest(slave=True):
                self.phase = SwitchPhase.STANDING_BY
            case RoleRequest():
                if not answer:
                    raise AnotherMasterError(ANOTHER_MASTER)
                if self.phase is SwitchPhase.CLAIMING:
                    self.phase = SwitchPhase.READING
            case GenerationRequest():
                self.generation, self.knows_generation = answer, True
            case FlowsRequest():
                self.installation.flows = answer
            case GroupsRequest():
                self.installation.groups = answer
            case BarrierRequest():
                self._confirm()
        if self.phase is SwitchPhase.READING and isinstance(request, FlowsRequest | GroupsRequest) and not self._awaited:
            self.phase = SwitchPhase.WAITING
        return True

    def _confirm(self) -> None:
        if self._errors:
            raise SwitchError("; ".join(sorted(self._errors)))
        self.installation.confirm()
        self._retry_seconds = FIRST_RETRY_SECONDS

    def refused(self, request: Request | None, refusal: Refusal) -> None:
        """Take an error message, with the request that it answers or None if it answers a flow-mod or group-mod.

        Raises:
            AnotherMasterError: If a claim was refused: another controller has made one meanwhile, with a later generation id.
            SwitchError: If another request was refused.
        """
        self.sent.errors[refusal.kind] += 1
        if request is None:
            if len(self._errors) < ERRORS_KEPT:
                self._errors.add(refusal.text)
        elif self._awaited.pop(request, False):
            if isinstance(request, GenerationRequest):
                self.knows_generation = True  # a switch that does not tell is claimed as it is
                return
            if isinstance(request, RoleRequest) and request.generation is not None and not request.slave:
                raise AnotherMasterError(ANOTHER_MASTER)
            raise SwitchError(refusal.text)

    # -- its rules ----------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> SwitchRules | None:
        """The rules that the switch has confirmed by a barrier; None while that is not known."""
        return self.installation.rules

    @property
    def version(self) -> int:
        """The fabric's version of these rules; 0 before the first."""
        return self.installation.version

    def expire(self) -> None:
        """The deadline has passed: retry, or give up an answer.

        `SwitchError` if an answer is missing without which the switch's state is not known. That to a mere role check is not.
        """
        self.deadline = None
        if self.phase is SwitchPhase.BACKING_OFF:
            self.phase = SwitchPhase.CLAIMING
            return
        missing = ", ".join(type(request).__name__ for request in self._awaited)
        self._awaited.clear()
        if self.phase is not SwitchPhase.IN_FORCE:
            raise SwitchError(f"no answer to {missing} in {ANSWER_SECONDS:g} s")

    def back_off(self, now: float) -> None:
        """Begin again after a while, twice as long each time."""
        self._forget()
        self.phase = SwitchPhase.BACKING_OFF
        self.deadline = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY_SECONDS)

    def taken(self) -> None:
        """Note that another controller is the master."""
        self._forget()
        self.phase = SwitchPhase.TAKEN

    def closed(self) -> None:
        """Note that the connection is gone."""
        self._forget()
        self.phase = SwitchPhase.CLOSED

    def _forget(self) -> None:
        self._awaited.clear()
        self.installation.rules = self.deadline = None
        self.generation, self.knows_generation = None, False
        self.probes = set()
