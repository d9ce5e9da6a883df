"""What `threading`, `time`, `random` and others are to programs that run in a simulation.

kip30's modules, and those of `concurrent.futures` below them, look these modules up by name
whenever they use them. `installed` puts stand-ins into the namespaces of the modules it is given,
and takes them out again, so nothing in the product changes.
"""

import concurrent.futures._base
import concurrent.futures.thread
import os
import queue
import random
import select
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from kip30_conformance.simulation import locks
from kip30_conformance.simulation.present import clock, enter, leave, simulation
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.threads import SimpleQueue, Thread, Timer

_EPOCH_SECONDS = 1.7e9
_POLL_SECONDS = 0.01
"""How often real descriptors are looked at, by the virtual clock."""

_FUTURES: Final = (concurrent.futures._base, concurrent.futures.thread)  # noqa: SLF001


class _Poll:
    """Looks at real descriptors between the turns of other threads."""

    def __init__(self) -> None:
        self._real = select.poll()
        self.register = self._real.register
        self.unregister = self._real.unregister
        self.modify = self._real.modify

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        until = None if timeout is None or timeout < 0 else clock() + timeout / 1_000
        while not (found := self._real.poll(0)):
            left = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - clock())
            if left <= 0:
                return []
            simulation().park(left)
        return found


class _Module:
    """A module of which some names are others."""

    def __init__(self, real: ModuleType, **others: object) -> None:
        self._real = real
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _current_thread() -> Any:
    thread = simulation().current
    return threading.current_thread() if thread is None else Thread.of(thread)


def _threads() -> list[Thread]:
    return [Thread.of(one) for one in simulation().threads()]


def _ident() -> int:
    thread = simulation().current
    return 0 if thread is None else thread.ident


def _sleep(seconds: float) -> None:
    simulation().park(seconds)


def _urandom(size: int) -> bytes:
    return simulation().chance.randbytes(size)


def _stand_ins() -> dict[ModuleType, object]:
    def chance(name: str) -> Callable[..., Any]:
        def draw(*given: object) -> Any:
            return getattr(simulation().chance, name)(*given)

        return draw

    draws = ("uniform", "random", "choice", "randrange", "shuffle", "sample", "randint")
    return {
        threading: _Module(
            threading,
            Lock=locks.Lock,
            RLock=locks.RLock,
            Condition=locks.Condition,
            Event=locks.Event,
            Semaphore=locks.Semaphore,
            BoundedSemaphore=locks.Semaphore,
            Barrier=locks.Barrier,
            Thread=Thread,
            Timer=Timer,
            current_thread=_current_thread,
            enumerate=_threads,
            active_count=lambda: len(_threads()),
            get_ident=_ident,
            get_native_id=_ident,
            _register_atexit=lambda *_given, **_named: None,
        ),
        time: _Module(
            time,
            monotonic=clock,
            monotonic_ns=lambda: int(clock() * 1e9),
            perf_counter=clock,
            time=lambda: _EPOCH_SECONDS + simulation().now,
            time_ns=lambda: int((_EPOCH_SECONDS + simulation().now) * 1e9),
            clock_gettime=lambda _clock_id: clock(),
            sleep=_sleep,
        ),
        random: _Module(random, **{name: chance(name) for name in draws}),
        os: _Module(os, urandom=_urandom),
        queue: SimpleNamespace(SimpleQueue=SimpleQueue, Queue=SimpleQueue, Empty=queue.Empty),
        select: _Module(select, poll=_Poll),
    }


Place = tuple[ModuleType, str, object]
"""A module, a name in it, and what that is."""


def _places(prefixes: tuple[str, ...]) -> list[Place]:
    """Return where modules that *prefixes* begin refer to a module that has a stand-in."""
    replaced = {id(module) for module in _stand_ins()}
    own = sys.modules[__name__].__package__ or ""
    return [
        (module, name, value)
        for module in [*_FUTURES, *_modules(prefixes)]
        if not module.__name__.startswith(own)
        for name, value in list(vars(module).items())
        if id(value) in replaced
    ]


def _modules(prefixes: tuple[str, ...]) -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(prefixes)]


@contextmanager
def installed(entered: Simulation, prefixes: tuple[str, ...] = ("kip30",)) -> Generator[Simulation]:
    """Let modules whose names *prefixes* begin run in *entered* for the duration of a block.

    What is put in place is taken out again, whatever ends the block, and the threads end.
    """
    stand_ins = _stand_ins()
    places = _places(prefixes)
    enter(entered)
    try:
        for module, name, real in places:
            setattr(module, name, stand_ins[real])  # type: ignore[index]
        yield entered
    finally:
        try:
            entered.end()
        finally:
            for module, name, real in places:
                setattr(module, name, real)
            leave()
