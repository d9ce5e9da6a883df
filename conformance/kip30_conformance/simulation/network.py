"""A bad network between simulated processes and a modelled store.

It loses and delays requests, answers and notifications, by chance or because a process is cut off.
All of it happens as events, which never block. Each link draws from a source of its own: a fault
that is left out of a run changes little of what happens to other links.
"""

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from typing_extensions import override

from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.scheduler import Simulation

T = TypeVar("T")

_RECONNECT_SECONDS = 0.1, 2.0
"""Seconds that a link takes to replace a connection that broke, at least and at most."""

_SLOW_SECONDS = 2.5
"""More than the time between two renewals, and less than what a lease lasts without one."""

_RETRY_SECONDS = 0.3
"""Seconds between two attempts of a link to connect while it is cut off."""


@dataclass
class NetworkConditions:
    """The conditions of a network. Those of a running simulation may be changed at any moment.

    Attributes:
        delay_seconds: The mean time that a message takes, one way.
        lost_requests: The chance that a request does not arrive.
        lost_answers: The chance that an answer does not, although the request was done.
        late_requests: The chance that a request takes up to `late_seconds` more.
        late_answers: The same for an answer.
        late_seconds: How late messages are, at most.
        lost_notifications: The chance that a connection breaks at a notification. The state is read
            again once it is replaced.
        repeated_notifications: The chance that a state is notified twice.
        cut_off: The names of processes from which and to which nothing passes.
        unheard: The names of processes from which nothing passes: their requests are lost, and
            answers and notifications arrive.
        without_values: The names of processes from which and to which nothing about values passes.
        unanswered: The names of processes whose claims are served, and to which no answer to a
            claim passes.
        slow: The names of processes to which answers take `_SLOW_SECONDS` more.
    """

    delay_seconds: float = 0.002
    lost_requests: float = 0.0
    lost_answers: float = 0.0
    late_requests: float = 0.0
    late_answers: float = 0.0
    late_seconds: float = 10.0
    lost_notifications: float = 0.0
    repeated_notifications: float = 0.0
    cut_off: set[str] = field(default_factory=set[str])
    unheard: set[str] = field(default_factory=set[str])
    without_values: set[str] = field(default_factory=set[str])
    unanswered: set[str] = field(default_factory=set[str])
    slow: set[str] = field(default_factory=set[str])


class Network:
    """The state that all links of one simulation share.

    Attributes:
        simulation: The simulation in which the events happen.
        conditions: The present conditions.
        is_down: Whether the server answers no client.
        noted: Called with the name of a process and an event on one of its links, in words.
    """

    def __init__(self, simulation: Simulation, seed: int, conditions: NetworkConditions) -> None:
        """Decide the fate of messages by *seed* and the names of links."""
        self.simulation = simulation
        self.conditions = conditions
        self.is_down = False
        self.noted: Callable[[str, str], object] = _note_nothing
        # Requests that have arrived at a server that stands still; None while it does not.
        self._standing: list[Callable[[], object]] | None = None
        self._seed = seed
        self._links: dict[str, int] = {}  # how many each process has had, by its name

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Let the server stand still in the block; it serves what has arrived at its end."""
        standing = self._standing = list[Callable[[], object]]()
        try:
            yield
        finally:
            self._standing = None
            for request in standing:
                request()

    def serve(self, request: Callable[[], object]) -> None:
        """Serve *request*, which has arrived, as soon as the server does not stand still."""
        if self._standing is None:
            request()
        else:
            self._standing.append(request)

    def link(self, process: SimulatedProcess) -> "StoreLink":
        """Return a new way from *process* to the server."""
        number = self._links[process.name] = self._links.get(process.name, 0) + 1
        name = f"{self._seed} {process.name} {number}"
        return StoreLink(self, process, random.Random(name))  # noqa: S311  not for secrets: it repeats


def _note_nothing(_process: str, _event: str) -> None:
    """Note nothing."""


class StoreLink:
    """The way of one client to the server and back.

    Attributes:
        process: Where the client runs.
    """

    def __init__(self, network: Network, process: SimulatedProcess, chance: random.Random) -> None:
        """Use `Network.link` instead."""
        self.process = process
        self._network = network
        self._chance = chance
        # Answers that are held back; None while none are.
        self._held: list[Callable[[], object]] | None = None

    def is_cut(self) -> bool:
        """Return whether nothing passes now."""
        is_cut_off = self.process.name in self._conditions.cut_off
        return is_cut_off or self.process.is_dead or self._network.is_down

    def for_values(self) -> "StoreLink":
        """Return the same way for requests and notifications about values."""
        return _LinkForValues(self._network, self.process, self._chance, self)

    def for_claims(self) -> "StoreLink":
        """Return the same way for requests to claim, replace and release records."""
        return _LinkForClaims(self._network, self.process, self._chance, self)

    def note(self, text: str) -> None:
        """Pass an event on this link to `Network.noted`."""
        self._network.noted(self.process.name, text)

    def request(self, serve: Callable[[], T], answered: Callable[[T], object]) -> None:
        """Call *serve* when a request arrives, and *answered* when its result is back, if ever."""
        self.ask(lambda reply: reply(serve()), answered)

    def ask(
        self,
        serve: Callable[[Callable[[T], object]], object],
        answered: Callable[[T], object],
    ) -> None:
        """Do the same for a server that answers later: *serve* passes its argument the result."""
        conditions = self._conditions
        there = self._delay(conditions.late_requests)
        back = self._delay(conditions.late_answers)
        back += _SLOW_SECONDS if self.process.name in conditions.slow else 0.0
        is_lost, is_answer_lost = self._is_lost(conditions), self._by(conditions.lost_answers)
        if not is_lost:
            reply = partial(self._reply, None if is_answer_lost else back, answered)
            serving = partial(self._serve, partial(serve, reply))
            self._after(there, partial(self._network.serve, serving))

    def notify(self, notified: Callable[[], object]) -> bool:
        """Call *notified* when a notification arrives; false if the connection broke instead."""
        if self.is_cut() or self._by(self._conditions.lost_notifications):
            return False
        for _ in range(1 + self._by(self._conditions.repeated_notifications)):
            self.deliver(notified)
        return True

    def deliver(self, arrived: Callable[[], object]) -> None:
        """Call *arrived* after the time that a message takes."""
        self._after(self._delay(0.0), arrived)

    def within(self, seconds: float, event: Callable[[], object]) -> None:
        """Call *event* at some moment of the next *seconds*."""
        self._after(self._chance.uniform(0.0, seconds), event)

    def reconnect(self, connected: Callable[[], object]) -> None:
        """Call *connected* once a connection that broke is replaced."""
        self._after(self._chance.uniform(*_RECONNECT_SECONDS), partial(self._connect, connected))

    def connect(self, connected: Callable[[], object]) -> None:
        """Call *connected* once there is a connection."""
        self.deliver(partial(self._connect, connected))

    def _connect(self, connected: Callable[[], object]) -> None:
        if not self.is_cut():
            connected()
        elif not self.process.is_dead:
            self._after(_RETRY_SECONDS, partial(self._connect, connected))

    def _serve(self, serve: Callable[[], object]) -> None:
        if not self.is_cut():
            serve()

    def _reply(self, back: float | None, answered: Callable[[T], object], result: T) -> None:
        if back is not None:
            self._after(back, partial(self.pass_on, partial(answered, result)))

    def pass_on(self, answer: Callable[[], object]) -> None:
        """Call *answer*, which has arrived, unless nothing passes or answers are held back."""
        if self._held is not None:
            self._held.append(answer)
        elif not self.is_cut():
            answer()

    @contextmanager
    def held_answers(self) -> Generator[None]:
        """Hold back all answers in the block, and let them arrive at its end."""
        held = self._held = list[Callable[[], object]]()
        try:
            yield
        finally:
            self._held = None
            for answer in held:
                answer()

    def _is_lost(self, conditions: NetworkConditions) -> bool:
        is_unheard = self.process.name in conditions.unheard
        return self._by(conditions.lost_requests) or is_unheard or self.is_cut()

    @property
    def _conditions(self) -> NetworkConditions:
        return self._network.conditions

    def _delay(self, chance_to_be_late: float) -> float:
        conditions = self._conditions
        seconds = self._chance.expovariate(1 / conditions.delay_seconds)
        if self._by(chance_to_be_late):
            seconds += self._chance.uniform(0, conditions.late_seconds)
        return seconds

    def _by(self, chance: float) -> bool:
        return self._chance.random() < chance

    def _after(self, seconds: float, event: Callable[[], object]) -> None:
        simulation = self._network.simulation
        simulation.at(simulation.now + seconds, event)


class _LinkForSome(StoreLink):
    """The way for some requests of a client; what stops the whole link also stops them."""

    def __init__(
        self, network: Network, process: SimulatedProcess, chance: random.Random, whole: StoreLink
    ) -> None:
        super().__init__(network, process, chance)
        self._whole = whole

    @override
    def is_cut(self) -> bool:
        return self._whole.is_cut()

    @override
    def pass_on(self, answer: Callable[[], object]) -> None:
        if not self.is_cut():
            self._whole.pass_on(answer)  # which may hold it back


class _LinkForValues(_LinkForSome):
    @override
    def is_cut(self) -> bool:
        return self.process.name in self._conditions.without_values or super().is_cut()


class _LinkForClaims(_LinkForSome):
    @override
    def pass_on(self, answer: Callable[[], object]) -> None:
        if self.process.name not in self._conditions.unanswered:
            super().pass_on(answer)
