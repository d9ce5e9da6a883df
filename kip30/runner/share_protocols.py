"""Interface of a runner to a group that divides work: an object that holds a share of it.

The coordinator is adapted to this in the command line; the runner itself knows no store.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from typing_extensions import TypeVar

from kip30.runner.protocols import UnderLease


class HeldShare(UnderLease, Protocol):
    """The items that one member works on, from the generation that gave them. Thread-safe.

    It stays the same object through later generations that leave it unchanged. Another member can
    get an item of it once it is given up, or once `is_valid` is false.
    """

    @property
    def items(self) -> Sequence[str]:
        """The items: at least one, each of them a line of text that is not empty."""
        ...

    @property
    def generation(self) -> int:
        """The generation that gave exactly these items first."""
        ...

    @property
    def history(self) -> str:
        """The history of the group in which `generation` counts; empty under an older kip30."""
        ...

    @property
    def member(self) -> str:
        """The id of the member."""
        ...

    @property
    def key(self) -> str:
        """The id that the share is kept for: the member's instance id if it has one, else its id.

        It is the same after a restart of a member with an instance id.
        """
        ...

    @property
    def wanted_back(self) -> threading.Event:
        """Set once the group waits for the share, to divide the work again.

        The share is valid until its deadline, which may no longer move.
        """
        ...


class HeldItem(HeldShare, Protocol):
    """One item that one member works on: a share with exactly this item.

    Its `generation` is that of the share with which the member got the item; it stays while other
    items of the member come and go.
    """

    @property
    def guard_text(self) -> str:
        """The part of a guard that names the item: its place in the list, or ``=`` and its name."""
        ...


S = TypeVar("S", bound=HeldShare, default=HeldShare)


class Workshare(Protocol[S]):
    """A member of one group, and its share."""

    def wait(self, timeout: float) -> S | None:
        """Join as a member, again after `leave`, and wait for a share that has items.

        It is called repeatedly, with a short timeout, and returns as soon as there is one.

        Args:
            timeout: How long to wait in this call, in seconds.

        Returns:
            The share, or None if there is none yet; never one that was given up.

        Raises:
            UnavailableError: The store cannot be reached. The runner reports that and retries.
            OutcomeUnknownError: The same.
        """
        ...

    def has_tried(self) -> bool:
        """Return whether an attempt to join has ended, or has lasted for the operation timeout.

        Since the start, or since the last `leave`.
        """
        ...

    def call_on_end(self, notify: Callable[[], None]) -> None:
        """Register *notify*, which is called when a share is wanted back or known to be lost.

        On any thread, and only between `wait`, which returns the share, and the return of
        `give_up`. Register it before the first `wait`.
        """
        ...

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the member while it is open.

        It stays the workshare's own: the runner hands a duplicate to the guard and closes
        nothing. None if a lease ends with its timeout only, or has ended.
        """
        ...

    def give_up(self, share: S) -> None:
        """Let the group give the items of *share* to others: no process works on them any longer.

        Called once for each share that `wait` returned, also for one that is lost. It does not
        wait for the store.
        """
        ...

    def leave(self) -> None:
        """Leave the group, so that others get the items at once. Idempotent.

        Raises:
            UnavailableError, OutcomeUnknownError: The store has not confirmed it; then the items
                are given away when the lease ends.
        """
        ...


class ItemWorkshare(Workshare[HeldItem], Protocol):
    """A member of one group, and its items: `wait` returns one of them, the first in the list.

    An item that `wait` has returned is returned again only after it was given up.
    """

    def ready(self) -> int:
        """Return how many items `wait` would return at this moment, one after the other."""
        ...
