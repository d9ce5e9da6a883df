"""Thousands of calls of one event loop that begin together, of each kind in turn.

What matters is that all are done, how many threads there are meanwhile, and for how long an
iteration keeps the loop: by the processor time of its thread, because the machine may be busy, and
without passes of Python's garbage collector.
"""

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress
from kip30.aio import AsyncPluginLocator
from kip30_conformance.clients.loop_crowd import outcomes, steps
from kip30_conformance.loop_meter import LoopMeter, LoopUse, metered_runner

THOUSANDS = 3_000
_MILLISECONDS = 20_000
"""The session timeout and the operation timeout: no call may fail because the machine is busy."""
_TIMEOUTS = dict.fromkeys(
    ("plugin.session.timeout.ms", "plugin.operation.timeout.ms"), str(_MILLISECONDS)
)
_MOST_THREADS = 10
_CLIENT_THREADS = {"consul": 13}
"""Threads of clients that kip30 has in place of a vendor's."""
_LONGEST_MS = 50.0


class _Step(NamedTuple):
    name: str
    seconds: float
    processor_seconds: float
    errors: int
    use: LoopUse


def measure(address: StoreAddress) -> list[Figure]:
    with metered_runner() as (runner, meter):
        measured = runner.run(_measured({**address.settings("loop"), **_TIMEOUTS}, meter))
    return [
        *_worst(measured, address.store),
        *_threads(measured, address.store),
        *_durations(measured),
    ]


async def _measured(config: Mapping[str, str], meter: LoopMeter) -> Sequence[_Step]:
    async with AsyncPluginLocator(config) as locator:
        return [await _step(name, calls, meter) for name, calls in steps(locator, THOUSANDS)]


async def _step(name: str, calls: Sequence[Any], meter: LoopMeter) -> _Step:
    await asyncio.sleep(0)  # the calls were made in an iteration of their own
    meter.lap()
    began, used = time.perf_counter(), time.process_time()
    done = await outcomes(calls)
    took, used = time.perf_counter() - began, time.process_time() - used
    errors = sum(isinstance(one, BaseException) for one in done)
    return _Step(name, took, used, errors, meter.lap())


def _worst(measured: Sequence[_Step], store: str) -> Generator[Figure]:
    """Yield the worst of all steps; the samples are those of the steps, in their order."""
    figure = partial(_figure, measured)
    yield figure("errors", "errors", lambda step: step.errors, at_most=0)
    yield figure(
        "threads of kip30",
        "threads",
        lambda step: sum(step.use.own_threads.values()),
        at_most=_MOST_THREADS + _CLIENT_THREADS.get(store, 0),
    )
    yield figure("other threads", "threads", lambda step: sum(step.use.other_threads.values()))
    yield figure(
        "longest iteration, computing",
        "ms",
        lambda step: 1e3 * step.use.computing,
        at_most=_LONGEST_MS,
    )
    yield figure("longest iteration, blocked", "ms", lambda step: 1e3 * step.use.blocked)
    yield figure(
        "longest iteration, garbage collector", "ms", lambda step: 1e3 * step.use.collecting
    )
    yield figure("longest iteration, by the clock", "ms", lambda step: 1e3 * step.use.elapsed)


def _figure(
    measured: Sequence[_Step], name: str, unit: str, of: Any, at_most: float | None = None
) -> Figure:
    samples = tuple(float(of(step)) for step in measured)
    return Figure(
        name=f"{THOUSANDS:,} calls begun together: {name}",
        value=max(samples),
        unit=unit,
        at_most=at_most,
        samples=samples,
    )


def _threads(measured: Sequence[_Step], store: str) -> Generator[Figure]:
    """Yield how many threads of each name there were at most."""
    every = [{**step.use.own_threads, **step.use.other_threads} for step in measured]
    for name in sorted({name for one in every for name in one}):
        yield Figure(
            name=f"threads at most on {store}, {name}",
            value=max(one.get(name, 0) for one in every),
            unit="threads",
        )


def _durations(measured: Sequence[_Step]) -> Generator[Figure]:
    for step in measured:
        name = f"{THOUSANDS:,} {step.name} begun together"
        yield Figure(name=name, value=step.seconds, unit="s")
        yield Figure(name=f"{name}, CPU", value=step.processor_seconds, unit="s")
