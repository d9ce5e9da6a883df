"""The requests of a modelled store's client, their timeouts, and the reader of the answers.

A thread of the client's process handles everything that arrives: a paused process reads late.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from copy import copy
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kip30.driver.kit.futures import fail, failed, succeed
from kip30.driver.kit.gate import CLOSED, Gate
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Kind, Target
from kip30.errors import ClosedError, Kip30Error, OutcomeUnknownError, UnavailableError
from kip30_conformance.simulation.network import StoreLink
from kip30_conformance.simulation.present import running_thread, simulation
from kip30_conformance.simulation.processes import SimulatedThread
from kip30_conformance.simulation.threads import Thread

T = TypeVar("T")

_LATE = "no answer in time"
_KINDS_OF_VALUES = frozenset({Kind.VALUE, Kind.NAMESPACE})


class AnswerReader:
    """The thread that handles all arrivals."""

    def __init__(self) -> None:
        """Start it, in the process of the running thread."""
        self._arrived: deque[Callable[[], object]] = deque()
        self._is_closed = False
        self._waiting: SimulatedThread | None = None
        self._thread = Thread(target=self._run, name="kip30-model-reader", daemon=True)
        self._thread.start()

    def arrive(self, action: Callable[[], object]) -> None:
        """Let the thread call *action*; for events."""
        self._arrived.append(action)
        self._wake()

    def close(self) -> None:
        """End the thread, and wait for that unless this is called on it."""
        self._is_closed = True
        self._wake()
        if self._thread.ident != running_thread().ident:
            self._thread.join()

    def _wake(self) -> None:
        if self._waiting is not None:
            simulation().unpark(self._waiting)

    def _run(self) -> None:
        while not self._is_closed:
            if self._arrived:
                self._arrived.popleft()()
                continue
            self._waiting = running_thread()
            simulation().park()
            self._waiting = None


class _Outcome(NamedTuple):
    """Outcome of a request: its result, or an error."""

    result: Any
    error: Exception | None


_Reply = Callable[[_Outcome], object]
"""Takes the outcome of a request where that was served."""


def _outcome(serve: Callable[[], object], errors: type[Exception] = Kip30Error) -> _Outcome:
    try:
        return _Outcome(serve(), None)
    except errors as error:
        return _Outcome(None, error)


def _served_by(call: Callable[[], Future[Any]], reply: _Reply) -> None:
    """Call *call*, and pass the outcome of its future to *reply*."""
    try:
        future = call()
    except Exception as error:  # noqa: BLE001  any error of a driver is an answer
        reply(_Outcome(None, error))
    else:
        future.add_done_callback(lambda done: reply(_outcome(done.result, Exception)))


def _in_words(outcome: _Outcome) -> str:
    return "done" if outcome.error is None else repr(outcome.error)


class Requests:
    """Requests to the server, each answered once or given up in time. Thread-safe.

    Attributes:
        link: The way that they take.
        gate: Refuses requests once the client is closed.
        timer: Gives them up.
        reader: Handles their answers.
    """

    def __init__(self, link: StoreLink, seconds: float) -> None:
        """Send requests over *link*, and give each up after *seconds* unless it says otherwise."""
        self.gate: Gate = Gate()
        self.timer: Timer = Timer("kip30-model-timer")
        self.reader: AnswerReader = AnswerReader()
        self.link: StoreLink = link
        self._seconds = seconds
        # Of each request without an answer, the error that it ends with if none comes.
        self._pending: dict[Future[Any], type[Kip30Error]] = {}

    def for_values(self) -> "Requests":
        """Return the same requests, on the way for those about values."""
        return self._over(self.link.for_values())

    def for_claims(self) -> "Requests":
        """Return the same requests, on the way for those that claim, replace and release."""
        return self._over(self.link.for_claims())

    def _over(self, link: StoreLink) -> "Requests":
        requests = copy(self)
        requests.link = link
        return requests

    def for_target(self, target: Target) -> "Requests":
        """Return the same requests, on the way for those about *target*."""
        return self.for_values() if target.kind in _KINDS_OF_VALUES else self

    def read(self, serve: Callable[[], T]) -> Future[T]:
        """Return the answer to a request that changes nothing."""
        return self._checked(serve, UnavailableError)

    def write(self, serve: Callable[[], T]) -> Future[T]:
        """Return the answer to a request that may change something."""
        return self._checked(serve, OutcomeUnknownError)

    def repeatable(self, serve: Callable[[], T], seconds: float | None = None) -> Future[T]:
        """Return the answer to a request that may be sent again, also while the client closes."""
        return self._send(serve, UnavailableError, self._seconds if seconds is None else seconds)

    def call(
        self, call: Callable[[], Future[T]], late: type[Kip30Error], name: str = ""
    ) -> Future[T]:
        """Return the answer to a request that *call* serves, on a thread of the same process.

        Args:
            call: Any error of it is an answer, also one that is not of kip30.
            late: The error of the future if no answer comes in time.
            name: The request in words, for the timeline; without it the timeline leaves it out.
        """

        def serve(reply: _Reply) -> None:
            def noted(outcome: _Outcome) -> None:
                self._note(name, "at the driver", outcome)
                reply(outcome)

            thread = partial(_served_by, call, noted)
            simulation().spawn(self.link.process, "kip30-model-call", thread)

        refusal = self.gate.refusal()
        if refusal is not None:
            return failed(refusal)
        answer = self._ask(serve, late, self._seconds)
        answer.add_done_callback(
            lambda done: self._note(name, "at the core", _outcome(done.result, Exception))
        )
        return answer

    def _note(self, name: str, where: str, outcome: _Outcome) -> None:
        if name:
            self.link.note(f"{name} {where}: {_in_words(outcome)}")

    def close(self) -> None:
        """End all requests, and the threads."""
        self.gate.close()
        for future in list(self._pending):
            late = self._pending.pop(future, None)
            fail(
                future,
                ClosedError(CLOSED) if late is UnavailableError else OutcomeUnknownError(CLOSED),
            )
        self.timer.stop()
        self.reader.close()

    def _checked(self, serve: Callable[[], T], late: type[Kip30Error]) -> Future[T]:
        refusal = self.gate.refusal()
        return failed(refusal) if refusal else self._send(serve, late, self._seconds)

    def _send(self, serve: Callable[[], T], late: type[Kip30Error], seconds: float) -> Future[T]:
        return self._ask(lambda reply: reply(_outcome(serve)), late, seconds)

    def _ask(
        self, serve: Callable[[_Reply], object], late: type[Kip30Error], seconds: float
    ) -> Future[Any]:
        future: Future[Any] = Future()
        self._pending[future] = late
        self.timer.after(seconds, partial(self._give_up, future))
        self.link.ask(
            serve,
            lambda outcome: self.reader.arrive(partial(self._answered, future, outcome)),
        )
        return future

    def _answered(self, future: Future[Any], outcome: _Outcome) -> None:
        if self._pending.pop(future, None) is None:
            return
        if outcome.error is not None:
            fail(future, outcome.error)
        else:
            succeed(future, outcome.result)

    def _give_up(self, future: Future[Any]) -> None:
        late = self._pending.pop(future, None)
        if late is not None:
            fail(future, late(_LATE))
