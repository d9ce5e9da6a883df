"""What a fork must not do to an open backend: end what the parent has, or wait for its threads."""

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something open that a forked child inherits and must leave alone."""

    def abandon(self) -> None:
        """In the child: give up what is inherited without an effect on the parent."""
        ...


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_kept: list[Forkable] = []


def register(thing: Forkable) -> None:
    """Have *thing* told of forks for as long as it exists."""
    _open.add(thing)


def _in_child() -> None:
    # A vendor's client ends connections or waits for threads when it is collected as garbage, and
    # those are the parent's.
    for thing in list(_open):
        _kept.append(thing)
        thing.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
