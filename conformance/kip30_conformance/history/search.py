"""The search for an order that explains a history: Wing and Gong's, with Lowe's cache.

A configuration says how far the history is explained: up to which moment of
return, which operations open there have happened, which unanswered ones were
used, and the state they left. Depth first, every configuration is visited once.
Three rules keep it small and lose no order:

* An operation that only looks is taken as soon as it fits.
* Of unanswered operations that are alike the earliest is used first.
* A configuration is passed over if one was visited that differs only in having
  used fewer unanswered operations.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kip30_conformance.history.models import IMPOSSIBLE, Model, State
from kip30_conformance.history.operations import Operation
from kip30_conformance.history.timeline import timeline
from kip30_conformance.history.verdict import Verdict


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

    def __init__(self, rows: Sequence[Operation], model: Model, budget: int) -> None:
        """Prepare to search for an order of *rows*, all on one object, that *model* allows."""
        sharp = model.sharpened(rows)
        self.explored = 0
        self.exhausted = False
        self._moments, self._pending = timeline(model.told(sharp))
        self._held_until = model.held_until(sharp)
        self._budget = budget
        self._visited: dict[tuple[int, int, State], list[int]] = {}
        self._stack = [self._advanced(0, 0, 0, model.initial)]

    def run(self) -> Verdict:
        """Search until an order is found, none is left, or the budget is spent."""
        if any(True for _ in self.final_states()):
            return Verdict.OK
        return Verdict.UNKNOWN if self.exhausted else Verdict.VIOLATION

    def final_states(self) -> Iterator[State]:
        """Yield the states the history can end in, until the budget is spent."""
        end = len(self._moments)
        while self._stack:
            configuration = self._stack.pop()
            if self._known(configuration):
                continue
            if configuration.moment == end:
                yield configuration.state
                continue
            if self.explored >= self._budget:
                self.exhausted = True
                return
            self.explored += 1
            self._stack.extend(self._successors(configuration))

    def _known(self, configuration: Configuration) -> bool:
        moment, happened, used, state = configuration
        visited = self._visited.setdefault((moment, happened, state), [])
        if any(not (fewer & ~used) for fewer in visited):
            return True
        visited.append(used)
        return False

    def _successors(self, configuration: Configuration) -> Iterator[Configuration]:
        """Yield what may come next, the most promising last."""
        moment, happened, used, state = configuration
        now = self._moments[moment]
        held = self._held_until(state) > now.ends_ns
        for pending in () if held else self._pending[: now.pending]:
            ready = not used & pending.bit and used & pending.twin == pending.twin
            after = pending.step.apply(state) if ready else IMPOSSIBLE
            if after is not IMPOSSIBLE and after != state:
                yield self._advanced(moment, happened, used | pending.bit, after)
        for one in now.observers if held else now.observers + now.changers:
            after = IMPOSSIBLE if happened & one.bit else one.step.apply(state)
            if after is not IMPOSSIBLE:
                yield self._advanced(moment, happened | one.bit, used, after)

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
