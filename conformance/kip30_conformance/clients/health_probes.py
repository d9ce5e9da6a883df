"""Probes of the health endpoints of runners, and the answers that they get."""

import http.client
import json
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30_conformance.clients.run_processes import Arena, Runner
from kip30_conformance.polling import eventually

_LISTEN = ("--listen", "127.0.0.1:0")
_PATIENCE_SECONDS = 60.0
"""For the answer of a runner that is stopped meanwhile."""
_PAUSE_SECONDS = 0.01
_REQUESTS = 8
_SAID = re.compile(r"health at http://127\.0\.0\.1:(\d+)/")


class Led(NamedTuple):
    """An answer that a runner leads, given at some moment between *sent_at* and *received_at*."""

    candidate: str
    epoch: int
    sent_at: float
    received_at: float


class Answered(NamedTuple):
    """An answer: its status, and the object that it has."""

    status: int
    record: dict[str, Any]


def start_listening(arena: Arena) -> Runner:
    """Start a runner that can be probed, of a command that does nothing."""
    return arena.start("sleep", "1000", options=_LISTEN)


def _known_port(runner: Runner) -> int | None:
    found = _SAID.search(runner.said)
    return None if found is None else int(found[1])


class HealthProbe(Closeable):
    """Asks one runner, over one connection for as long as that lasts. Not thread-safe.

    Attributes:
        sent_at: When the last request was sent.
    """

    def __init__(self, port: int) -> None:
        """Connect to *port* with the first request."""
        self.sent_at = 0.0
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)

    @classmethod
    def of(cls, runner: Runner) -> Self:
        """Return a probe of *runner*, once it has said where it listens."""
        return cls(eventually(lambda: _known_port(runner), what="the runner says where it listens"))

    def ask(self, path: str) -> Answered:
        """Return the answer to *path*.

        Raises:
            OSError: There is none, because the runner has ended, or is about to.
        """
        self.send(path)
        return self.receive()

    def send(self, path: str) -> None:
        """Ask for *path*; `receive` returns the answer. A runner that is stopped answers later.

        Raises:
            OSError: The runner has ended.
        """
        self.sent_at = time.monotonic()
        with self._closing_after_errors():
            self._connection.request("GET", path)

    def receive(self) -> Answered:
        """Return the answer to what was sent.

        Raises:
            OSError: There is none.
        """
        with self._closing_after_errors():
            response = self._connection.getresponse()
            return Answered(response.status, json.loads(response.read()))

    @contextmanager
    def _closing_after_errors(self) -> Generator[None]:
        try:
            yield
        except http.client.HTTPException as error:
            self._connection.close()
            raise ConnectionError(str(error)) from error
        except OSError:
            self._connection.close()
            raise

    @override
    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class LeaderProbes(Closeable):
    """Asks runners again and again whether they lead, until closed."""

    def __init__(self) -> None:
        """Ask no one yet."""
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        # Answers of all threads; adding one is atomic.
        self._led: list[Led] = []

    def start(self, arena: Arena) -> Runner:
        """Start a runner, and ask it as soon as it listens."""
        runner = start_listening(arena)
        thread = threading.Thread(target=self._ask, args=[runner], daemon=True)
        self._threads.append(thread)
        thread.start()
        return runner

    def stop_until(self, runner: Runner, happens: Callable[[], object]) -> None:
        """Stop *runner* until *happens* has returned, and continue it.

        It finds requests that came after that while it was stopped, over connections that it has.
        """
        with ExitStack() as closing:
            asking = [closing.enter_context(HealthProbe.of(runner)) for _ in range(_REQUESTS)]
            for probe in asking:
                probe.ask("/liveness")
            runner.send(signal.SIGSTOP)
            happens()
            for probe in asking:
                probe.send("/leader")
            runner.send(signal.SIGCONT)
            for probe in asking:
                self._note(probe, probe.receive())

    def await_leader(self, after: int = 0) -> Led:
        """Return the first answer that a runner leads, in a term *after* that epoch."""
        return eventually(
            lambda: next((one for one in list(self._led) if one.epoch > after), None),
            within=30,
            what=f"a runner says that it leads, in a term after {after}",
        )

    def expect_one_leader(self) -> None:
        """Require that no two runners can have led at one moment, by their answers.

        A term has ended once a later one began. So no answer of it may be given after one of a
        later term was received, to a request that was sent only then.
        """
        leaders = {(one.epoch, one.candidate) for one in self._led}
        assert len(leaders) == len({epoch for epoch, _ in leaders}), f"two in one term: {leaders}"
        received = deque(sorted(self._led, key=lambda one: one.received_at))
        newest = received[0]
        for one in sorted(self._led, key=lambda one: one.sent_at):
            while received[0].received_at < one.sent_at:
                newest = max(newest, received.popleft(), key=lambda one: one.epoch)
            is_later = newest.received_at < one.sent_at
            assert not is_later or one.epoch >= newest.epoch, f"{one} after {newest}"

    @override
    def close(self) -> None:
        """Ask no more. A runner that still owes an answer must have ended before."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, runner: Runner) -> None:
        while (port := _known_port(runner)) is None:
            if self._closing.wait(_PAUSE_SECONDS):
                return  # it has ended before
        with HealthProbe(port) as probe:
            while not self._closing.wait(_PAUSE_SECONDS):
                try:
                    self._note(probe, probe.ask("/leader"))
                except ConnectionRefusedError:
                    return  # the runner has ended
                except OSError:
                    continue

    def _note(self, probe: HealthProbe, answered: Answered) -> None:
        status, record = answered
        if status == http.HTTPStatus.OK:
            led = Led(record["candidate"], record["epoch"], probe.sent_at, time.monotonic())
            self._led.append(led)
