"""Waiting in the order of arrival: a line is a group, and its order that of the incarnations.

A client that waits joins the group, and counts the members before it (`runtime.line_position`). No
later one comes before it. So neither a race nor a compare-and-set decides which is next: once a
member is admitted it stays admitted, for as long as its membership lasts.
"""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Self, TypeVar

from kip30.codecs import BYTES
from kip30.driver.kit.futures import Completed, fail, succeed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import new_nonce
from kip30.errors import (
    Kip30Error,
    NotAcquiredError,
    NotMemberError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30.locator import PluginLocator
from kip30.membership import GroupMembership
from kip30.recipes.grips import Grip
from kip30.recipes.handles import Deadline, RecipeHandle
from kip30.recipes.steps import Await, Call, Steps
from kip30.runtime.line_position import LinePosition, Select
from kip30.runtime.member import Member, MemberCallbacks
from kip30.runtime.member_lifecycle import MemberLifecycle
from kip30.runtime.open_store import OpenStore

T = TypeVar("T")
P = TypeVar("P", bound="Place")

STORE_AWAY = (UnavailableError, OutcomeUnknownError)
"""Errors after which a waiting recipe retries."""


class WaitingLine(RecipeHandle, GroupMembership[bytes]):
    """The line of one recipe; any number of callers of one process wait in it, independently."""

    @classmethod
    def of(cls, locator: PluginLocator, group: str) -> Self:
        """Return the line that is *group* in the store of *locator*."""
        plain = locator.group_membership(group, BYTES)
        return cls(plain._store, group, BYTES, plain._owner)  # noqa: SLF001  of its own class

    def grip(self, data: bytes, select: Select, deadline: Deadline) -> Steps[Grip]:
        """Return the grip of a place, once the place is admitted; see `admitted`.

        Raises:
            NotAcquiredError: It was not admitted by *deadline*, and is given up.
        """
        place: Place | None = yield from self.admitted(data, select, deadline)
        if place is None:
            raise NotAcquiredError(f"{self.group!r} was not acquired in {deadline.seconds:g} s")
        token = place.member.incarnation.major
        seconds, progress = self.operation_seconds(), self._store.work
        return Grip(place.member, token, place.leave, seconds, progress=progress)

    def admitted(self, data: bytes, select: Select, deadline: Deadline) -> Steps["Place | None"]:
        """Join with *data*, and return the place once *select* selects none of those before it.

        None if that does not happen by *deadline*. A place that is lost with the session while it
        waits is replaced by one at the end. While the store does not answer, the request is
        retried.
        """
        self._check()
        retry = Retry(self._store.context.clock)
        while True:
            place = yield from self.joined(data, partial(Place, select=select), retry, deadline)
            if place is not None:
                with place.kept_if_admitted() as left:
                    yield Await((place.looked, place.member.over), deadline.first_try_until)
                    yield Await((place.admitted, place.member.over), deadline.until)
                if place.is_admitted():
                    return place
                place.check()
                if self.now() >= deadline.until:
                    # Otherwise the caller's next attempt might find this place before its own.
                    yield Await((left,), deadline.first_try_until)
            self._check()
            if self.now() >= deadline.until:
                return None

    def joined(
        self,
        data: bytes,
        take: "Callable[[Joined], P]",
        retry: Retry,
        deadline: Deadline,
    ) -> Steps[P | None]:
        """Join, and return the place that *take* makes; None if the store does not answer.

        Then this has waited for the backoff of *retry*, but not beyond *deadline*.
        """
        member_id = new_nonce()
        lifecycle = self._enrol(member_id, data, MemberCallbacks(), rejoin=False)
        try:
            member = yield from self._member(lifecycle, retry, deadline)
            if member is None:
                self.left(member_id, lifecycle)
                return None
            place = take(Joined(self._store, self, member, lifecycle))
            place.begin()
        except STORE_AWAY:
            self.left(member_id, lifecycle)
            retry.failed()
            yield Await((), min(retry.due, deadline.until))
            return None
        except BaseException:  # also if the caller no longer wants it
            self.left(member_id, lifecycle)
            raise
        return place

    def _member(
        self, lifecycle: MemberLifecycle, retry: Retry, deadline: Deadline
    ) -> Steps[Member | None]:
        """Join, retried while the store does not answer, but not beyond *deadline*.

        By the same id, because each claim without an answer is searched for when it is given up.
        """
        join = partial(lifecycle.join, stays_wanted=STORE_AWAY)
        while True:
            try:
                member: Member = yield Call(join)
            except STORE_AWAY:
                retry.failed()
                yield Await((), min(retry.due, deadline.until))
            else:
                return member
            self._check()
            if self.now() >= deadline.until:
                return None

    def may_have(self, member_id: str) -> bool:
        """Return whether *member_id* is in the line, or a record by its name that cannot be read.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        members = self.membership()
        return member_id in members.incarnations or member_id in members.unreadable

    def answered(self, ask: Callable[[], T], deadline: Deadline) -> Steps[T]:
        """Return the answer to *ask*, retried while the store does not answer.

        Raises:
            NotAcquiredError: It did not answer by *deadline*. At least one request was made.
        """
        retry = Retry(self._store.context.clock)
        while True:
            try:
                answer: T = yield Call(ask)
            except STORE_AWAY as error:
                self._check()
                if self.now() >= deadline.until:
                    raise NotAcquiredError(f"{self.group!r}: the store did not answer") from error
                retry.failed()
                yield Await((), min(retry.due, deadline.until))
            else:
                return answer

    def left(self, member_id: str, lifecycle: MemberLifecycle) -> Future[None]:
        """Leave; the future ends when the store has confirmed it."""
        if self._store.is_foreign():  # the parent still holds it
            return Completed(None)
        self._drop(member_id, lifecycle)
        return lifecycle.leave()


class Joined(NamedTuple):
    """A member that has just joined a line, from which a place is made."""

    store: OpenStore
    line: WaitingLine
    member: Member
    lifecycle: MemberLifecycle


class Place:
    """A member in a line that waits until no selected member is before it.

    Attributes:
        member: The membership.
        looked: Done once it is known which members are before it, or that it is not there itself.
        admitted: Done once none of those before it is selected; it fails if that can no longer
        happen.
    """

    def __init__(self, joined: Joined, select: Select) -> None:
        """Do nothing before `begin`."""
        store, line, member, self._lifecycle = joined
        self.member: Member = member
        self.looked: Future[None] = Future()
        self.admitted: Future[None] = Future()
        self._store = store
        self._line = line
        self._task = store.dispatcher.task(
            self._run, f"place in {line.group!r}", waits_for_store=True
        )
        self._retry = Retry(store.context.clock)
        # Set by any thread; only the task uses the position, and finally gives it up.
        self._is_over = False
        self._position = LinePosition(store, line.group, member.claim, self._task, select)

    def begin(self) -> None:
        """Read the line, and again whenever a member that *select* chose has left."""
        self._task.wake()

    def is_admitted(self) -> bool:
        """Return whether it is admitted, and still there."""
        is_admitted = self.admitted.done() and self.admitted.exception() is None
        return is_admitted and self.member.is_valid()

    def check(self) -> None:
        """Raise the error that keeps it from admission, unless it was lost with the session."""
        error = self.admitted.exception() if self.admitted.done() else None
        if error is not None and not isinstance(error, NotMemberError):
            raise error

    @contextmanager
    def kept_if_admitted(self) -> Generator[Future[None]]:
        """Leave at the end of the block, unless it is admitted by then.

        The future of the block ends when the store has confirmed that it left.
        """
        left: Future[None] = Future()
        try:
            yield left
        except BaseException:
            self.leave()
            raise
        if not self.is_admitted():
            self.leave().add_done_callback(lambda _left: succeed(left, None))

    def leave(self) -> Future[None]:
        """Give the place up, locally at once; the future ends when the store has confirmed it."""
        if not self._store.is_foreign():
            self._is_over = True
            self._task.wake()
        return self._line.left(self.member.id, self._lifecycle)

    def look(self) -> bool:
        """Read the line, and return whether the place is admitted.

        Raises:
            StoreError: A record cannot be read, and nothing is known of it.
        """
        self._position.count()
        self._require_all_known()
        return not self._position.awaited

    def _require_all_known(self) -> None:
        for name, reason in self._position.unreadable.items():
            raise StoreError(
                f"{name!r} in {self._line.group!r} cannot be read, and may be before this caller:"
                f" {reason}"
            )

    def close(self) -> None:
        """Stop watching. Only the task calls this, as its last action."""
        self._position.close()

    def _run(self) -> None:
        if self._is_over or self.admitted.done():
            self.close()
            self._task.close()
            return
        try:
            if self.look():
                succeed(self.admitted, None)
                self._task.wake()
            succeed(self.looked, None)
        except STORE_AWAY:
            self._retry.failed()
            self._task.wake_at(self._retry.due)
        except Kip30Error as error:
            fail(self.admitted, error)
            succeed(self.looked, None)
            self._task.wake()
