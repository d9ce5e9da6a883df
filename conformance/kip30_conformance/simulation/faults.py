"""The effect of each kind of fault on a process, or on the store, and its end."""

from collections.abc import Callable

from kip30 import Fence
from kip30.driver.records import Kind
from kip30_conformance.simulation.model_service import ModelService
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.plan import RunFaultKind, RunPlan
from kip30_conformance.simulation.programs import GROUP, ROOT, ClientProgram

_CHANCE = 0.5
"""The chance of a loss or a delay during a fault of that kind."""

End = Callable[[], object]
"""Ends a fault."""


class Faults:
    """The faults of one run.

    Attributes:
        excused: The terms that were ended on purpose: their leaders cannot know it.
        excused_sessions: The sessions that were ended on purpose.
    """

    def __init__(
        self, plan: RunPlan, service: ModelService, replace: Callable[[int], object]
    ) -> None:
        """Inject no fault yet; *replace* starts another process in place of a dead one."""
        self.excused: set[Fence] = set()
        self.excused_sessions: set[int] = set()
        self._service = service
        network = service.network
        self._usual = plan.conditions()
        self._replace = replace
        self._begin: dict[RunFaultKind, Callable[[ClientProgram], End | None]] = {
            RunFaultKind.CUT_OFF: lambda one: self._add(network.conditions.cut_off, one),
            RunFaultKind.UNHEARD: lambda one: self._add(network.conditions.unheard, one),
            RunFaultKind.NO_VALUES: lambda one: self._add(network.conditions.without_values, one),
            RunFaultKind.UNANSWERED: lambda one: self._add(network.conditions.unanswered, one),
            RunFaultKind.SLOW: lambda one: self._add(network.conditions.slow, one),
            RunFaultKind.NO_POLLS: self._silence,
            RunFaultKind.PAUSE: self._pause,
            RunFaultKind.DOWN: self._stop_store,
            RunFaultKind.LOSSY: lambda _: self._worsen("lost_requests", "lost_answers"),
            RunFaultKind.LATE: lambda _: self._worsen("late_requests", "late_answers"),
            RunFaultKind.MISSED: lambda _: self._worsen("lost_notifications"),
            RunFaultKind.KILL: self._kill,
            RunFaultKind.EVICT: self._evict,
            RunFaultKind.EXPIRE: self._expire,
        }

    def begin(self, kind: RunFaultKind, program: ClientProgram) -> End | None:
        """Begin a fault, and return what ends it; None if it has no duration."""
        return self._begin[kind](program)

    def _add(self, names: set[str], program: ClientProgram) -> End:
        name = program.process.name
        names.add(name)
        return lambda: names.discard(name)

    def _pause(self, program: ClientProgram) -> End:
        program.process.is_paused = True

        def resume() -> None:
            program.process.is_paused = False

        return resume

    def _silence(self, program: ClientProgram) -> End | None:
        member = program.items
        if member is None:
            return None
        member.is_silent = True

        def resume() -> None:
            member.is_silent = False

        return resume

    def _stop_store(self, _: ClientProgram) -> End:
        self._service.stop()
        return self._service.restart

    def _worsen(self, *names: str) -> End:
        conditions = self._service.network.conditions
        for name in names:
            setattr(conditions, name, _CHANCE)

        def improve() -> None:
            for name in names:
                setattr(conditions, name, getattr(self._usual, name))

        return improve

    def _kill(self, program: ClientProgram) -> End:
        self._service.store.simulation.kill(program.process)
        return lambda: self._replace(program.number)

    def _evict(self, program: ClientProgram) -> None:
        self._service.store.delete(Table(ROOT, Kind.GROUP, GROUP), program.member_id)

    def _expire(self, program: ClientProgram) -> None:
        known = program.lease()
        if known is not None and not program.process.is_dead:
            self.excused_sessions.add(known[0])
            self.excused |= self._service.store.terms_of(known[0])
            self._service.store.end_session(known[0])
