"""Stand-ins of `threading`, `time`, `random` and others for programs that run in a simulation.

kip30's modules, and those of the standard library below them, look these modules up by name
whenever they use them. `installed` puts stand-ins into the namespaces of the modules it is given,
and takes them out again, so nothing in the product changes.
"""

import asyncio.selector_events
import atexit
import concurrent.futures
import concurrent.futures._base
import concurrent.futures.thread
import gc
import os
import queue
import random
import secrets
import select
import selectors
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, NamedTuple

from typing_extensions import override

from kip30_conformance.simulation import futures_wait, locks
from kip30_conformance.simulation.present import clock, enter, found, leave, simulation
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.threads import Local, SimulatedQueue, SimulatedTimer, Thread

_EPOCH_SECONDS = 1.7e9
_POLL_SECONDS = 0.01
"""Seconds, by the virtual clock, between two looks at real descriptors."""

_LIBRARY: Final = (
    asyncio.selector_events,
    concurrent.futures._base,  # noqa: SLF001
    concurrent.futures.thread,
    uuid,
)
"""Modules of the standard library that run in the simulation too."""


class _Poll:
    """Looks at real descriptors between the turns of other threads."""

    def __init__(self) -> None:
        self._real = select.poll()
        self.register = self._real.register
        self.unregister = self._real.unregister
        self.modify = self._real.modify

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        until = None if timeout is None or timeout < 0 else clock() + timeout / 1_000
        while not (ready := self._real.poll(0)):
            left = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - clock())
            if left <= 0:
                return []
            simulation().park(left)
        return ready


class _Selector(selectors.DefaultSelector):
    """Refuses to block, as an event loop does: all simulated threads would wait with it."""

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            raise RuntimeError("an event loop blocks all simulated threads: mark this real_time")
        return ready


class _Module:
    """A module of which some names are others, but not for threads outside of the simulation.

    The test process has other threads, and what they run may be of the same modules.
    """

    def __init__(self, real: ModuleType, **others: object) -> None:
        self._real = real
        self.others: dict[str, object] = others

    def __getattr__(self, name: str) -> Any:
        others = self.others
        return others[name] if name in others and found() else getattr(self._real, name)


def _for_insiders(real: Any, stand_in: Any) -> object:
    """Return what stands for *real* where that was imported by its name."""
    if isinstance(stand_in, type):
        return stand_in

    def call(*given: Any, **named: Any) -> Any:
        return (stand_in if found() else real)(*given, **named)

    return call


def _current_thread() -> Any:
    thread = simulation().current
    return threading.current_thread() if thread is None else Thread.of(thread)


def _threads() -> list[Thread]:
    return [Thread.of(one) for one in simulation().threads()]


def _ident() -> int:
    thread = simulation().current
    return 0 if thread is None else thread.ident


def _pid() -> int:
    thread = simulation().current
    return os.getpid() if thread is None else thread.process.pid


def _now() -> float:
    return _EPOCH_SECONDS + simulation().now


def _sleep(seconds: float) -> None:
    simulation().park(seconds)


def _random_bytes(size: int | None = None) -> bytes:
    return simulation().chance.randbytes(32 if size is None else size)


def _random_hex(size: int | None = None) -> str:
    return _random_bytes(size).hex()


def _clock_gettime(_clock_id: int) -> float:
    return clock()


def _clock_gettime_ns(clock_id: int) -> int:
    return int(_clock_gettime(clock_id) * 1e9)


def _do_nothing(*_given: object, **_named: object) -> None:
    """Register no function for the end of the interpreter: it would keep a run for ever."""


def _draw(name: str) -> Callable[..., Any]:
    def draw(*given: Any, **named: Any) -> Any:
        return getattr(simulation().chance, name)(*given, **named)

    return draw


def _threading() -> _Module:
    return _Module(
        threading,
        Lock=locks.SimulatedLock,
        RLock=locks.SimulatedRLock,
        Condition=locks.SimulatedCondition,
        Event=locks.SimulatedEvent,
        Semaphore=locks.SimulatedSemaphore,
        BoundedSemaphore=locks.SimulatedBoundedSemaphore,
        Barrier=locks.SimulatedBarrier,
        Thread=Thread,
        Timer=SimulatedTimer,
        local=Local,
        current_thread=_current_thread,
        enumerate=_threads,
        active_count=lambda: len(_threads()),
        get_ident=_ident,
        get_native_id=_ident,
        _register_atexit=_do_nothing,
    )


def _time() -> _Module:
    return _Module(
        time,
        monotonic=clock,
        monotonic_ns=lambda: int(clock() * 1e9),
        perf_counter=clock,
        perf_counter_ns=lambda: int(clock() * 1e9),
        process_time=lambda: 0.0,  # to compute takes no time
        time=_now,
        time_ns=lambda: int(_now() * 1e9),
        clock_gettime=_clock_gettime,
        clock_gettime_ns=_clock_gettime_ns,
        sleep=_sleep,
    )


def _stand_ins() -> list[tuple[ModuleType, _Module]]:
    draws = ("uniform", "random", "choice", "randrange", "shuffle", "sample", "randint")
    return [
        (threading, _threading()),
        (time, _time()),
        (atexit, _Module(atexit, register=_do_nothing, unregister=_do_nothing)),
        (random, _Module(random, **{name: _draw(name) for name in draws})),
        (os, _Module(os, urandom=_random_bytes, getpid=_pid)),
        (secrets, _Module(secrets, token_bytes=_random_bytes, token_hex=_random_hex)),
        (queue, _Module(queue, SimpleQueue=SimulatedQueue, Queue=SimulatedQueue)),
        (select, _Module(select, poll=_Poll)),
        (selectors, _Module(selectors, DefaultSelector=_Selector)),
        (concurrent.futures, _Module(concurrent.futures, wait=futures_wait.wait)),
    ]


class _Place(NamedTuple):
    """A name in a module, its real object, and its stand-in in a simulation."""

    module: ModuleType
    name: str
    real: object
    stand_in: object


class _Places:
    """The places of stand-ins. A module that was searched is not searched again."""

    def __init__(self) -> None:
        self._imported = 0  # how many modules there were when stand-ins were put in place
        self._by_module: dict[str, tuple[ModuleType, list[_Place]]] = {}
        self._stand_ins: dict[int, object] = {}
        for real, module in _stand_ins():
            self._stand_ins[id(real)] = module
            for name, stand_in in module.others.items():
                imported = getattr(real, name)
                self._stand_ins[id(imported)] = _for_insiders(imported, stand_in)

    def of(self, prefixes: tuple[str, ...]) -> list[_Place]:
        """Return the places in the standard library and in modules whose names *prefixes* begin."""
        self._imported = len(sys.modules)
        modules = [*_LIBRARY, *_modules(prefixes)]
        return [place for module in modules for place in self._known(module)]

    def late(self, prefixes: tuple[str, ...]) -> list[str]:
        """Return the names of modules that have no stand-ins although these belong there."""
        if len(sys.modules) == self._imported:
            return []
        unknown = (one for one in _modules(prefixes) if not self._is_known(one))
        return [module.__name__ for module in unknown if self._in(module)]

    def _is_known(self, module: ModuleType) -> bool:
        known = self._by_module.get(module.__name__)
        return known is not None and known[0] is module

    def _known(self, module: ModuleType) -> list[_Place]:
        if not self._is_known(module):
            self._by_module[module.__name__] = module, self._in(module)
        return self._by_module[module.__name__][1]

    def _in(self, module: ModuleType) -> list[_Place]:
        return [
            _Place(module, name, value, self._stand_ins[id(value)])
            for name, value in list(vars(module).items())
            if id(value) in self._stand_ins
        ]


def _modules(prefixes: tuple[str, ...]) -> list[ModuleType]:
    own = sys.modules[__name__].__package__ or ""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(prefixes) and not name.startswith(own)
    ]


def late_modules(prefixes: tuple[str, ...]) -> list[str]:
    """Return the modules imported since `installed` began that would need stand-ins."""
    return _places.late(prefixes)


_places: Final = _Places()


@contextmanager
def installed(entered: Simulation, prefixes: tuple[str, ...] = ("kip30",)) -> Generator[Simulation]:
    """Let modules whose names *prefixes* begin run in *entered* for the duration of a block.

    All stand-ins are removed at the end of the block, also after an exception, and the threads end.
    Garbage is not collected meanwhile: finalizers would run at moments that no seed decides.
    """
    places, collects = _places.of(prefixes), gc.isenabled()
    enter(entered)
    try:
        gc.disable()
        for place in places:
            setattr(place.module, place.name, place.stand_in)
        yield entered
    finally:
        try:
            entered.end()
        finally:
            for place in places:
                setattr(place.module, place.name, place.real)
            leave()
            if collects:
                gc.enable()
