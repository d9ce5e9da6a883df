"""The running observations of one backend: a blocking query each, or one for many.

A server takes so many connections of one machine and no more. So only the first few observations
have one each; the others share one that tells whether anything has changed at all.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30.records import Target
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.followers import Ear, Follower, Hear, Patience
from kip30_backends.consul.observation import ConsulWatch, Sink
from kip30_backends.consul.orders import Mark
from kip30_backends.consul.records import found
from kip30_backends.consul.rounds import Round, look
from kip30_backends.consul.states import States
from kip30_backends.consul.talk import Talk, understood
from kip30_backends.consul.wire import Answer

_log = logging.getLogger(__name__)

_MOST_ALONE = 4


class Watches:
    """All watches of one backend. Thread-safe."""

    def __init__(self, states: States, calls: Calls, patience: Patience) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        self._patience = patience
        self._alone: dict[ConsulWatch, Follower] = {}
        self._shared: set[ConsulWatch] = set()
        self._bell: Follower | None = None
        self._threads: set[threading.Thread] = set()
        self._stopped = False
        self._lock = threading.Lock()
        calls.endpoints.on_move = self._move

    def add(self, target: Target, sink: Sink) -> ConsulWatch:
        """Tell *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
            UnavailableError: There is no thread to be had.
        """
        self._calls.check()
        place = self._states.place(target)
        watch = ConsulWatch(place, self._states.mark(place).course, sink, self._forget)
        with self._lock:
            if self._stopped:
                raise ClosedError("the backend is closed")
            if len(self._alone) < _MOST_ALONE:
                self._alone[watch] = self._follow_alone(watch)
                return watch
            bell = self._bell = self._bell or self._follow_all()
            self._shared.add(watch)
        talk = self._calls.talk(self._calls.seconds)
        try:
            self._calls.crew.do(partial(self._read_first, watch, bell, talk))
        except Kip30Error:
            bell.again()
        return watch

    def stop(self) -> None:
        """Close all watches, and take no more."""
        with self._lock:
            self._stopped = True
            watches = [*self._alone, *self._shared]
        for watch in watches:
            watch.close()

    def join(self) -> None:
        """Wait until all threads have ended, unless this is called on one of them."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def _follow_alone(self, watch: ConsulWatch) -> Follower:
        return self._follow(watch.place.url, partial(self._hearer, watch))

    def _follow_all(self) -> Follower:
        return self._follow(self._states.root, lambda: self._read_shared)

    def _follow(self, url: str, hearer: Callable[[], Hear]) -> Follower:
        follower = Follower(Ear(self._calls.endpoints), url, self._patience, hearer)
        try:
            follower.thread.start()
        except RuntimeError as error:
            raise UnavailableError(f"nobody would listen: {error}") from error
        self._threads = {follower.thread, *filter(threading.Thread.is_alive, self._threads)}
        return follower

    def _hearer(self, watch: ConsulWatch) -> Hear:
        return partial(self._tell, watch, self._states.mark(watch.place))

    def _tell(self, watch: ConsulWatch, sent: Mark, answer: Answer) -> None:
        there = understood(answer, found)
        watch.tell(self._states.order(there.at, sent), there.records)

    def _read_first(self, watch: ConsulWatch, bell: Follower, talk: Talk) -> None:
        try:
            look(watch, self._states, talk)
        except Kip30Error as error:
            _log.info("the watch of %s goes on after: %s", watch.place.target, error)
            bell.again()

    def _read_shared(self, _answer: Answer) -> None:
        with self._lock:
            watches = list(self._shared)
        Round(self._states, self._calls).read(watches)

    def _forget(self, watch: ConsulWatch) -> None:
        with self._lock:
            follower = self._alone.pop(watch, None)
            self._shared.discard(watch)
            if follower is None and not self._shared:
                follower, self._bell = self._bell, None
        if follower is not None:
            follower.close()

    def _move(self) -> None:
        """Listen to the server that is used now."""
        with self._lock:
            followers = [*self._alone.values(), *([self._bell] if self._bell else [])]
        for follower in followers:
            follower.move()
