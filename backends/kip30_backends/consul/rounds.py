"""Reading one after the other what shares a query: what fails keeps nobody else from it."""

import logging
from collections.abc import Sequence

from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30.records import Kind
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.observation import ConsulWatch
from kip30_backends.consul.states import States
from kip30_backends.consul.talk import Talk

_log = logging.getLogger(__name__)

_SINGLE = frozenset({Kind.VALUE, Kind.SERVICE})


def look(watch: ConsulWatch, states: States, talk: Talk) -> None:
    """Read what *watch* observes, and tell it."""
    order, there = states.look(watch.place, talk)
    watch.tell(order, there.records)


class Round:
    """One reading of many watches; each request may take as long as any call."""

    def __init__(self, states: States, calls: Calls) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        self._trouble: Kip30Error | None = None

    def read(self, watches: Sequence[ConsulWatch]) -> None:
        """Read all *watches*: single keys together, and whatever else by itself.

        Raises:
            Kip30Error: Something was not to be had just now. What the token may not read is no
                reason to hurry: it is tried in the next round.
        """
        single = [watch for watch in watches if watch.place.target.kind in _SINGLE]
        left = [watch for watch in watches if watch.place.target.kind not in _SINGLE]
        for at in range(0, len(single), transactions.MAX_OPS):
            left += self._read_together(single[at : at + transactions.MAX_OPS])
        for watch in left:
            self._read_alone(watch)
        if self._trouble is not None:
            raise self._trouble

    def _read_together(self, watches: Sequence[ConsulWatch]) -> Sequence[ConsulWatch]:
        """Read the keys of *watches*; return those that are to be read alone.

        A transaction does not tell as of when a key is not there, nor which keys may be read.
        """
        marks = [self._states.mark(watch.place) for watch in watches]
        try:
            records = self._talk().ask(transactions.read([watch.place.key for watch in watches]))
        except AuthenticationError:
            return watches
        except Kip30Error as error:
            self._note(error)
            return ()
        for watch, sent, record in zip(watches, marks, records, strict=True):
            if record is not None:
                watch.tell(self._states.order(record.modified, sent), [record])
        return [watch for watch, record in zip(watches, records, strict=True) if record is None]

    def _read_alone(self, watch: ConsulWatch) -> None:
        try:
            look(watch, self._states, self._talk())
        except AuthenticationError as error:
            _log.info("%s is not observed for now: %s", watch.place.target, error)
        except Kip30Error as error:
            self._note(error)

    def _talk(self) -> Talk:
        return self._calls.talk(self._calls.seconds)

    def _note(self, error: Kip30Error) -> None:
        if isinstance(error, ClosedError):
            raise error
        self._trouble = error
