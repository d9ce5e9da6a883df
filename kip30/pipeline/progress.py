"""What a job says while it runs."""

from typing import NamedTuple, Protocol

from kip30.pipeline.manifest import Manifest


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


class Progress(Protocol):
    """Receives news of a job, on the thread that runs it."""

    def begin(self, manifest: Manifest) -> None:
        """Take note of a run that begins, or goes on."""
        ...

    def wave(self, done: WaveProgress) -> None:
        """Take note of a wave that ended."""
        ...

    def warn(self, text: str) -> None:
        """Take note of something that an operator should know."""
        ...


class NoProgress:
    """Says nothing."""

    def begin(self, manifest: Manifest) -> None:
        """Say nothing."""

    def wave(self, done: WaveProgress) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Say nothing."""
