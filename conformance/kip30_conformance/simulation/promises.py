"""What must hold in every run, judged by what the store has granted.

D01 to D04 are about safety, and judged at each event. The others say what must be there in the end,
or whenever it has been calm for a while.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, NamedTuple, Protocol

from typing_extensions import override

from kip30.driver.records import Entry, Kind
from kip30.history.linearizability import check
from kip30.history.storage_register import StorageRegister
from kip30.history.verdict import Verdict
from kip30.runtime.candidacy import Leadership
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.plan import RunPlan
from kip30_conformance.simulation.programs import GROUP, SERVICE, ClientProgram, Event
from kip30_conformance.simulation.storage_program import CallHistory

CALM_SECONDS = 6.0
"""How long after a fault, and after a change, listeners may show another state."""


class Failure(NamedTuple):
    """A promise that was broken.

    Attributes:
        promise: Its id, such as ``D02``; ``error`` for what no promise is about.
        text: What was found.
        at: The virtual time, in seconds.
    """

    promise: str
    text: str
    at: float

    @override
    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.promise} at {self.at:.3f} s: {self.text}"


class World(Protocol):
    """What promises see of a run."""

    @property
    def plan(self) -> RunPlan:
        """Return what is being run."""
        ...

    @property
    def changed_at(self) -> Mapping[Table, float]:
        """Return when each table last changed."""
        ...

    @property
    def calm_since(self) -> float:
        """Return when the last fault ended, or will end."""
        ...

    @property
    def excused(self) -> AbstractSet[int]:
        """Return the epochs that were ended on purpose: their leaders cannot know it."""
        ...

    @property
    def history(self) -> CallHistory:
        """Return the calls of all processes to storage."""
        ...

    @property
    def programs(self) -> Sequence[ClientProgram]:
        """Return the present programs."""
        ...

    @property
    def now(self) -> float:
        """Return the virtual time."""
        ...

    def rows(self, kind: Kind, scope: str) -> Mapping[str, Entry]:
        """Return what the store has."""
        ...

    def fail(self, promise: str, text: str) -> None:
        """Note that a promise was broken."""
        ...


class Promise:
    """One promise."""

    id: ClassVar[str]

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        self.world = world

    def broken(self, text: str) -> None:
        """Note that this is broken."""
        self.world.fail(self.id, text)

    def expires(self, session: int) -> None:
        """Judge that *session* is about to end in the store, because it was not renewed."""

    def granted(self, table: Table, name: str, entry: Entry) -> None:
        """Judge that the store is about to grant *entry* to *name* in *table*."""

    def heard(self, program: ClientProgram, event: Event) -> None:
        """Judge that a callback of *program* is called."""

    def watched(self) -> None:
        """Judge the present state; called four times a second."""

    def settled(self) -> None:
        """Judge the end: there have been no faults for long, and all have resigned."""


class SessionOutlivesLease(Promise):
    """D01: no process believes in its lease when the store ends the session by its timeout."""

    id = "D01"

    @override
    def expires(self, session: int) -> None:
        for program in self.world.programs:
            known = program.lease()
            if known is None or program.process.is_dead or known[0] != session:
                continue
            if program.believes_in(known[1]):
                left = known[1].deadline - program.process.now()
                self.broken(f"{program.process.name} believes in its lease for {left:.3f} s more")


class OneLeader(Promise):
    """D02: no process has a valid leadership when the store grants the service to another one."""

    id = "D02"

    @override
    def granted(self, table: Table, name: str, entry: Entry) -> None:
        if table.kind is not Kind.SERVICE:
            return
        for program in self.world.programs:
            term = program.term()
            if term is None or term.epoch in self.world.excused:
                continue
            if term.claim.entry.nonce == entry.nonce:
                continue  # its own claim, which it has repeated
            left = term.lease.deadline - program.process.now()
            self.broken(
                f"{program.process.name} believes in epoch {term.epoch} for {left:.3f} s more"
            )


class EpochsRise(Promise):
    """D03: each term has an epoch and a nonce of its own; epochs were granted, and rise."""

    id = "D03"

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        self._granted: dict[int, str] = {}
        self._last: dict[str, int] = {}
        self._nonces: set[str] = set()  # of terms that were notified

    @override
    def granted(self, table: Table, name: str, entry: Entry) -> None:
        if table.kind is Kind.SERVICE:
            epoch = entry.version.major
            if epoch <= max(self._granted, default=0):
                self.broken(f"epoch {epoch} was granted after {max(self._granted)}")
            self._granted[epoch] = entry.nonce

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        term = event.subject
        if event.what != "elected" or not isinstance(term, Leadership):
            return
        if self._granted.get(term.epoch) != term.claim.entry.nonce:
            self.broken(f"{program.process.name} was elected in epoch {term.epoch}, not granted")
        if term.epoch <= self._last.get(program.process.name, 0):
            self.broken(f"{program.process.name} was elected in epoch {term.epoch} again")
        self._last[program.process.name] = term.epoch
        if term.claim.entry.nonce in self._nonces:
            self.broken(f"{program.process.name} was elected with the nonce of an earlier term")
        self._nonces.add(term.claim.entry.nonce)


class NothingComesBack(Promise):
    """D04: what has ended stays so, and a loss is notified before what follows it."""

    id = "D04"

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        self._ended: dict[Leadership, str] = {}
        # Of each process, whether its member was lost, by the callbacks.
        self._is_lost: dict[str, bool] = {}
        # The numbers of sessions whose leases were no longer believed in.
        self._over: set[int] = set()

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        name = program.process.name
        if isinstance(event.subject, Leadership):
            if event.what == "lost":
                self._ended[event.subject] = name
            return
        if event.what == "rejoined" and not self._is_lost.get(name):
            self.broken(f"{name} was notified of a return, and not of a loss")
        self._is_lost[name] = event.what == "lost"

    @override
    def watched(self) -> None:
        for program in self.world.programs:
            term, known = program.term(), program.lease()
            if term is not None and term in self._ended:
                self.broken(f"{program.process.name} believes in epoch {term.epoch}, which ended")
            if known is None or program.process.is_dead:
                continue
            session, lease = known
            if not program.believes_in(lease):
                self._over.add(session)
            elif session in self._over:
                self.broken(f"{program.process.name} believes in a lease again that was over")


class AllAreElected(Promise):
    """D05: when the network has healed every candidate is elected."""

    id = "D05"

    @override
    def settled(self) -> None:
        for program in self.world.programs:
            if not program.has_led:
                self.broken(f"{program.candidate} was not elected again")


class MembersReturn(Promise):
    """D06: every member is back, with data not older than its last confirmed update."""

    id = "D06"

    @override
    def settled(self) -> None:
        members = self.world.rows(Kind.GROUP, GROUP)
        for program in self.world.programs:
            entry = members.get(program.member_id)
            if entry is None:
                evicted = " (it was evicted)" if program.is_evicted else ""
                self.broken(f"{program.member_id} has not returned{evicted}")
            elif int(entry.data) < program.confirmed:
                shown = entry.data.decode()
                self.broken(f"{program.member_id} shows {shown} after {program.confirmed}")


class ListenersAreRight(Promise):
    """D07: when it has been calm for a while listeners have what the store has."""

    id = "D07"

    @override
    def watched(self) -> None:
        world = self.world
        if world.now < world.calm_since + CALM_SECONDS:
            return
        for program in world.programs:
            if not (program.process.is_dead or program.process.is_paused):
                self._compare(program)

    @override
    def settled(self) -> None:
        for program in self.world.programs:
            self._compare(program)

    def _compare(self, program: ClientProgram) -> None:
        leader, members = self._leader(), self._members()
        for scope, seen, truth in (
            (SERVICE, program.leader, leader),
            (GROUP, program.members, members),
        ):
            if seen in (..., truth) or self._has_just_changed(scope):
                continue
            self.broken(f"{program.process.name} was notified of {seen}, and the store has {truth}")

    def _has_just_changed(self, scope: str) -> bool:
        changed = [at for table, at in self.world.changed_at.items() if table.scope == scope]
        return bool(changed) and self.world.now < max(changed) + CALM_SECONDS

    def _leader(self) -> object:
        leaders = self.world.rows(Kind.SERVICE, SERVICE)
        return next(((name, entry.version.major) for name, entry in leaders.items()), None)

    def _members(self) -> object:
        rows = self.world.rows(Kind.GROUP, GROUP)
        return {name: entry.data.decode() for name, entry in rows.items()}


class NothingIsLeft(Promise):
    """D08: after all have resigned, no living session holds the service."""

    id = "D08"

    @override
    def settled(self) -> None:
        leaders = self.world.rows(Kind.SERVICE, SERVICE)
        if leaders:
            self.broken(f"{', '.join(leaders)} leads in the store after all have resigned")


class CallsHaveAnOrder(Promise):
    """D09: one order explains the answers to all calls; no fence was accepted too late."""

    id = "D09"

    @override
    def settled(self) -> None:
        history, excused = self.world.history, self.world.excused
        terms = [term for term in history.terms if term.epoch not in excused]
        report = check(history.recorder.rows(), StorageRegister(terms=terms))
        if report.verdict is Verdict.VIOLATION:
            self.broken(str(report))


PROMISES: Iterable[type[Promise]] = (
    SessionOutlivesLease,
    OneLeader,
    EpochsRise,
    NothingComesBack,
    AllAreElected,
    MembersReturn,
    ListenersAreRight,
    NothingIsLeft,
    CallsHaveAnOrder,
)
