"""The faults of a run on another store than the model, as far as its backend offers them."""

from collections.abc import Callable
from functools import partial

from typing_extensions import override

from kip30.driver import Backend
from kip30.driver.lease import Lease
from kip30.driver.records import check_fence
from kip30.runtime.candidacy import Leadership
from kip30_conformance.simulation.faults import Faults
from kip30_conformance.simulation.model_service import ModelService
from kip30_conformance.simulation.plan import RunPlan
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.programs import GROUP, ClientProgram, Event


class StoreFaults(Faults):
    """Ends sessions and removes members by the attribute ``faults`` of the backend, if it has one.

    That is the same attribute as for the conformance suite; see
    `kip30_conformance.client_faults.ClientFaults`. Without its methods these faults do nothing.
    """

    def __init__(
        self, plan: RunPlan, service: ModelService, replace: Callable[[int], object]
    ) -> None:
        """Inject no fault yet; see `Faults`."""
        super().__init__(plan, service, replace)
        self.reader: tuple[SimulatedProcess, Backend] | None = None
        self._ended: list[Lease] = []

    def excuse(self, event: Event) -> None:
        """Excuse a term whose session was ended on purpose before the answer to its claim came."""
        term = event.subject
        if isinstance(term, Leadership) and any(term.lease is one for one in self._ended):
            self.excused.add(check_fence(term))

    @override
    def _evict(self, program: ClientProgram) -> None:
        if self.reader is None:
            return
        process, backend = self.reader
        delete = _fault(backend, "delete_member")
        if delete is not None:
            self._strike(process, partial(delete, GROUP, program.member_id))

    @override
    def _expire(self, program: ClientProgram) -> None:
        backend, known, term = program.backend(), program.lease(), program.term()
        expire = _fault(backend, "expire_session")
        if expire is None or known is None or program.process.is_dead:
            return  # what has not happened excuses no term
        self._ended.append(known[1])
        if term is not None:
            self.excused.add(check_fence(term))
        self._strike(program.process, expire)

    def _strike(self, process: SimulatedProcess, fault: Callable[[], object]) -> None:
        """Call *fault* on a thread, which may wait for locks."""
        simulation().spawn(process, "fault", fault)


def _fault(backend: Backend | None, name: str) -> Callable[..., object] | None:
    """Return the method *name* of the backend's faults; None if it has none."""
    method: Callable[..., object] | None
    method = getattr(getattr(backend, "faults", None), name, None)
    return method if callable(method) else None
