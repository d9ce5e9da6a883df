"""A barrier that opens once a number of parties wait at it, again and again, over any store.

Its parties wait in a line, and a record of the store says which of them the newest round let pass.
Each party that sees enough others tries to open the next round, by compare-and-set, so exactly one
succeeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from typing_extensions import override

from kip30.codecs import JSON
from kip30.driver.closeable import Closeable
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Kind, Target, Version
from kip30.errors import (
    KeyExistsError,
    NotAcquiredError,
    OutcomeUnknownError,
    StoreError,
    UsageError,
    VersionConflictError,
)
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.recipes.argument_checks import positive
from kip30.recipes.line import STORE_AWAY, Joined, Place, WaitingLine
from kip30.recipes.steps import Await, Call, Steps
from kip30.runtime.line_position import InLine
from kip30.storage import Storage, Versioned

MOST_PARTIES = 1000
"""Maximum number of parties of a barrier: the record of a round names each."""


def barrier_group(name: str) -> str:
    """Return the group in which the parties of barrier *name* wait, and the namespace of it.

    Raises:
        InvalidNameError: *name* is not a valid name, or has more than 239 bytes after escaping.
    """
    return check_id(f"kip30.barrier/{check_id(name, 'barrier')}", "barrier")


@dataclass(frozen=True, slots=True)
class Round:
    """The newest round: its number, the barrier's number of parties, and those that passed in it.

    The members are in the order of their arrival. Round 0 precedes the first one, and has no
    members.
    """

    parties: int
    number: int = 0
    members: tuple[str, ...] = ()

    def place(self, member_id: str) -> int | None:
        """Return the position of *member_id* among those that passed; None if it did not pass."""
        return self.members.index(member_id) if member_id in self.members else None

    def json(self) -> object:
        """Return the stored form."""
        return {"parties": self.parties, "round": self.number, "members": list(self.members)}


class RoundRecord:
    """The record of the newest round of one barrier. Its methods wait for the store."""

    def __init__(self, storage: Storage[Any], namespace: str, parties: int) -> None:
        """Send nothing yet."""
        self.target: Target = Target(Kind.VALUE, namespace, "round")
        self._key = f"{namespace}/round"
        self._storage = storage
        self._parties = parties

    def agreed(self) -> Round:
        """Return the newest round, after creating the record if there is none.

        Raises:
            UsageError: The store has another number of parties.
        """
        found = self._storage.get(self._key)
        if found is None:
            first = Round(self._parties)
            try:
                self._storage.put(self._key, first.json())
            except KeyExistsError:
                return self.agreed()
            return first
        newest = self._decoded(found)
        if newest.parties != self._parties:
            raise UsageError(
                f"{self._key!r} is of a barrier of {newest.parties} parties, not of"
                f" {self._parties}: all clients must name the same number"
            )
        return newest

    def read(self) -> tuple[Version, Round]:
        """Return the newest round, and the version that the next one replaces.

        Raises:
            StoreError: It is gone, or is no record of a barrier.
        """
        found = self._storage.get(self._key)
        if found is None:
            raise StoreError(f"{self._key!r} is gone: it was deleted while the barrier was in use")
        return found.version, self._decoded(found)

    def replace(self, version: Version, newest: Round) -> bool:
        """Replace the record at *version* by *newest*; false if that version is outdated."""
        try:
            self._storage.compare_and_set(self._key, version, newest.json())
        except VersionConflictError:
            return False
        return True

    def _decoded(self, found: Versioned[Any]) -> Round:
        try:
            parties, number = found.value["parties"], found.value["round"]
            return Round(int(parties), int(number), tuple(map(str, found.value["members"])))
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise StoreError(f"{self._key!r} is not the record of a barrier") from error


class BarrierPlace(Place):
    """A place at a barrier; it is admitted by the round that names it.

    A round opens only once all members that passed in the one before have left, or are dead. So the
    record names a passed member for as long as that member exists.

    Attributes:
        passed_as: Its position in its round; None if it is not known to have passed.
        seen: The number of the newest round that is known not to have let it pass.
    """

    def __init__(self, joined: Joined, *, record: RoundRecord, seen: int) -> None:
        """Do nothing before `begin`."""
        self.passed_as: int | None = None
        self.seen: int = seen
        self._record = record
        # The results of the last read; only the task uses these.
        self._newest = Round(0)
        self._waiting: list[InLine] = []
        super().__init__(joined, self._in_the_way)

    @override
    def begin(self) -> None:
        """Read the line, and again when the record changes or the last round has left."""
        self._store.subscriptions.attach(self._record.target, self._task)
        super().begin()

    @override
    def look(self) -> bool:
        # The record first: if it has this version when the next round is written, no member found
        # in the line has passed in a round that the record does not name.
        version, self._newest = self._record.read()
        if not self._has_passed():
            self.seen = self._newest.number
            self._position.look()
            self._require_all_known()
            if self._is_complete() and not self._position.awaited:
                self._open(version)
        return self.passed_as is not None

    @override
    def close(self) -> None:
        super().close()
        self._store.subscriptions.detach(self._record.target, self._task)

    def _in_the_way(self, before: Sequence[InLine]) -> Sequence[InLine]:
        """Select a member that passed in the last round and is still there, if enough wait."""
        self._waiting = [one for one in before if one.id not in self._newest.members]
        if not self._is_complete():
            return ()
        return [one for one in before if one.id in self._newest.members][-1:]

    def _is_complete(self) -> bool:
        return len(self._waiting) + 1 >= self._newest.parties

    def _open(self, version: Version) -> None:
        """Let the first waiting members pass, unless another party has done so."""
        waiting = [*(one.id for one in self._waiting), self.member.id]
        passing = tuple(waiting[: self._newest.parties])
        following = replace(self._newest, number=self._newest.number + 1, members=passing)
        if self._record.replace(version, following):
            self._newest = following
            self._has_passed()
        # Otherwise the record has changed, and its watch wakes the task.

    def _has_passed(self) -> bool:
        self.passed_as = self._newest.place(self.member.id)
        return self.passed_as is not None


class BarrierRequests:
    """Requests of a barrier, for a thread or an event loop."""

    def __init__(self, locator: PluginLocator, name: str, parties: int) -> None:
        """Send nothing yet; see `Barrier`."""
        group = barrier_group(name)
        if positive(parties, "parties") > MOST_PARTIES:
            raise UsageError(f"a barrier has up to {MOST_PARTIES} parties, not {parties}")
        self.line: WaitingLine = WaitingLine.of(locator, group)
        self._record = RoundRecord(locator.storage(JSON), group, parties)
        self._clock = locator.context.clock

    def wait(self, timeout_seconds: float | None) -> Steps[int]:
        """Pass the barrier; see `Barrier.wait`."""
        line = self.line
        line.check()
        deadline, retry = line.deadline(timeout_seconds), Retry(self._clock)
        newest: Round = yield from line.answered(self._record.agreed, deadline)
        seen = newest.number
        while True:
            make = partial(BarrierPlace, record=self._record, seen=seen)
            party = yield from line.joined(b"", make, retry, deadline)
            if party is not None:
                try:
                    yield Await((party.looked, party.member.over), deadline.first_try_until)
                    yield Await((party.admitted, party.member.over), deadline.until)
                finally:
                    party.leave()
                if party.passed_as is not None:
                    return party.passed_as
                line.check()
                party.check()
                seen, place = yield from self._withdrawn(party)
                if place is not None:
                    return place
            line.check()
            if line.now() >= deadline.until:
                raise NotAcquiredError(f"{line.group!r} did not open in {deadline.seconds:g} s")

    def _withdrawn(self, party: BarrierPlace) -> Steps[tuple[int, int | None]]:
        """Make sure that no round will count *party*, which is leaving.

        Return the newest round, and the position of *party* in it if it has passed after all.
        Retries until the session must have ended.

        Raises:
            OutcomeUnknownError: The store did not confirm it, or later rounds hide it.
        """
        retry = Retry(self._clock)
        until = self.line.now() + self.line.operation_seconds() + party.member.timeout_seconds
        withdrawn: Round | None = None
        while withdrawn is None:
            try:
                withdrawn = yield Call(partial(self._withdraw, party.member.id))
            except STORE_AWAY as error:
                cause: Exception | None = error
            else:
                cause = None
            if withdrawn is None:
                self.line.check()
                if self.line.now() >= until:
                    raise OutcomeUnknownError(_UNCONFIRMED) from cause
                retry.failed()
                yield Await((), min(retry.due, until))
        place = withdrawn.place(party.member.id)
        if place is None and withdrawn.number > party.seen + 1:
            raise OutcomeUnknownError(_HIDDEN)
        return withdrawn.number, place

    def _withdraw(self, member_id: str) -> Round | None:
        """Rewrite the record and return its round; None if the caller must retry.

        A party that has read the line before the member left conflicts with another version of the
        record, and reads again.
        """
        if self.line.may_have(member_id):
            return None
        version, newest = self._record.read()
        is_sure = newest.place(member_id) is not None or self._record.replace(version, newest)
        return newest if is_sure else None


_UNCONFIRMED = (
    "the store has not confirmed that the barrier was left: a round may still count this caller"
)
_HIDDEN = (
    "the place was left or lost, and rounds have opened since: one of them may have let this pass"
)


class Barrier(Closeable):
    """A barrier named *name*, which opens whenever a number of parties wait at it. Thread-safe.

    A round lets the first waiting parties pass, in the order of their arrival at the store; those
    that come later wait for the next round. It opens once all that passed in the round before it
    have noticed that, or are dead. A party that dies, gives up, or loses its session before the
    round opens is not counted; one that dies afterwards has passed.

    The first client writes into the store how many parties there are, and all must name that
    number. Every method may raise `ClosedError` or `LifecycleError`.
    """

    def __init__(self, locator: PluginLocator, name: str, parties: int) -> None:
        """Create a barrier object for the store of *locator*; nothing is sent.

        Args:
            locator: A started locator.
            name: The barrier's name: the same for all callers that wait for each other.
            parties: How many pass together, 1,000 at most.

        Raises:
            InvalidNameError: *name* is not a valid name, or has more than 239 bytes after escaping.
            UsageError: *parties* is not a whole number from 1 to 1,000.
        """
        self._requests = BarrierRequests(locator, name, parties)

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait until the barrier opens, and return this caller's position in its round, from 0 on.

        Keeps waiting while the store does not answer. After a lost session it joins the end of the
        line. A call that ends by an interrupt, a cancelled task or closing may be
        counted in a round that opens at that moment.

        Raises:
            NotAcquiredError: It did not open within *timeout_seconds*. No round counts this caller.
            OutcomeUnknownError: It did not open in time, or the session was lost, and it could not
                be found out whether a round counts this caller: the store did not answer, or two
                rounds have opened since.
            UsageError: The store has another number of parties than this object; *timeout_seconds*
                is negative or not a number. Nothing waits.
            UnsupportedError: The store has no ``compare-and-set``.
            AuthenticationError, StoreError: The store refuses it, or a record in the line
                cannot be read.
        """
        return self._requests.line.take(self._requests.wait(timeout_seconds))

    @override
    def close(self) -> None:
        """End all that wait through this object, with `LifecycleError`. Idempotent."""
        self._requests.line.close()
