"""``kip30 simulate``: many runs of the core in virtual time, each decided by a seed.

A run that breaks a promise is shown with its plan, made as small as possible, and with the command
that repeats it. It repeats with the same version of kip30 and the same plan.
"""

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

from typing_extensions import override

from kip30 import __version__
from kip30_conformance.simulation.plan import (
    LEADER,
    RunFault,
    RunFaultKind,
    RunPlan,
    expand,
    from_json,
    to_json,
)
from kip30_conformance.simulation.promises import Failure
from kip30_conformance.simulation.schedule import Schedule
from kip30_conformance.simulation.shrinking import shrink
from kip30_conformance.simulation.store_schedule import SimulatedStore, StoreSchedule

__all__ = [
    "BrokenRun",
    "SimulatedStore",
    "Summary",
    "described",
    "of_file",
    "of_seeds",
    "prepare",
    "simulate",
    "text_of",
    "timeline",
    "without",
]

_PACKAGES = ("kip30.runtime", "kip30.driver", "kip30.recipes", "kip30.coordinator")
_COLLECT_EVERY = 20
"""Runs between two collections of garbage, which a run itself turns off."""


class BrokenRun(NamedTuple):
    """A run that broke a promise.

    Attributes:
        plan: The plan of the run.
        failures: The broken promises, the first one first.
        smallest: The smallest plan that was found in which the same promise is broken first.
    """

    plan: RunPlan
    failures: list[Failure]
    smallest: RunPlan


@dataclass
class Summary:
    """Result of a number of runs.

    Attributes:
        runs: How many there were.
        virtual_seconds: How long they took by the virtual clock.
        processor_seconds: The same by the processor, without shrinking.
        broken: The runs that broke a promise.
    """

    runs: int = 0
    virtual_seconds: float = 0.0
    processor_seconds: float = 0.0
    broken: list[BrokenRun] = field(default_factory=list[BrokenRun])

    @override
    def __str__(self) -> str:
        """Return it as a line."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return (
            f"{runs}, {len(self.broken)} broke a promise;"
            f" {self.virtual_seconds / 3600:.1f} hours in {self.processor_seconds:.1f} s of the"
            f" processor, kip30 {__version__}"
        )


def simulate(
    plans: Iterable[RunPlan],
    *,
    seconds: float | None = None,
    most: int = 5,
    store: SimulatedStore | None = None,
    report: Callable[[BrokenRun], object] = lambda _broken: None,
) -> Summary:
    """Run *plans*, at least one, until *seconds* have passed or *most* of them broke a promise.

    Args:
        plans: The plans to run.
        seconds: The time, on a real clock, after which no further run begins.
        most: The number of broken runs after which no other run begins.
        store: The store to run them on, behind a bad network; None is the model.
        report: Called with each broken run before the next run begins, which may be interrupted.

    Returns:
        The number of runs, and the broken ones, each with its smallest plan.
    """
    prepare()
    summary, until = Summary(), None if seconds is None else time.monotonic() + seconds
    for plan in plans:
        if summary.runs and until is not None and time.monotonic() >= until:
            break
        begun = time.process_time()
        schedule = _schedule(plan, store)
        failures = schedule.run()
        summary.runs += 1
        summary.virtual_seconds += schedule.now
        summary.processor_seconds += time.process_time() - begun
        if failures:
            smallest = shrink(plan, failures[0].promise, lambda one: _schedule(one, store).run())
            summary.broken.append(BrokenRun(plan, failures, smallest))
            report(summary.broken[-1])
            if len(summary.broken) >= most:
                break
        if summary.runs % _COLLECT_EVERY == 0:
            gc.collect()
    return summary


def _schedule(
    plan: RunPlan,
    store: SimulatedStore | None,
    noted: Callable[[float, str, str], object] | None = None,
) -> Schedule:
    return Schedule(plan, noted) if store is None else StoreSchedule(store, plan, noted)


def prepare() -> None:
    """Import what a run needs: a module that is imported in the middle of one runs in real time."""
    for name in _PACKAGES:
        package = import_module(name)
        for found in walk_packages(package.__path__, f"{name}."):
            import_module(found.name)


def of_seeds(first: int, last: int) -> Iterable[RunPlan]:
    """Return the plans of the seeds from *first* to *last*."""
    return map(expand, range(first, last + 1))


def without(plans: Iterable[RunPlan], kinds: Iterable[str]) -> Iterable[RunPlan]:
    """Return *plans* without the faults of *kinds*, such as ``kill``.

    Raises:
        ValueError: There is no such kind.
    """
    known = {kind.name.lower(): kind for kind in RunFaultKind}
    unknown = sorted(set(kinds) - set(known))
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: faults are {', '.join(known)}")
    left_out = {known[kind] for kind in kinds}
    return (
        plan.with_faults([fault for fault in plan.faults if fault.kind not in left_out])
        for plan in plans
    )


def of_file(file: Path) -> RunPlan:
    """Return the plan in *file*.

    Raises:
        OSError: It cannot be read.
        ValueError: It has no plan.
    """
    return from_json(file.read_text())


def timeline(
    plan: RunPlan, show: Callable[[str], object], store: SimulatedStore | None = None
) -> list[Failure]:
    """Run *plan*, and pass each event to *show* as a line; return which promises were broken.

    It runs on *store*, behind a bad network, or on the modelled one.
    """
    prepare()

    def note(at: float, where: str, text: str) -> None:
        show(f"{at:10.3f}  {where:<6}  {text}")

    return _schedule(plan, store, note).run()


def described(broken: BrokenRun) -> list[str]:
    """Return in lines what *broken* has broken, and in which smallest plan."""
    smallest = broken.smallest
    lines = [f"seed {broken.plan.seed}: {failure}" for failure in broken.failures[:3]]
    lines.append(
        f"  {len(broken.plan.faults)} faults, and {len(smallest.faults)} in the smallest plan:"
    )
    lines += [
        f"    at {fault.at:g} s, {_target(fault)}: {fault.kind.value}" for fault in smallest.faults
    ]
    return lines


def _target(fault: RunFault) -> str:
    return "the leader" if fault.target == LEADER else f"process {fault.target}"


def text_of(plan: RunPlan) -> str:
    """Return *plan* as JSON."""
    return to_json(plan)
