"""One run of a plan: processes, the faults that strike them, and what is judged."""

import logging
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final

from typing_extensions import override

from kip30 import Fence
from kip30.config import Written
from kip30.driver.records import Entry, Kind, Target
from kip30.operations import HOLD_SECONDS
from kip30.runtime.resolution import Configuration
from kip30_conformance.simulation.dialects import DIALECTS
from kip30_conformance.simulation.directive_promises import DIRECTIVE_PROMISES
from kip30_conformance.simulation.faults import Faults
from kip30_conformance.simulation.liveness_promises import LIVENESS_PROMISES
from kip30_conformance.simulation.model_client import ModelBackend
from kip30_conformance.simulation.model_service import ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore, Table, table_of
from kip30_conformance.simulation.network import Network
from kip30_conformance.simulation.operator_program import DirectiveHistory, OperatorProgram
from kip30_conformance.simulation.plan import LEADER, RunFault, RunFaultKind, RunPlan
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.programs import GROUP, ROOT, SERVICE, ClientProgram, Event
from kip30_conformance.simulation.promises import Failure, Promise
from kip30_conformance.simulation.safety_promises import SAFETY_PROMISES
from kip30_conformance.simulation.scheduler import Simulation, StuckError
from kip30_conformance.simulation.signal_handlers import raised_by_run
from kip30_conformance.simulation.stand_ins import installed
from kip30_conformance.simulation.storage_program import CallHistory

_STORE = "store"
_FIRST_PID = 10_000_000
_WATCH_SECONDS = 0.25
_MOST_FAILURES = 20
_MOMENTARY = (RunFaultKind.EVICT, RunFaultKind.EXPIRE)


def run(plan: RunPlan) -> list[Failure]:
    """Return which promises were broken in a run of *plan*; none, if the core is right."""
    return Schedule(plan).run()


class Schedule:
    """The world of one run; see `kip30_conformance.simulation.promises.World`.

    Attributes:
        promises: The promises that are judged.
        prefixes: The beginnings of the names of modules that run in virtual time.
    """

    promises: Iterable[type[Promise]] = (
        *SAFETY_PROMISES,
        *LIVENESS_PROMISES,
        *DIRECTIVE_PROMISES,
    )
    prefixes: tuple[str, ...] = ("kip30",)

    def __init__(
        self, plan: RunPlan, noted: Callable[[float, str, str], object] | None = None
    ) -> None:
        """Prepare a run of *plan*.

        Args:
            plan: What happens.
            noted: Called with the virtual time, the name of a process (or ``store``), and in words
                what has happened there.
        """
        self.plan = plan
        self._noted = noted
        self.simulation = Simulation(
            plan.seed, interruptions=plan.interruptions, demotions=plan.demotions
        )
        self.store = ModelStore(self.simulation, DIALECTS[plan.dialect])
        self.network = Network(self.simulation, plan.seed, plan.conditions())
        self.failures: list[Failure] = []
        self.history = CallHistory(lambda: self.simulation.now)
        self.directives = DirectiveHistory()
        self.changed_at: defaultdict[Table, float] = defaultdict(float)
        self.is_healed = False
        self.calm_since = 0.0
        # All programs that there were, by number.
        self._lives: list[list[ClientProgram]] = [[] for _ in plan.rates]
        self._programs: list[ClientProgram] = []
        self._operators: list[OperatorProgram] = []
        self._service = ModelService(self.store, self.network)
        self._faults = self._new_faults()
        self._promises = [promise(self) for promise in self.promises]
        self._watching = [one for one in self._promises if type(one).watched != Promise.watched]

    @property
    def excused(self) -> AbstractSet[Fence]:
        """Return the terms that were ended on purpose."""
        return self._faults.excused

    @property
    def excused_sessions(self) -> AbstractSet[int]:
        """Return the sessions that were ended on purpose."""
        return self._faults.excused_sessions

    @property
    def programs(self) -> Sequence[ClientProgram]:
        """Return the present programs, one for each number."""
        return self._programs

    @property
    def now(self) -> float:
        """Return the virtual time."""
        return self.simulation.now

    def rows(self, kind: Kind, scope: str) -> Mapping[str, Entry]:
        """Return what the store has."""
        return self.store.look(ROOT, Target(kind, scope)).entries

    def fail(self, promise: str, text: str) -> None:
        """Note that a promise was broken."""
        self._note("judge", f"{promise}: {text}")
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(Failure(promise, text, self.now))

    def run(self) -> list[Failure]:
        """Run it to its end, or to the first failure."""
        service = offered(_STORE, self._service)
        stand_ins = installed(self.simulation, self.prefixes)
        signals = raised_by_run(self.simulation)
        with self._vanishing(), _silent(), stand_ins, service, signals, _reported(self):
            try:
                self._begin()
                self._run_until(self.plan.fault_seconds)
                self._heal()
                self._settle()
            except StuckError as error:
                self.fail("error", str(error))
            for failure in self.simulation.failures:
                self.fail("error", failure)
        return self.failures

    # -- the course of a run

    @contextmanager
    def _vanishing(self) -> Generator[None]:
        """Let nothing of the programs stay, dead or alive, once the block has ended."""
        try:
            yield
        finally:
            for program in chain.from_iterable(self._lives):
                program.vanish()
            for operator in self._operators:
                operator.vanish()

    def _begin(self) -> None:
        self._observe_store()
        for number in range(len(self.plan.rates)):
            self._programs.append(self._started(number))
        for number in range(self.plan.operators):
            self._operators.append(self._started_operator(number))
        for fault in self.plan.faults:
            self.simulation.at(fault.at, partial(self._strike, fault))
        self._watch()

    def _new_faults(self) -> Faults:
        return Faults(self.plan, self._service, self._replace_dead)

    def _observe_store(self) -> None:
        for promise in self._promises:
            self.store.on_expiry.append(promise.expires)
            self.store.on_grant.append(promise.granted)
        for kind, scope in ((Kind.SERVICE, SERVICE), (Kind.GROUP, GROUP)):
            table = table_of(ROOT, Target(kind, scope))
            self.store.watch(ROOT, Target(kind, scope), partial(self._note_change, table))
        self.store.on_expiry.append(lambda session: self._note("store", f"ends session {session}"))
        self.store.on_grant.append(
            lambda table, name, entry: self._note(
                "store", f"grants {table.scope} to {name} at version {entry.version}"
            )
        )

    def _started(self, number: int) -> ClientProgram:
        """Return a new process in the place of *number*."""
        name = f"p{number}.{len(self._lives[number]) + 1}"
        pid = _FIRST_PID + self.simulation.next_number()
        process = SimulatedProcess(self.simulation, name, rate=self.plan.rates[number], pid=pid)
        program = ClientProgram(process, number, self._properties(), self._heard, self.history)
        self._lives[number].append(program)
        if self.plan.has_locks:
            program.share_lock()
        if self.plan.has_items:
            program.share_items()
        if self.plan.operators:
            program.take_time_to_step_down()
        if self.plan.priorities:
            program.stand_with(self.plan.priorities[number])
        program.start(self.simulation)
        if self.is_healed:
            program.be_calm()
        return program

    def _started_operator(self, number: int) -> OperatorProgram:
        pid = _FIRST_PID + self.simulation.next_number()
        process = SimulatedProcess(self.simulation, f"o{number}", pid=pid)
        operator = OperatorProgram(
            process,
            self._properties(),
            SERVICE,
            GROUP,
            len(self.plan.rates),
            self.directives,
            lambda: self.simulation.now,
            partial(self._note, process.name),
            bans=self.plan.has_bans,
        )
        operator.start(self.simulation)
        return operator

    def _properties(self) -> Configuration:
        plan = self.plan
        properties: dict[str, Written] = {
            "plugin.locator.classname": f"{ModelBackend.__module__}:{ModelBackend.__qualname__}",
            "plugin.model.store": _STORE,
            "plugin.namespace": ROOT,
            "plugin.operation.timeout.ms": round(1000 * plan.operation_seconds),
            "plugin.connect.timeout.ms": 5000,
            "plugin.operations": bool(plan.operators),
        }
        if self.store.dialect.granted_seconds is None:
            properties["plugin.session.timeout.ms"] = round(1000 * plan.session_seconds)
        return properties

    def _note(self, where: str, text: str) -> None:
        if self._noted is not None:
            self._noted(self.now, where, text)

    def _run_until(self, moment: float, is_over: Callable[[], bool] = lambda: False) -> None:
        self.simulation.run(moment, lambda: self._has_failed() or is_over())

    def _has_failed(self) -> bool:
        """Return whether a promise was broken, or a thread has raised."""
        return bool(self.failures or self.simulation.failures)

    def _heal(self) -> None:
        """End all faults, for good."""
        self._note("judge", "all faults end")
        self.is_healed, self.calm_since = True, self.now
        conditions = self.network.conditions
        self.network.conditions = type(conditions)(delay_seconds=conditions.delay_seconds)
        self._service.restart()
        for operator in self._operators:
            operator.be_calm()
        for program in list(self._programs):
            program.process.is_paused = False
            program.be_calm()
            self._replace_dead(program.number)

    def _settle(self) -> None:
        limit = self.now + 60.0 + 20.0 * len(self._programs)
        limit += 2 * HOLD_SECONDS if self._operators else 0.0
        self._run_until(limit, self._is_done)
        self._run_until(self.now + 4 * self.plan.session_seconds)
        if not self._has_failed():
            for promise in self._promises:
                promise.settled()

    def _is_done(self) -> bool:
        return all(program.is_done for program in self._programs) and all(
            operator.has_ended for operator in self._operators
        )

    def _watch(self) -> None:
        for promise in self._watching:
            promise.watched()
        self.simulation.at(self.now + _WATCH_SECONDS, self._watch)

    def _heard(self, program: ClientProgram, event: Event) -> None:
        self._note(program.process.name, f"{event.what}: {event.subject!r}")
        for promise in self._promises:
            promise.heard(program, event)

    def _note_change(self, table: Table) -> None:
        self.changed_at[table] = self.now

    # -- faults

    def _strike(self, fault: RunFault) -> None:
        if self.is_healed:
            return
        program = self._programs[fault.target] if fault.target != LEADER else self._leader()
        lasting = "" if fault.kind in _MOMENTARY else f" for {fault.seconds:g} s"
        self._note(program.process.name, f"fault: {fault.kind.name}{lasting}")
        undo = self._faults.begin(fault.kind, program)
        end = self.now + fault.seconds
        self.calm_since = max(self.calm_since, end if undo is not None else self.now)
        if undo is not None:
            self.simulation.at(end, lambda: self.is_healed or undo())

    def _leader(self) -> ClientProgram:
        leading = (program for program in self._programs if program.term() is not None)
        return next(leading, self._programs[0])

    def _replace_dead(self, number: int) -> None:
        if self._programs[number].process.is_dead:
            self._programs[number] = self._started(number)


class _Errors(logging.Handler):
    """Takes what kip30 logs as an error for a failure."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(logging.ERROR)
        self._schedule = schedule

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._schedule.fail("error", f"logged: {record.getMessage()}: {error!r}")


_LOGS: Final = ("kip30", "kip30_backends")


@contextmanager
def _silent() -> Generator[None]:
    """Show no log: a run logs thousands of lost sessions, and its end ends threads in any state."""
    loggers = [logging.getLogger(name) for name in _LOGS]
    shown = [(logger, logger.propagate) for logger in loggers]
    nothing = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(nothing)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagates in shown:
            logger.removeHandler(nothing)
            logger.propagate = propagates


@contextmanager
def _reported(schedule: Schedule) -> Generator[None]:
    handler = _Errors(schedule)
    for name in _LOGS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in _LOGS:
            logging.getLogger(name).removeHandler(handler)
