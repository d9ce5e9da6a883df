"""Smaller plans that fail in the same way: fewer faults, a better network, less work."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kip30_conformance.simulation.plan import RunPlan
from kip30_conformance.simulation.promises import Failure
from kip30_conformance.simulation.schedule import run

Run = Callable[[RunPlan], list[Failure]]
"""Returns which promises a run of a plan has broken, the first one first."""

_Improvement = Callable[[RunPlan], RunPlan]

_LESS_WORK: tuple[_Improvement, ...] = (
    lambda plan: replace(plan, has_items=False),
    lambda plan: replace(plan, has_locks=False),
    lambda plan: replace(plan, operators=min(plan.operators, 1)),
)
_BETTER_NETWORK: tuple[_Improvement, ...] = (
    lambda plan: replace(plan, lost_requests=0.0),
    lambda plan: replace(plan, lost_answers=0.0),
    lambda plan: replace(plan, late_messages=0.0),
    lambda plan: replace(plan, lost_notifications=0.0),
    lambda plan: replace(plan, repeated_notifications=0.0),
    lambda plan: replace(plan, interruptions=0.0),
)


def shrink(plan: RunPlan, promise: str, run_plan: Run = run) -> RunPlan:
    """Return a smaller plan in which *promise* is broken first, as it is in *plan*."""
    return smallest(plan, lambda smaller: is_broken(smaller, promise, run_plan))


def is_broken(plan: RunPlan, promise: str, run_plan: Run = run) -> bool:
    """Return whether *promise* is the first one that a run of *plan* breaks."""
    failures = run_plan(plan)
    return bool(failures) and failures[0].promise == promise


def smallest(plan: RunPlan, fails: Callable[[RunPlan], bool]) -> RunPlan:
    """Leave out what programs do, which makes runs short, then faults, then losses on the way."""
    plan = _improved(plan, _LESS_WORK, fails)
    plan = _with_fewer_faults(plan, fails)
    return _improved(plan, _BETTER_NETWORK, fails)


def _improved(
    plan: RunPlan, improvements: Sequence[_Improvement], fails: Callable[[RunPlan], bool]
) -> RunPlan:
    for improve in improvements:
        better = improve(plan)
        if better != plan and fails(better):
            plan = better
    return plan


def _with_fewer_faults(plan: RunPlan, fails: Callable[[RunPlan], bool]) -> RunPlan:
    size = max(1, len(plan.faults) // 2)
    while size:
        index = 0
        while index < len(plan.faults):
            fewer = plan.with_faults(plan.faults[:index] + plan.faults[index + size :])
            if fails(fewer):
                plan = fewer
            else:
                index += size
        size //= 2
    return plan
