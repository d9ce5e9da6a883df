"""A lock that one client at a time holds, over any store.

It is built on an election: the holder leads, and its epoch is the fencing token. A fair lock is
acquired in the order of arrival: its callers wait in a line, and the first of it stands for
election.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from typing_extensions import override

from kip30.codecs import STR
from kip30.driver.closeable import Closeable
from kip30.driver.kit.futures import Completed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Snapshot, new_nonce
from kip30.election import Leader, LeaderElection
from kip30.errors import NotAcquiredError, OutcomeUnknownError, UnavailableError
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.recipes.grips import FencedGrip
from kip30.recipes.handles import Deadline, RecipeHandle
from kip30.recipes.line import Place, WaitingLine
from kip30.recipes.steps import Await, Call, Steps
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.campaign import Campaign
from kip30.runtime.candidacy import Candidacy, Leadership
from kip30.runtime.line_position import one_at


def lock_service(name: str) -> str:
    """Return the service that the holder of lock *name* leads, and the group of its fair line.

    Raises:
        InvalidNameError: *name* is not a valid name, or has more than 242 bytes after escaping.
    """
    return check_id(f"kip30.lock/{check_id(name, 'lock')}", "lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """The answer of `Lock.holder`: the holder's text about itself, and the token of its grip."""

    about: str
    token: int


class LockElection(RecipeHandle, LeaderElection[str]):
    """The election behind a lock, which leaves waiting to its caller."""

    @classmethod
    def of(cls, locator: PluginLocator, service: str, *, forms_line: bool = True) -> Self:
        """Return the election for *service* in the store of *locator*.

        Without *forms_line* its candidates wait in another line before they stand for election.
        """
        plain = locator.leader_election(service)
        election = cls(plain._store, service, STR, plain._owner)  # noqa: SLF001  of its own class
        if not forms_line:
            election._campaign = Campaign(election._store, service, forms_line=False)
        return election

    def elected(
        self, about: str, deadline: Deadline, lost: Future[None] | None
    ) -> Steps[FencedGrip | None]:
        """Nominate a new candidate, and return its grip once it leads.

        None if it does not by *deadline*, if *lost* is done before, or if its term had ended before
        it was seen: `_new_candidacy` withdraws it then. The candidate is withdrawn in each case.
        """
        candidacy = self._new_candidacy(about)
        with self._withdrawn_unless_it_leads(candidacy):
            stop = () if lost is None else (lost,)
            if not (yield from self._nominated(candidacy, deadline, stop)):
                return None
            yield Await((candidacy.tried,), deadline.first_try_until)
            candidacy.first_attempt_done()
            candidacy.tried.result()
            while not candidacy.leads() and self.now() < deadline.until:
                term = self._campaign.elected(candidacy.candidate)
                yield Await((term, *stop), deadline.until)
                self._check()  # a candidate that was withdrawn by closing no longer waits
                if any(one.done() for one in stop) or not term.done() or term.result() is None:
                    term.cancel()
                    break
        return self._grip(candidacy)

    def _nominated(
        self, candidacy: Candidacy, deadline: Deadline, stop: Sequence[Future[None]]
    ) -> Steps[bool]:
        """Nominate *candidacy*; false if it cannot be by *deadline*, or before *stop* is done.

        It takes a thread for a moment, and a loop whose calls wait for the store may have none.
        """
        retry = Retry(self._store.context.clock)
        while True:
            try:
                yield Call(partial(self._campaign.add, candidacy, alone=True))
            except OutcomeUnknownError:
                return False  # it is still in progress: the caller withdraws it
            except UnavailableError:
                self._check()
                retry.failed()
                yield Await(stop, min(retry.due, deadline.until))
                if self.now() >= deadline.until or any(one.done() for one in stop):
                    return False
            else:
                return True

    def _new_candidacy(self, about: str) -> Candidacy:
        """Return a candidacy that ends with its first term, and never leads for a lost grip."""
        campaign = self._campaign  # alone: this handle would keep its own connection open

        def end(_term: Leadership) -> None:
            campaign.withdraw(candidacy)

        candidacy = self._candidacy(new_nonce(), about, on_lost=end, is_internal=True)
        return candidacy

    def _grip(self, candidacy: Candidacy) -> FencedGrip | None:
        term: Leadership | None = candidacy.leadership
        if term is None or not term.is_valid():
            return None
        withdraw, seconds = partial(self.withdraw, candidacy), self.operation_seconds()
        return FencedGrip(term, withdraw, seconds, progress=self._store.work)

    @contextmanager
    def _withdrawn_unless_it_leads(self, candidacy: Candidacy) -> Generator[None]:
        try:
            yield
        except BaseException:
            self.withdraw(candidacy)
            raise
        if not candidacy.leads():
            self.withdraw(candidacy)

    def withdraw(self, candidacy: Candidacy) -> Future[None]:
        """End the candidacy and its term, locally at once; the store confirms it by the future."""
        if self._store.is_foreign():  # the parent still holds it
            return Completed(None)
        return self._campaign.withdraw(candidacy)

    def state(self) -> Future[Snapshot]:
        """Ask for the leader."""
        return self._state()

    def leader(self, snapshot: Snapshot) -> Leader[str] | None:
        """Return the leader in *snapshot*."""
        return self._leader(snapshot)


class LockRequests:
    """Requests of a lock, for a thread or an event loop."""

    def __init__(self, locator: PluginLocator, name: str, *, fair: bool, about: str) -> None:
        """Send nothing yet; see `Lock`."""
        service = lock_service(name)
        self.election: LockElection = LockElection.of(locator, service, forms_line=not fair)
        self._name = name
        self._line = WaitingLine.of(locator, service) if fair else None
        self._about = about

    def acquire(self, timeout_seconds: float | None) -> Steps[FencedGrip]:
        """Hold the lock; see `Lock.acquire`."""
        election = self.election
        election.check()
        deadline = election.deadline(timeout_seconds)
        while True:
            grip = yield from self._attempt(deadline)
            if grip is not None:
                return grip
            if election.now() >= deadline.until:
                seconds = deadline.seconds
                raise NotAcquiredError(f"lock {self._name!r} was not acquired in {seconds:g} s")

    def holder(self, leader: Leader[str] | None) -> Holder | None:
        """Return *leader* in the form that users see."""
        return None if leader is None else Holder(leader.data, leader.epoch)

    @property
    def handles(self) -> Sequence[RecipeHandle]:
        """The handles behind it, in the order in which they are closed."""
        return [self.election] if self._line is None else [self._line, self.election]

    def close(self) -> None:
        """Release it, and end all that wait for it: first locally, then in the store."""
        LoopHandle.close_together(self.handles)

    def _attempt(self, deadline: Deadline) -> Steps[FencedGrip | None]:
        """Return a grip; None after the deadline, or if the place in the line was lost."""
        if self._line is None:
            return (yield from self.election.elected(self._about, deadline, None))
        place: Place | None = yield from self._line.admitted(b"", one_at(1), deadline)
        if place is None:
            return None
        try:
            lost = place.member.over
            return (yield from self.election.elected(self._about, deadline, lost))
        finally:
            # Once the lock is held, the next in the line stands for election, so that it is ready.
            place.leave()


class Lock(Closeable):
    """A lock named *name*, which one caller of all clients holds at a time. Thread-safe.

    It is not reentrant: another `acquire` of the same thread waits for the first one's release.
    Each grip has a token that is greater than those of all grips before it. Data that a former
    holder must not write is written with ``fence=grip``.

    Without *fair*, callers of one process acquire it one after the other in the order in which they
    came; between processes there is no promised order. With *fair*, callers that are *fair* acquire
    it in the order of their arrival at the store, at the cost of two more round trips. A client
    that does not answer delays those behind it until its session ends.

    Every method may raise `ClosedError` or `LifecycleError`; then nothing was sent.
    """

    def __init__(
        self, locator: PluginLocator, name: str, *, fair: bool = False, about: str = ""
    ) -> None:
        """Create a lock object for the store of *locator*; nothing is sent.

        Args:
            locator: A started locator.
            name: The name of the lock: the same for all callers that exclude each other.
            fair: Whether callers acquire it in the order of their arrival.
            about: A text about this caller, which `holder` shows.

        Raises:
            InvalidNameError: *name* is not a valid name, or has more than 242 bytes after escaping.
        """
        self._requests = LockRequests(locator, name, fair=fair, about=about)

    def acquire(self, timeout_seconds: float | None = None) -> FencedGrip:
        """Wait until the lock is held, and return the grip. Usable as a context manager.

        Keeps waiting while the store does not answer. With a *timeout_seconds* of 0 it
        makes one attempt, and ends with the answer to it, or by the operation timeout.

        Raises:
            NotAcquiredError: Not held within *timeout_seconds*. The request is withdrawn.
            UsageError: *timeout_seconds* is negative or not a number. Nothing was sent.
            AuthenticationError, StoreError: The store refuses it, or the record of the
                holder or of a fair caller cannot be read. Nothing is held.
        """
        return self._requests.election.take(self._requests.acquire(timeout_seconds))

    def try_acquire(self) -> FencedGrip | None:
        """Return the grip if the lock is free now; else None. See `acquire`."""
        try:
            return self.acquire(0)
        except NotAcquiredError:
            return None

    def holder(self) -> Holder | None:
        """Return the holder, read from the store now; None if the lock is free.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
            StoreError: The record of the holder cannot be read.
        """
        return self._requests.holder(self._requests.election.get_leader())

    @override
    def close(self) -> None:
        """Release what is held through this object, and end all that wait. Idempotent.

        A grip whose ``with`` block another thread has not left yet is released in the store when
        that is left. A caller that waits gets `LifecycleError`. The locator stays open.
        """
        self._requests.close()
