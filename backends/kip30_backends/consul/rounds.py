"""Reading one after the other what shares a query: what fails keeps nobody else from it."""

import logging
from collections.abc import Sequence

from kip30.driver.records import Kind
from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.observation import ConsulWatch
from kip30_backends.consul.orders import Mark
from kip30_backends.consul.records import at_key
from kip30_backends.consul.states import Content, States
from kip30_backends.consul.talk import OK_OR_ABSENT, Ask, Talk

_log = logging.getLogger(__name__)

_NEVER_THERE = "/="
"""What no key of kip30 ends with: one name is no parent of another."""
_SINGLE = frozenset({Kind.VALUE, Kind.MEMBER, Kind.SERVICE})


def look(watch: ConsulWatch, states: States, talk: Talk) -> None:
    """Read what *watch* observes, and tell it."""
    sent = states.mark(watch.place)
    asked = Ask("GET", watch.place.url, watch.understand, answers=OK_OR_ABSENT)
    index, content = talk.ask(asked)
    watch.tell(states.order(index, sent), content)


class Round:
    """One reading of many watches; each request may take as long as any call."""

    def __init__(self, states: States, calls: Calls) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        self._trouble: Kip30Error | None = None
        self._alone: list[ConsulWatch] = []

    def read(self, watches: Sequence[ConsulWatch]) -> None:
        """Read all *watches*: single keys together, and whatever else by itself.

        Raises:
            Kip30Error: Something was not to be had just now. What the token may not read is no
                reason to hurry: it is tried in the next round.
        """
        single = [watch for watch in watches if watch.place.target.kind in _SINGLE]
        self._alone += [watch for watch in watches if watch.place.target.kind not in _SINGLE]
        gone = self._read_together([watch for watch in single if watch.is_there])
        self._read_absent([*gone, *(watch for watch in single if not watch.is_there)])
        for watch in self._alone:
            self._read_alone(watch)
        if self._trouble is not None:
            raise self._trouble

    def _read_absent(self, watches: Sequence[ConsulWatch]) -> None:
        """Read keys that are most likely not there.

        A transaction does not tell as of when a key is not there. So it is asked first how far the
        store is: what a transaction does not find after that is not there as of then.
        """
        if len(watches) == 1:
            self._alone += watches
        elif watches:
            marks = self._marks(watches)
            try:
                index = self._talk().ask(at_key(f"{watches[0].place.key}{_NEVER_THERE}")).at
            except AuthenticationError:
                self._alone += watches
            except Kip30Error as error:
                self._note(error)
            else:
                for watch in self._read_together(watches):
                    watch.tell(self._states.order(index, marks[watch]), Content({}, {}))

    def _read_together(self, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        """Read keys in few transactions; return those that are absent.

        Which keys may be read is not told either: if any may not, each is read alone.
        """
        absent: list[ConsulWatch] = []
        for at in range(0, len(watches), transactions.MAX_OPS):
            part = watches[at : at + transactions.MAX_OPS]
            try:
                absent += self._read_part(part)
            except AuthenticationError:
                self._alone += part
            except Kip30Error as error:
                self._note(error)
        return absent

    def _read_part(self, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        marks = self._marks(watches)
        records = self._talk().ask(transactions.read([watch.place.key for watch in watches]))
        absent: list[ConsulWatch] = []
        for watch, record in zip(watches, records, strict=True):
            if record is None:
                absent.append(watch)
            else:
                order = self._states.order(record.modified, marks[watch])
                watch.tell(order, watch.place.content_of(record))
        return absent

    def _marks(self, watches: Sequence[ConsulWatch]) -> dict[ConsulWatch, Mark]:
        return {watch: self._states.mark(watch.place) for watch in watches}

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
