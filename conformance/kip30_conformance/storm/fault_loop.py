"""The storm itself: episodes of faults with calms between them, and a quiet end."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from random import Random

from kip30_conformance.polling import time_scale
from kip30_conformance.storm.clients import Clients
from kip30_conformance.storm.display import Display
from kip30_conformance.storm.fault_kinds import KINDS
from kip30_conformance.storm.fault_schedule import Episode, Planned
from kip30_conformance.storm.faults import Fault, Scene
from kip30_conformance.storm.storm_history import InjectedFault, Window
from kip30_conformance.storm.timing import Timing

_PAUSE_SECONDS = 0.05
_READY_SECONDS = 60.0


class FaultLoop:
    """Runs the schedule, replaces dead clients, and records the windows."""

    def __init__(self, scene: Scene, timing: Timing, display: Display) -> None:
        """Start idle; `inject` runs the faults."""
        self._scene = scene
        self._clients: Clients = scene.clients
        self._timing = timing
        self._display = display
        self.windows: list[Window] = []
        self.interrupted = False

    def inject(self, episodes: Iterable[Episode], seconds: float) -> None:
        """Run *episodes*, as many as begin within *seconds*; Ctrl-C ends that early."""
        self._until(
            lambda: self._clients.have_said("ready"),
            _READY_SECONDS * time_scale(),
            "the clients start",
        )
        # What has to go on after a fault must have begun before.
        self._until(
            lambda: self._clients.have_said("working"),
            _READY_SECONDS * time_scale(),
            "the first generation forms",
        )
        self._display.begin(seconds)
        over = time.monotonic() + seconds
        try:
            self._calm(time.monotonic(), ())
            for episode in takewhile(lambda _: time.monotonic() < over, episodes):
                self._happen(episode)
        except KeyboardInterrupt:
            self.interrupted = True
            self._calm(time.monotonic(), ())

    def settle(self, is_notified: Callable[[], bool]) -> None:
        """Wait until *is_notified*, or long enough for listeners to have received everything."""
        self._until(is_notified, self._timing.grace, "listeners know the rest")

    def quiet(self) -> None:
        """Make all clients stop writing, and wait until they have."""
        self._clients.tell("quiet")
        self._until(lambda: self._clients.have_said("quiet"), self._patience, "the clients stop")

    def close(self) -> list[str]:
        """Make all clients close; return those that did not end in time."""
        self._clients.tell("close")
        self._until(lambda: self._clients.have_said("over"), self._patience, "the clients close")
        return [
            f"{client.process} did not end on request"
            for client in self._clients.processes
            if not client.has_said("over")
        ]

    @property
    def _patience(self) -> float:
        # Longer than the limit of any action: a directive has twelve requests and a wait.
        return 15 * self._timing.limit + self._timing.grace

    def _happen(self, episode: Episode) -> None:
        faults = [(planned, self._made(planned)) for planned in episode.faults]
        begin = time.monotonic()
        struck: list[InjectedFault] = []
        begun: list[tuple[Planned, Fault]] = []
        try:
            for planned, fault in faults:
                begun.append((planned, fault))
                fault.begin()
            self._wait(begin + episode.seconds, _named(begun))
        finally:
            for planned, fault in begun:
                struck.append(_ended(planned, fault))
        self._until(self._all_serve, _READY_SECONDS * time_scale(), "the servers find each other")
        # How long a new client's interpreter takes to start says nothing about the store.
        self._until(self._all_run, _READY_SECONDS * time_scale(), "the clients' processes start")
        self._calm(begin, tuple(struck))

    def _all_serve(self) -> bool:
        return all(node.is_ready() for node in self._scene.ensemble.nodes)

    def _all_run(self) -> bool:
        return self._clients.have_said("running")

    def _calm(self, begin: float, faults: tuple[InjectedFault, ...]) -> None:
        end = time.monotonic()
        place = len(self.windows)
        self.windows.append(Window(begin, end, end, end, faults))
        try:
            self._wait(end + self._timing.calm, "calm")
        finally:
            now = time.monotonic()
            well = min(now, end + self._timing.grace)
            self.windows[place] = Window(begin, end, well, now, faults)

    def _made(self, planned: Planned) -> Fault:
        chance = Random(planned.seed)  # noqa: S311  to be repeated, not to be secret
        return KINDS[planned.kind].make(self._scene, chance)

    def _wait(self, until: float, doing: str) -> None:
        self._until(lambda: time.monotonic() >= until, until - time.monotonic() + 1, doing)

    def _until(self, done: Callable[[], bool], seconds: float, doing: str) -> None:
        """Watch over everything until *done*, or for a number of *seconds*."""
        latest = time.monotonic() + seconds
        while not done() and time.monotonic() < latest:
            self._display.show(doing, self._clients.counted())
            self._clients.look()
            time.sleep(_PAUSE_SECONDS)


def _named(faults: Iterable[tuple[Planned, Fault]]) -> str:
    return " and ".join(f"{planned.kind} ({fault.target})" for planned, fault in faults)


def _ended(planned: Planned, fault: Fault) -> InjectedFault:
    # A fault that never quite began has nothing to heal.
    with suppress(AssertionError):
        fault.end()
    return InjectedFault(planned.kind, fault.target, planned.seconds, fault.evidence)
