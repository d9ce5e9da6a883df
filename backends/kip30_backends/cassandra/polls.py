"""Looking at partitions again and again, since Cassandra tells nobody of a change."""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

from typing_extensions import override

from kip30.driver.kit.futures import mapped
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Snapshot, Target
from kip30.errors import AuthenticationError, StoreError
from kip30_backends.cassandra.departed import Departed
from kip30_backends.cassandra.few import Few
from kip30_backends.cassandra.states import States

_log = logging.getLogger(__name__)

_HURRY = 8
"""How much sooner the next look is after news, since more is likely to come."""


class Watcher(Protocol):
    """Who wants to know of a target."""

    target: Target

    def take(self, snapshot: Snapshot) -> bool:
        """Hear of a state; say whether it is news."""
        ...

    def knows(self) -> Snapshot | None:
        """Return the state that was told last, if any."""
        ...


class Rhythm(NamedTuple):
    """When to look: so many *seconds* after each look, if *few* others do at that moment."""

    pulse: Timer
    few: Few
    seconds: float


class Poll:
    """Looks at one place for as long as anybody watches. Thread-safe."""

    def __init__(self, rhythm: Rhythm) -> None:
        """Look in that *rhythm*, and sooner after news or when somebody comes."""
        self._rhythm = rhythm
        self._watchers: set[Watcher] = set()
        self._looking = False
        self._at_once = False
        self._warned = False
        self._turn = 0
        self._pause = rhythm.seconds
        self._lock = threading.Lock()

    def add(self, watcher: Watcher) -> None:
        """Tell *watcher* from now on."""
        with self._lock:
            self._watchers.add(watcher)
        self._begin()

    def remove(self, watcher: Watcher) -> None:
        """Undo `add`."""
        with self._lock:
            self._watchers.discard(watcher)

    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        """Look once, and tell *watchers*; say whether there was news."""
        raise NotImplementedError

    def _begin(self, turn: int | None = None) -> None:
        """Look, unless somebody does just now, or *turn* is not the next one any more."""
        with self._lock:
            if turn not in {None, self._turn}:
                return
            if self._looking:
                self._at_once = True
                return
            watchers = list(self._watchers)
            self._looking = bool(watchers)
        if watchers:
            self._rhythm.few.do(partial(self.look, watchers)).add_done_callback(self._looked)

    def _looked(self, done: Future[bool]) -> None:
        error = done.exception()
        self._report(error)
        news = error is None and done.result()
        with self._lock:
            self._looking = False
            at_once, self._at_once = self._at_once, False
            self._turn += 1
            turn = self._turn
            seconds = self._rhythm.seconds
            self._pause = seconds / _HURRY if news else min(2 * self._pause, seconds)
            pause = 0.0 if at_once else self._pause
        self._rhythm.pulse.after(pause, partial(self._begin, turn))

    def _report(self, error: BaseException | None) -> None:
        """Log *error*; the first one that will not pass by itself as a warning."""
        if isinstance(error, StoreError | AuthenticationError) and not self._warned:
            self._warned = True
            _log.warning("listeners hear of no changes until this is mended: %s", error)
        elif error is not None:
            _log.info("a watch goes on after: %s", error)
        elif self._warned:
            self._warned = False
            _log.warning("listeners hear of changes again")


class WholePoll(Poll):
    """Reads a group or a service, whose records may expire without a trace."""

    def __init__(self, target: Target, states: States, rhythm: Rhythm, departed: Departed) -> None:
        """Read *target* from *states*, without those who are back from *departed*."""
        super().__init__(rhythm)
        self._target = target
        self._states = states
        self._departed = departed

    @override
    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        def tell(read: Snapshot) -> bool:
            snapshot = read._replace(entries=self._departed.left_out(read.entries))
            return bool([one for one in watchers if one.take(snapshot)])

        return mapped(self._states.poll(self._target), tell)
