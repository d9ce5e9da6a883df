"""A stand-in of `concurrent.futures.wait`, which locks its futures in the order of their addresses.

Addresses differ from process to process, and after other runs in the same one. So a thread would be
interrupted at another lock, and the same seed would give another run.

It uses attributes of futures that are private to the module whose function it replaces.
"""

# ruff: noqa: SLF001  see above

from collections.abc import Iterable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future
from contextlib import ExitStack
from typing import Any, NamedTuple

from kip30_conformance.simulation.locks import SimulatedEvent

_OVER = {"FINISHED", "CANCELLED_AND_NOTIFIED"}


class DoneAndNotDone(NamedTuple):
    """The result of `concurrent.futures.wait`."""

    done: set[Future[Any]]
    not_done: set[Future[Any]]


class _Waiter:
    """Is notified by futures that it waits for, and wakes its thread once enough of them are done.

    The names of its methods are those that `concurrent.futures.Future` calls.
    """

    def __init__(self, needed: int) -> None:
        self.has_enough = SimulatedEvent()
        self._needed = needed

    def add_result(self, _future: Future[Any]) -> None:
        self._needed -= 1
        if not self._needed:
            self.has_enough.set()

    add_exception = add_cancelled = add_result


def wait(
    fs: Iterable[Future[Any]], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone:
    """Wait until one of *fs*, or all, are done; see `concurrent.futures.wait`.

    Raises:
        ValueError: *return_when* is neither of `FIRST_COMPLETED` and `ALL_COMPLETED`.
    """
    if return_when not in {FIRST_COMPLETED, ALL_COMPLETED}:
        raise ValueError(f"a simulation does not wait for {return_when!r}")
    futures: list[Any] = sorted(dict.fromkeys(fs), key=_number)
    with ExitStack() as locked:
        for one in futures:
            locked.enter_context(one._condition)
        done = sum(map(_is_done, futures))
        needed = len(futures) if return_when == ALL_COMPLETED else min(1, len(futures))
        if done >= needed:
            return _sorted(futures)
        waiter: Any = _Waiter(needed - done)
        for one in futures:
            one._waiters.append(waiter)
    waiter.has_enough.wait(timeout)
    for one in futures:
        with one._condition:
            one._waiters.remove(waiter)
    return _sorted(futures)


def _sorted(futures: Sequence[Future[Any]]) -> DoneAndNotDone:
    done = set(filter(_is_done, futures))
    return DoneAndNotDone(done, set(futures) - done)


def _is_done(future: Any) -> bool:
    return future._state in _OVER


def _number(future: Future[Any]) -> int:
    """Return a number that is greater for later futures; 0 for those from outside a simulation."""
    number: int = getattr(future._condition, "number", 0)
    return number
