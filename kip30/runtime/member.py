"""One incarnation of a member, and the callbacks for its end and for the next one."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from typing_extensions import override

from kip30.driver.records import Version
from kip30.errors import DefiniteError, NotMemberError
from kip30.runtime.dispatcher import Dispatcher
from kip30.runtime.leased import LeaseBound
from kip30.runtime.term_work import WorkInProgress
from kip30.runtime.work_delivery import WorkDelivery


class Member(LeaseBound):
    """One incarnation of a member. It ends once, and for good; a re-join is a new one."""

    lost_error: ClassVar[type[DefiniteError]] = NotMemberError

    @property
    def id(self) -> str:
        """The member's id."""
        return self.claim.name

    @property
    def incarnation(self) -> Version:
        """A token of this incarnation: greater than those of all that joined the group before.

        It does not change with the data.
        """
        return self.claim.entry.version

    @property
    def order(self) -> int:
        """Every view of the group with at least this order shows this incarnation or a later state.

        Compare it with `Members.order` of views by the same locator, read or received. It grows
        before `update` returns: a view with at least this order then shows that data, too.
        """
        return self.claim.order

    @override
    def __repr__(self) -> str:
        return f"<member {self.id!r}>"


MemberListener = Callable[[Member], object]


class MemberCallbacks:
    """The callbacks of one member: called one after the other, in the order of the events."""

    def __init__(
        self,
        *,
        on_lost: MemberListener | None = None,
        on_evicted: MemberListener | None = None,
        on_rejoined: MemberListener | None = None,
    ) -> None:
        """Call nothing before `start`."""
        self._on_lost = on_lost
        self._on_evicted = on_evicted
        self._on_rejoined = on_rejoined
        self._queue: WorkDelivery[Callable[[], object]] | None = None

    def start(self, dispatcher: Dispatcher, member_id: str) -> None:
        """Call on the threads of *dispatcher* from now on.

        One queue for all three: a callback that blocks delays the later ones of its member only.
        """
        name = f"a callback of member {member_id!r}"
        self._queue = WorkDelivery(dispatcher, lambda call: call(), name, kind="member")

    def lost(self, member: Member, held_by: WorkInProgress | None = None) -> None:
        """Queue a call of on_lost.

        With *held_by* it is work there: *member* is not released before it has returned.
        """
        if held_by is None or self._on_lost is None or self._queue is None:
            self._send(self._on_lost, member)
            return
        call = partial(self._on_lost, member)
        self._queue.send_work(call, partial(held_by.begin, member), held_by.end)

    def rejoined(self, member: Member) -> None:
        """Queue a call of on_rejoined."""
        self._send(self._on_rejoined, member)

    def evicted(self, member: Member) -> None:
        """Queue a call of on_evicted."""
        self._send(self._on_evicted, member)

    def close(self) -> None:
        """Start no call after this returns."""
        if self._queue is not None:
            self._queue.close()

    def _send(self, callback: MemberListener | None, member: Member) -> None:
        if callback is not None and self._queue is not None:
            self._queue.send(partial(callback, member))
