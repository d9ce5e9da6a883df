"""The base of the promises that every run must keep, and their view of a run."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, NamedTuple, Protocol

from typing_extensions import override

from kip30 import Fence
from kip30.driver.records import Entry, Kind
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.operator_program import DirectiveHistory
from kip30_conformance.simulation.plan import RunPlan
from kip30_conformance.simulation.programs import ClientProgram, Event
from kip30_conformance.simulation.storage_program import CallHistory


class Failure(NamedTuple):
    """A promise that was broken.

    Attributes:
        promise: Its id, such as ``D02``; ``error`` for a failure that no promise is about.
        text: What was found.
        at: The virtual time, in seconds.
    """

    promise: str
    text: str
    at: float

    @override
    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.promise} at {self.at:.3f} s: {self.text}"


class World(Protocol):
    """A run as promises see it."""

    @property
    def plan(self) -> RunPlan:
        """Return the plan of the run."""
        ...

    @property
    def changed_at(self) -> Mapping[Table, float]:
        """Return when each table last changed."""
        ...

    @property
    def calm_since(self) -> float:
        """Return when the last fault ended, or will end."""
        ...

    @property
    def excused(self) -> AbstractSet[Fence]:
        """Return the terms that were ended on purpose: their leaders cannot know it."""
        ...

    @property
    def excused_sessions(self) -> AbstractSet[int]:
        """Return the sessions that were ended on purpose: their owners cannot know it."""
        ...

    @property
    def history(self) -> CallHistory:
        """Return the calls of all processes to storage."""
        ...

    @property
    def directives(self) -> DirectiveHistory:
        """Return the directives of all operators."""
        ...

    @property
    def programs(self) -> Sequence[ClientProgram]:
        """Return the present programs."""
        ...

    @property
    def now(self) -> float:
        """Return the virtual time."""
        ...

    def rows(self, kind: Kind, scope: str) -> Mapping[str, Entry]:
        """Return the entries of the store, by name."""
        ...

    def fail(self, promise: str, text: str) -> None:
        """Note that a promise was broken."""
        ...


class Promise:
    """One promise."""

    id: ClassVar[str]

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        self.world = world

    def broken(self, text: str) -> None:
        """Note that this is broken."""
        self.world.fail(self.id, text)

    def expires(self, session: int) -> None:
        """Judge that *session* is about to end in the store, because it was not renewed."""

    def granted(self, table: Table, name: str, entry: Entry) -> None:
        """Judge that the store is about to grant *entry* to *name* in *table*."""

    def heard(self, program: ClientProgram, event: Event) -> None:
        """Judge that a callback of *program* is called."""

    def watched(self) -> None:
        """Judge the present state; called four times a second."""

    def settled(self) -> None:
        """Judge the end: there have been no faults for long, and all have resigned."""
