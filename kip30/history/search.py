"""The search for an order that explains a history: Wing and Gong's, with Lowe's cache.

A configuration says how far the history is explained: up to which moment of
return, which operations open there have happened, which unanswered ones were
used, and the state they left. Depth first, every configuration is visited once.
Three rules keep it small and lose no order:

* An operation that only reads is taken as soon as it fits.
* Of equal unanswered operations the earliest is used first.
* A configuration is skipped if one was visited that differs only in having used fewer unanswered
  operations.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kip30.history.models import IMPOSSIBLE, Model, State
from kip30.history.open_operations import Alike, timeline
from kip30.history.operations import Operation
from kip30.history.verdict import Verdict


class Configuration(NamedTuple):
    """One way to explain the beginning of a history.

    Attributes:
        moment: How many of the timeline's moments are passed.
        happened: The bits of the open operations that have happened.
        used: The bits of the pending operations that have happened.
        state: The state of the object after all of them.
    """

    moment: int
    happened: int
    used: int
    state: State


class Search:
    """One search, once.

    Attributes:
        explored: How many configurations it has visited.
        exhausted: Whether it gave up because its budget of them was spent.
    """

    def __init__(
        self, rows: Sequence[Operation], model: Model, budget: int, *, hindsight: bool = True
    ) -> None:
        """Prepare to search for an order of *rows*, all on one object, that *model* allows.

        With *hindsight*, later records narrow the search from the beginning. That shows soon
        whether there is an order; a search without it shows how far one goes.
        """
        known = model.constrained(rows) if hindsight else model.normalized(rows)
        steps = model.with_steps(known, hindsight=hindsight)
        self._model = model
        self._rows = [row for row, _ in steps]
        self._moments, pending = timeline(steps)
        self._pending = _by_need(pending)
        self._held_until = model.held_until(known) if hindsight else _nothing_is_held
        self._begin(budget)

    def _begin(self, budget: int) -> None:
        self.explored: int = 0
        self.exhausted: bool = False
        self._budget = budget
        self._visited: dict[tuple[int, int, State], list[int]] = {}
        self._stack = [self._advanced(0, 0, 0, self._model.initial)]

    def run(self) -> Verdict:
        """Search until an order is found, none is left, or the budget is spent."""
        if any(True for _ in self.final_states()):
            return Verdict.OK
        return Verdict.UNKNOWN if self.exhausted else Verdict.VIOLATION

    def final_states(self) -> Iterator[State]:
        """Yield the states the history can end in, until the budget is spent."""
        return self._states_at(len(self._moments))

    def furthest(self, patience: int) -> int:
        """Return how many returns some order explains, and be `exhausted` if more may be.

        Gives up after *patience* configurations without progress, or when the budget is spent.
        """
        passed, idle = 0, 0
        for configuration in self._configurations(len(self._moments)):
            idle = 0 if configuration.moment > passed else idle + 1
            passed = max(passed, configuration.moment)
            if idle > patience:
                self.exhausted = True
                break
        return passed

    @property
    def returns(self) -> int:
        """The number of operations that return."""
        return len(self._moments)

    def returned_after(self, passed: int) -> Operation:
        """Return the operation that returned next after *passed* others."""
        return self._rows[self._moments[passed].place]

    def states_after(self, passed: int, budget: int) -> Iterator[State]:
        """Start again, and yield states the object can be in when *passed* have returned."""
        self._begin(budget)
        return self._states_at(passed)

    def _states_at(self, end: int) -> Iterator[State]:
        for configuration in self._configurations(end):
            if configuration.moment >= end:
                yield configuration.state

    def _configurations(self, end: int) -> Iterator[Configuration]:
        """Yield configurations, depth first, and continue from those before the moment *end*."""
        while self._stack:
            configuration = self._stack.pop()
            if self._known(configuration):
                continue
            if configuration.moment < end:
                if self.explored >= self._budget:
                    self.exhausted = True
                    return
                self.explored += 1
                self._stack.extend(self._successors(configuration))
            yield configuration

    def _known(self, configuration: Configuration) -> bool:
        moment, happened, used, state = configuration
        visited = self._visited.setdefault((moment, happened, state), [])
        if any(not (fewer & ~used) for fewer in visited):
            return True
        visited.append(used)
        return False

    def _successors(self, configuration: Configuration) -> Iterator[Configuration]:
        """Yield the configurations that may come next, the most promising last."""
        moment, happened, used, state = configuration
        now = self._moments[moment]
        held = self._held_until(state) > now.ends_ns
        for alike in () if held else self._fitting(state):
            pending = alike.first_unused(used, now.pending)
            after = IMPOSSIBLE if pending is None else pending.step.apply(state)
            if pending is not None and after is not IMPOSSIBLE and after != state:
                yield self._advanced(moment, happened, used | 1 << pending.number, after)
        for one in now.observers if held else now.observers + now.changers:
            after = IMPOSSIBLE if happened & one.bit else one.step.apply(state)
            if after is not IMPOSSIBLE:
                yield self._advanced(moment, happened | one.bit, used, after)

    def _fitting(self, state: State) -> Iterable[Alike]:
        """Return the pending operations that may fit *state*."""
        offered = self._model.offered(state)
        if offered is None:
            return chain.from_iterable(self._pending.values())
        return chain(self._pending.get(None, ()), self._pending.get(offered, ()))

    def _advanced(self, moment: int, happened: int, used: int, state: State) -> Configuration:
        """Take every fitting observer and pass every moment whose operation has happened."""
        while moment < len(self._moments):
            now = self._moments[moment]
            for one in now.observers:
                if not happened & one.bit and one.step.apply(state) == state:
                    happened |= one.bit
            if not happened & now.bit:
                break
            happened &= ~now.bit
            moment += 1
        return Configuration(moment, happened, used, state)


def _nothing_is_held(_state: State) -> int:
    return 0


def _by_need(pending: Iterable[Alike]) -> dict[Hashable, list[Alike]]:
    needs: defaultdict[Hashable, list[Alike]] = defaultdict(list)
    for alike in pending:
        needs[alike.needs].append(alike)
    return dict(needs)
