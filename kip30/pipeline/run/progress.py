"""The messages of a job while it runs."""

from typing import NamedTuple, Protocol

from kip30.pipeline.run.manifest import Manifest


class WaveProgress(NamedTuple):
    """A wave that ended.

    Attributes:
        wave: Its number.
        spans: How many spans are done, in all.
        planned: How many there are.
        rows: How many rows the wave had.
        size: How many bytes the wave's files have.
        seconds: How long it took.
        seconds_left: About how long the rest takes.
    """

    wave: int
    spans: int
    planned: int
    rows: int
    size: int
    seconds: float
    seconds_left: float


class FeedProgress(NamedTuple):
    """Progress of a feed.

    Attributes:
        changes: How many rows of its journal are applied, in all.
        waiting: How many were read from the store and are not applied.
        seconds: How old the state of the store is that the applied rows reach.
        gaps: How many times changes were missed and the states compared.
    """

    changes: int
    waiting: int
    seconds: float
    gaps: int


class Progress(Protocol):
    """Receives news of a job, on the thread that runs it."""

    def begin(self, manifest: Manifest) -> None:
        """Note that a run begins or continues."""
        ...

    def wave(self, done: WaveProgress) -> None:
        """Note that a wave ended."""
        ...

    def feed(self, state: FeedProgress) -> None:
        """Note the progress of a feed."""
        ...

    def warn(self, text: str) -> None:
        """Note something that an operator should know. Any thread may call this."""
        ...


class NoProgress:
    """Says nothing."""

    def begin(self, manifest: Manifest) -> None:
        """Say nothing."""

    def wave(self, done: WaveProgress) -> None:
        """Say nothing."""

    def feed(self, state: FeedProgress) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Say nothing."""
