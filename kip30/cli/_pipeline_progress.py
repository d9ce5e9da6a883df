"""Shows the progress of a job of the pipeline while it runs."""

import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from typing_extensions import override

from kip30.cli import _output
from kip30.cli._failures import say
from kip30.cli._output import Output
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.run.progress import FeedProgress, Progress, WaveProgress

_MEGABYTE = 1_000_000


def shown(output: Output) -> AbstractContextManager[Progress]:
    """Return how progress is shown: objects, a bar on a terminal, else lines on stderr."""
    if output.is_objects:
        return nullcontext(ObjectProgress(output))
    if sys.stderr.isatty():
        return BarProgress()
    return nullcontext(LineProgress())


class LineProgress:
    """A line on stderr for each wave, and for each batch of a feed."""

    _changes = -1
    """Number of changes that the last line about a feed named."""

    def begin(self, manifest: Manifest) -> None:
        """Print what is planned."""
        say(f"{manifest.job} {manifest.run}: {_planned(manifest)}")

    def wave(self, done: WaveProgress) -> None:
        """Print what is done, how fast, and how long the rest takes."""
        say(f"{done.spans}/{done.planned} spans, {_speed(done)}, {_left(done)}")

    def feed(self, state: FeedProgress) -> None:
        """Print how far behind the store a feed is, if that has changed."""
        if state.waiting or state.changes != self._changes:
            self._changes = state.changes
            say(_lag(state))

    def warn(self, text: str) -> None:
        """Print the warning."""
        say(f"warning: {text}")


class ObjectProgress(LineProgress):
    """An object on stdout for each wave; the rest is on stderr as it is elsewhere."""

    def __init__(self, output: Output) -> None:
        """Print to *output*."""
        self._output = output

    @override
    def begin(self, manifest: Manifest) -> None:
        """Say nothing."""

    @override
    def wave(self, done: WaveProgress) -> None:
        """Print the wave."""
        self._output.record({**done._asdict(), "rows_per_second": round(_rate(done), 1)})

    @override
    def feed(self, state: FeedProgress) -> None:
        """Print how far the feed is."""
        self._output.record({**state._asdict(), "seconds": round(state.seconds, 3)})


class BarProgress(LineProgress):
    """A bar on the terminal that stderr is."""

    def __init__(self) -> None:
        """Show nothing yet."""
        from rich import progress  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415  slow to import

        # Rich by itself takes $COLUMNS as it is, and draws nothing if that is 0.
        width = shutil.get_terminal_size().columns if os.environ.get("COLUMNS") == "0" else None
        console = Console(stderr=True, width=width)
        name = progress.TextColumn("{task.description}")
        text = progress.TextColumn("{task.fields[spans]} {task.fields[speed]}")
        columns = (name, progress.BarColumn(), progress.TimeElapsedColumn(), text)
        self._bar: Any = progress.Progress(*columns, console=console)
        self._task: Any = None

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the last state on the terminal."""
        self._bar.stop()

    @override
    def begin(self, manifest: Manifest) -> None:
        """Draw how much there is."""
        self._task = self._bar.add_task(
            manifest.job,
            total=manifest.planned,
            completed=len(manifest.finished_spans),
            spans="",
            speed="",
        )

    @override
    def wave(self, done: WaveProgress) -> None:
        """Draw what is done."""
        speed = f"{_speed(done)}, {_left(done)}"
        if self._task is not None:
            spans = f"{done.spans}/{done.planned} spans"
            self._bar.update(
                self._task, total=done.planned, completed=done.spans, spans=spans, speed=speed
            )

    @override
    def feed(self, state: FeedProgress) -> None:
        """Draw how far behind the store the feed is."""
        if self._task is not None:
            self._bar.update(self._task, total=None, completed=state.changes, speed=_lag(state))

    @override
    def warn(self, text: str) -> None:
        """Print the warning above the bar."""
        line = _output.escaped(f"kip30: warning: {text}")
        self._bar.console.print(line, markup=False, highlight=False)


def _planned(manifest: Manifest) -> str:
    finished = len(manifest.finished_spans)
    if finished:
        return f"continues, {finished} of {manifest.planned} spans are done"
    return "begins" if manifest.planned is None else f"begins, {manifest.planned} spans"


def _lag(state: FeedProgress) -> str:
    return f"{state.changes} changes applied, {state.waiting} waiting, {state.seconds:.1f} s behind"


def _rate(done: WaveProgress) -> float:
    return done.rows / max(done.seconds, 0.001)


def _speed(done: WaveProgress) -> str:
    size = done.size / max(done.seconds, 0.001) / _MEGABYTE
    return f"{_rate(done):,.0f} rows/s, {size:,.1f} MB/s"


def _left(done: WaveProgress) -> str:
    minutes, seconds = divmod(round(done.seconds_left), 60)
    return f"{minutes}:{seconds:02} left"
