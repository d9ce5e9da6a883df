"""Blocking queries: one for each observation, or one that many share.

Consul answers one as soon as something has changed since the index that it is sent. Each runs on a
thread and over a connection of its own. Observations that share a query are read one after the
other, and one that fails keeps no other from being read.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import Watch
from kip30.driver.records import Kind, Snapshot
from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30_backends.consul import transactions
from kip30_backends.consul.client.exchange import OK_OR_ABSENT, Ask, Exchange, understood
from kip30_backends.consul.client.http import Answer, Wire
from kip30_backends.consul.client.library import Agent, Endpoints
from kip30_backends.consul.errors import HUNG_UP, Failure, TroubleError, is_lost
from kip30_backends.consul.order import Course, Mark
from kip30_backends.consul.request import Calls
from kip30_backends.consul.snapshots import Content, Place, States
from kip30_backends.consul.transactions import at_key, check_whole, index_of, listed

Hear = Callable[[Answer], None]

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_JITTER = 1 / 16
"""How much longer than asked for a server may wait with its answer."""
_INTERRUPTED = Failure(HUNG_UP, "interrupted")


class Backoff(NamedTuple):
    """How many seconds a server is to wait for a change, and how many more its answer may take."""

    wait: float
    answer: float

    @property
    def connect(self) -> float:
        """How long connecting may take, which nothing can interrupt."""
        return self.answer / 2

    @property
    def all(self) -> float:
        """How long a blocking query may take."""
        return self.wait * (1 + _JITTER) + self.answer


class Ear:
    """One connection to the server in use. For one thread; the others may only interrupt it.

    An interruption lasts until a question has failed, of which the thread that asks learns.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        """Connect when something is asked."""
        self._endpoints = endpoints
        self._lock = threading.RLock()
        self._agent = endpoints.current
        self._wire: Wire | None = None
        self._interrupted = False

    def ask(self, target: str, backoff: Backoff) -> Answer:
        """Return what the server answers.

        Raises:
            TroubleError: Nothing of use, as long as there was *backoff*, or this was interrupted
                since a question failed last.
        """
        agent = self._endpoints.current
        try:
            answer = self._asked(agent, target, backoff)
        except TroubleError as error:
            self.let_go()
            if is_lost(error.failure) and not self._interrupted:
                self._endpoints.leave(agent)
            self._interrupted = False
            raise
        if not self._wire or not self._wire.reusable:
            self.let_go()
        return answer

    def move(self) -> None:
        """End what is asked of another server than the one in use."""
        with self._lock:
            if self._agent is not self._endpoints.current:
                self.interrupt()

    def interrupt(self) -> None:
        """End what is asked now, or else next."""
        with self._lock:
            self._interrupted = True
            if self._wire is not None:
                self._wire.hang_up()

    def let_go(self) -> None:
        """Give the connection up, on the thread that asks."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            self._agent.http.connections.drop(wire)

    def _asked(self, agent: Agent, target: str, backoff: Backoff) -> Answer:
        now = time.monotonic()
        wire = self._connected(agent, now + backoff.connect)
        answer = agent.http.listen(wire, target, now + backoff.all)
        if answer.status not in OK_OR_ABSENT:
            said = answer.body.decode("utf-8", "backslashreplace")
            raise TroubleError(Failure(answer.status, said))
        return answer

    def _connected(self, agent: Agent, until: float) -> Wire:
        self._check(agent)
        wire = self._wire
        if wire is None or agent is not self._agent or not wire.is_idle():
            self.let_go()
            wire = agent.http.connections.dial(until)
            with self._lock:
                self._agent, self._wire = agent, wire
            # Nothing could be hung up before, and it may have been another server's turn since.
            self._check(agent)
        return wire

    def _check(self, agent: Agent) -> None:
        if self._interrupted or agent is not self._endpoints.current:
            raise TroubleError(_INTERRUPTED)


class BlockingQuery:
    """Notifies of a place now, after every change, and from time to time.

    So a change that was missed is not missed for long.
    """

    def __init__(self, ear: Ear, url: str, backoff: Backoff, hearer: Callable[[], Hear]) -> None:
        """Ask for *url*; before each question, have *hearer* say who is to hear the answer.

        Who does may raise one of kip30's errors; then it is asked again.
        """
        self._ear = ear
        self._url = url
        self._backoff = backoff
        self._hearer = hearer
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kip30-consul-watch", daemon=True)

    def again(self) -> None:
        """Notify once more, whether anything has changed or not."""
        self._ear.interrupt()

    def move(self) -> None:
        """Ask the server that is used now."""
        self._ear.move()

    def close(self) -> None:
        """End, soon; `thread` tells when."""
        self._closing.set()
        self._ear.interrupt()

    def _run(self) -> None:
        known, pause = 0, _FIRST_PAUSE
        while not self._closing.is_set():
            try:
                known, behind = self._follow(known), known
                pause = _FIRST_PAUSE
                # A store that counts anew, or forgot its dead: begin anew, but in no hurry.
                if known < behind:
                    known = 0
                    self._closing.wait(pause)
            except Exception as error:  # noqa: BLE001  nobody would listen any more
                self._note(error)
                known = 0
                self._closing.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
        self._ear.let_go()

    def _note(self, error: Exception) -> None:
        if isinstance(error, Kip30Error | TroubleError):
            _log.info("retrying watch of %s after: %s", self._url, error)
        else:
            _log.error("the watch of %s goes on", self._url, exc_info=error)

    def _follow(self, known: int) -> int:
        """Ask for what is newer than *known*, and return what is known by then."""
        wait = f"&index={known}&wait={round(self._backoff.wait * 1000)}ms" if known else ""
        hear = self._hearer()
        answer = self._ear.ask(self._url + wait, self._backoff)
        if not self._closing.is_set():
            hear(answer)
        return understood(answer, index_of)


Sink = Callable[[Snapshot], None]

_UNTOLD = -1


class ConsulWatch(Watch):
    """One observation, and what it delivered last."""

    def __init__(
        self, place: Place, course: Course, sink: Sink, forget: Callable[["ConsulWatch"], None]
    ) -> None:
        """Tell *sink* of *place*, whose *course* this holds; call *forget* in the end."""
        self.place = place
        self.content = Content({}, {})
        # The last answer about a set of keys, as it came and as it was understood.
        self._names: tuple[bytes, Content] | None = None
        self._course = course
        self._order = _UNTOLD
        self._sink = sink
        self._forget = forget
        self._closed = False
        self._lock = threading.RLock()

    @property
    def is_there(self) -> bool:
        """Say whether the last answer showed anything at the place."""
        return any(self.content)

    @property
    def is_absent(self) -> bool:
        """Say whether the last state it received shows nothing at the place."""
        return self._order != _UNTOLD and not self.is_there

    def understand(self, answer: Answer) -> tuple[int, Content]:
        """Return up to which write an answer speaks, and what it says is at the place.

        Consul answers the same set of keys after each update of a value: that is not read again.

        Raises:
            TroubleError: As for `kip30_backends.consul.transactions.found`.
        """
        check_whole(answer)
        with self._lock:
            if self._names is None or answer.body != self._names[0]:
                content = self.place.content(listed(answer))
                if self.place.target.kind is not Kind.NAMESPACE:
                    return index_of(answer), content
                self._names = answer.body, content
            return index_of(answer), self._names[1]

    def tell(self, order: int, content: Content) -> None:
        """Tell what was found, unless that is no news."""
        with self._lock:
            if order > self._order and not self._closed:
                self._sink(Snapshot(order, *content))
                self._order, self.content = order, content

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)


_NEVER_THERE = "/="
"""What no key of kip30 ends with: one name is no parent of another."""
_SINGLE = frozenset({Kind.VALUE, Kind.MEMBER, Kind.SERVICE})


def look(watch: ConsulWatch, states: States, exchange: Exchange) -> None:
    """Read what *watch* observes, and tell it."""
    sent = states.mark(watch.place)
    asked = Ask("GET", watch.place.url, watch.understand, answers=OK_OR_ABSENT)
    index, content = exchange.ask(asked)
    watch.tell(states.order(index, sent), content)


class SharedPoll:
    """One reading of many watches; each request may take as long as any call."""

    def __init__(self, states: States, calls: Calls) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        self._trouble: Kip30Error | None = None
        self._alone: list[ConsulWatch] = []

    def read(self, watches: Sequence[ConsulWatch]) -> None:
        """Read all *watches*: single keys together, everything else by itself.

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
                index = self._exchange().ask(at_key(f"{watches[0].place.key}{_NEVER_THERE}")).at
            except AuthenticationError:
                self._alone += watches
            except Kip30Error as error:
                self._note(error)
            else:
                for watch in self._read_together(watches):
                    watch.tell(self._states.order(index, marks[watch]), Content({}, {}))

    def _read_together(self, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        """Read keys in few transactions; return those that are absent.

        Nor does Consul say which keys may be read: if any may not, each is read alone.
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
        records = self._exchange().ask(transactions.read([watch.place.key for watch in watches]))
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
            look(watch, self._states, self._exchange())
        except AuthenticationError as error:
            _log.info("%s is not observed for now: %s", watch.place.target, error)
        except Kip30Error as error:
            self._note(error)

    def _exchange(self) -> Exchange:
        return self._calls.exchange(self._calls.seconds)

    def _note(self, error: Kip30Error) -> None:
        if isinstance(error, ClosedError):
            raise error
        self._trouble = error
