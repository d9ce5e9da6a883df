"""Blocking queries: each on a thread and over a connection of its own, again and again.

Consul answers one as soon as something has changed since the index that it is sent.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from kip30.errors import Kip30Error
from kip30_backends.consul.endpoints import Endpoints
from kip30_backends.consul.errors import HUNG_UP, Failure, TroubleError, is_lost
from kip30_backends.consul.library import Agent
from kip30_backends.consul.records import index_of
from kip30_backends.consul.talk import OK_OR_ABSENT, understood
from kip30_backends.consul.wire import Answer, Wire

Hear = Callable[[Answer], None]

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_JITTER = 1 / 16
"""How much longer than asked for a server may wait with its answer."""
_INTERRUPTED = Failure(HUNG_UP, "interrupted")


class Patience(NamedTuple):
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

    def ask(self, target: str, patience: Patience) -> Answer:
        """Return what the server answers.

        Raises:
            TroubleError: Nothing of use, as long as there was *patience*, or this was interrupted
                since a question failed last.
        """
        agent = self._endpoints.current
        try:
            answer = self._asked(agent, target, patience)
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

    def _asked(self, agent: Agent, target: str, patience: Patience) -> Answer:
        now = time.monotonic()
        wire = self._connected(agent, now + patience.connect)
        answer = agent.http.listen(wire, target, now + patience.all)
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


class Follower:
    """Has somebody told of a place now, after every change, and from time to time.

    So whatever may have been missed, it is not missed for long.
    """

    def __init__(self, ear: Ear, url: str, patience: Patience, hearer: Callable[[], Hear]) -> None:
        """Ask for *url*; before each question, have *hearer* say who is to hear the answer.

        Who does may raise one of kip30's errors; then it is asked again.
        """
        self._ear = ear
        self._url = url
        self._patience = patience
        self._hearer = hearer
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kip30-consul-watch", daemon=True)

    def again(self) -> None:
        """Have it told once more, whether anything has changed or not."""
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
            _log.info("the watch of %s goes on after: %s", self._url, error)
        else:
            _log.error("the watch of %s goes on", self._url, exc_info=error)

    def _follow(self, known: int) -> int:
        """Ask for what is newer than *known*, and return what is known by then."""
        wait = f"&index={known}&wait={round(self._patience.wait * 1000)}ms" if known else ""
        hear = self._hearer()
        answer = self._ear.ask(self._url + wait, self._patience)
        if not self._closing.is_set():
            hear(answer)
        return understood(answer, index_of)
