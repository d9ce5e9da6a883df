"""Promises about safety: events that never happen, in spite of all faults.

Most are judged at each event, by the grants of the store. The leases of D04 and the owners of D10
are judged several times a second too; D09 and the guarded writes of D10 at the end.
"""

from collections.abc import Iterable

from typing_extensions import override

from kip30 import Member
from kip30.coordinator import Item
from kip30.driver.records import Entry, Kind, check_fence
from kip30.history.linearizability import check
from kip30.history.storage_register import StorageRegister
from kip30.history.verdict import Verdict
from kip30.recipes import FencedGrip
from kip30.runtime.candidacy import Leadership
from kip30_conformance.simulation.item_program import GuardedWrite
from kip30_conformance.simulation.lock_program import LOCK_SERVICE
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.programs import SERVICE, ClientProgram, Event
from kip30_conformance.simulation.promises import Promise, World


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
        if (table.kind, table.scope) != (Kind.SERVICE, SERVICE):
            return
        for program in self.world.programs:
            term = program.term()
            if term is not None:
                self.contradicts(program, term, entry)

    def contradicts(self, program: ClientProgram, term: Leadership, entry: Entry) -> None:
        """Judge that *program* believes in *term* when *entry* is granted."""
        if check_fence(term) in self.world.excused:
            return
        if term.claim.entry.nonce == entry.nonce:
            return  # its own claim, which it has repeated
        left = term.lease.deadline - program.process.now()
        self.broken(f"{program.process.name} believes in epoch {term.epoch} for {left:.3f} s more")


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
        if (table.kind, table.scope) == (Kind.SERVICE, SERVICE):
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
    """D04: a term or lease that has ended stays so, and a loss is notified before the return."""

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
        if isinstance(event.subject, Leadership) and event.what == "lost":
            self._ended[event.subject] = name
        if not isinstance(event.subject, Member):
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


class CallsHaveAnOrder(Promise):
    """D09: one order explains the answers to all calls; no fence was accepted too late.

    Calls of which no order is known, or none of which has written anything, show nothing.
    """

    id = "D09"

    @override
    def settled(self) -> None:
        history, excused = self.world.history, self.world.excused
        terms = [term for term in history.terms if check_fence(term) not in excused]
        rows = history.recorder.rows()
        if not any(row.acknowledged and row.op != "get" for row in rows):
            self.broken(f"no write was acknowledged: {len(rows)} calls show nothing")
        report = check(rows, StorageRegister(terms=terms))
        if report.verdict is not Verdict.OK:
            self.broken(str(report))


class OneHolder(OneLeader):
    """D10: no two users hold the lock at once, and tokens rise."""

    id = "D10"

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        self._granted: dict[int, str] = {}
        self._acquired: set[int] = set()

    @override
    def granted(self, table: Table, name: str, entry: Entry) -> None:
        if (table.kind, table.scope) != (Kind.SERVICE, LOCK_SERVICE):
            return
        self._granted[entry.version.major] = entry.nonce
        for program in self.world.programs:
            for term in program.lock_terms():
                self.contradicts(program, term, entry)

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        grip = event.subject
        if not isinstance(grip, FencedGrip):
            return
        assert isinstance(grip.held, Leadership)
        name = program.process.name
        if grip.token not in self._granted:
            self.broken(f"{name} acquired token {grip.token}, which was not granted")
        if grip.token in self._acquired:
            self.broken(f"{name} acquired token {grip.token}, as another user had")
        self._acquired.add(grip.token)
        if check_fence(grip.held) in self.world.excused:
            return  # it has ended on purpose before the answer came
        holders = [term for one in self.world.programs for term in one.lock_terms()]
        others = [
            term.epoch
            for term in holders
            if term is not grip.held and check_fence(term) not in self.world.excused
        ]
        if others:
            self.broken(f"{name} acquired token {grip.token} while {others} was held")


class OneOwner(Promise):
    """D10: no two members own an item at once, and no write for a former share is accepted."""

    id = "D10"

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        if event.what == "assigned":
            self.watched()

    @override
    def watched(self) -> None:
        owners: dict[Item, str] = {}
        for program in self.world.programs:
            owned = program.owned()
            if owned.session in self.world.excused_sessions:
                continue
            name = program.process.name
            for item in owned.items:
                if item in owners:
                    self.broken(f"{owners[item]} and {name} own item {item.partition}")
                owners[item] = name

    @override
    def settled(self) -> None:
        newest = dict[Item, GuardedWrite]()
        for write in sorted(self.world.history.guarded_writes, key=lambda one: one.version):
            former = newest.setdefault(write.item, write)
            if write.since < former.since:
                self.broken(f"{write} was accepted after {former}")
            newest[write.item] = write


SAFETY_PROMISES: Iterable[type[Promise]] = (
    SessionOutlivesLease,
    OneLeader,
    EpochsRise,
    NothingComesBack,
    CallsHaveAnOrder,
    OneHolder,
    OneOwner,
)
