"""Finds the planted bugs, and the seed at which each is found.

    python -m tests.unit.simulation.seeds_of_bugs

writes `seeds_of_bugs.json`, with which the gate begins. Which runs find a bug changes with the
core, so write it again when the gate takes long to find one.
"""

import json
from itertools import count
from pathlib import Path

from kip30_conformance.simulation import simulate
from kip30_conformance.simulation.plan import (
    RunPlan,
    expand,
    expand_with_bans,
    expand_with_operators,
)
from kip30_conformance.simulation.schedule import run

from .planted_bugs import BUGS, is_of_bans, is_of_coordinator, is_of_directives, planted

FILE = Path(__file__).with_suffix(".json")
MOST_RUNS = 200
"""Most runs within which each planted bug must be found."""
_SEARCHED = 5_000
"""Runs after which the search for a seed gives up."""


def first_broken(bug: str, seed: int, most: int = MOST_RUNS) -> tuple[int, RunPlan, str]:
    """Return the seed from *seed* on that finds *bug*, its plan, and the promise that it breaks.

    It must be one of the first *most*. A bug of the coordinator is looked for in runs that divide
    items, one of directives in runs with operators, and one of bans in runs with those who ban.
    """
    with_items = is_of_coordinator(bug)
    plan_of = expand_with_operators if is_of_directives(bug) else expand
    plan_of = expand_with_bans if is_of_bans(bug) else plan_of
    plans = ((one, plan_of(one)) for one in count(seed))
    wanted = ((one, plan) for one, plan in plans if plan.has_items or not with_items)
    for runs, (found, plan) in enumerate(wanted, 1):
        with planted(bug):
            failures = run(plan)
        if failures:
            return found, plan, failures[0].promise
        assert runs < most, f"not found in {most} runs: {bug}"
    raise AssertionError


def read() -> dict[str, int]:
    """Return the seed at which each bug was found last, by bug."""
    seeds: dict[str, int] = json.loads(FILE.read_text())
    return seeds


if __name__ == "__main__":
    simulate.prepare()
    found = {bug: first_broken(bug, 1, _SEARCHED)[0] for bug in BUGS}
    FILE.write_text(json.dumps(found, indent=2) + "\n")
