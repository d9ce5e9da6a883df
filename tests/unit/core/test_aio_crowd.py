"""Hundreds of calls of each kind that begin together: few threads, and a loop that runs."""

import threading
from pathlib import Path

from kip30.aio import AsyncPluginLocator
from kip30_conformance.clients.loop_crowd import outcomes, steps
from kip30_conformance.loop_meter import LoopMeter, metered_runner
from kip30_conformance.polling import time_scale

from .loops import properties

HUNDREDS = 300
FEW_THREADS = 10
LONGEST_ITERATION = 0.02


def own_threads() -> int:
    return sum(thread.name.startswith("kip30") for thread in threading.enumerate())


def test_hundreds_of_calls_take_few_threads_and_little_of_the_loop(tmp_path: Path) -> None:
    before = own_threads()
    patient = {"plugin.session.timeout.ms": 60_000, "plugin.operation.timeout.ms": 60_000}

    async def main(meter: LoopMeter) -> None:
        async with AsyncPluginLocator(properties(tmp_path, **patient)) as locator:
            for name, calls in steps(locator, HUNDREDS):
                meter.lap()
                done = await outcomes(calls)
                use = meter.lap()
                assert not any(isinstance(one, BaseException) for one in done), name
                assert sum(use.own_threads.values()) - before <= FEW_THREADS, (name, use)
                assert use.computing < LONGEST_ITERATION * time_scale(), (name, use)

    with metered_runner() as (runner, meter):
        runner.run(main(meter))
