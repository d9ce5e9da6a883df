"""Delivers events to a callback that may be work until it has returned.

The work is under a term or, if an operator has banned a member, under its membership.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from typing_extensions import override

from kip30.runtime.dispatcher import Delivery, Dispatcher, Suspended
from kip30.runtime.term_work import TermWork, running

E = TypeVar("E")


class BeginWork(Protocol):
    """Begins work under the term of one event; see `kip30.runtime.term_work.TermWork`."""

    def __call__(
        self, *, outlives_runner: bool, runs_first: Callable[[], TermWork | None]
    ) -> TermWork:
        """Note the work, and return it."""
        ...


class _QueuedWork(NamedTuple):
    work: TermWork
    end: Callable[[TermWork], object]


class WorkDelivery(Delivery[E]):
    """Delivers events of which each may be work from its sending on."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        callback: Callable[[E], object] | None,
        name: str,
        *,
        kind: str,
    ) -> None:
        """See `Delivery`."""
        super().__init__(dispatcher, callback, name, kind=kind)
        self._queued: dict[E, _QueuedWork] = {}
        self._current: TermWork | None = None

    def send_work(self, event: E, begin: BeginWork, end: Callable[[TermWork], object]) -> None:
        """Queue *event* as `send` does, as work that *begin* begins now.

        *end* notes its end: the callback has returned, or will not be called.
        """
        if self._callback is None:
            return
        work = begin(outlives_runner=True, runs_first=lambda: self._current)
        self._queued[event] = _QueuedWork(work, end)
        super().send(event)
        if self._task.closed:
            self._end_queued()

    @override
    def close(self) -> None:
        super().close()
        self._end_queued()

    def _end_queued(self) -> None:
        for event in list(self._queued):
            queued = self._queued.pop(event, None)
            if queued is not None:  # it has not started meanwhile
                queued.end(queued.work)

    @override
    def _call(self, event: E) -> Suspended | None:
        queued = self._queued.pop(event, None)
        if queued is None:  # no work, or it was ended by a close
            return None if self._task.closed else super()._call(event)
        self._current = queued.work
        queued.work.start()
        with running(queued.work):
            rest = super()._call(event)
        if rest is None:
            self._returned(queued)
        else:
            rest.add_done_callback(lambda _: self._returned(queued))
        return rest

    def _returned(self, queued: _QueuedWork) -> None:
        self._current = None
        queued.end(queued.work)
