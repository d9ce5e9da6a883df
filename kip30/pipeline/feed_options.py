"""The arguments of the job ``feed``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from kip30.driver import Capability
from kip30.driver.scanning import Layout
from kip30.errors import UsageError
from kip30.pipeline.endpoints import StoreEndpoint, require
from kip30.pipeline.manifest import MANIFEST_NAME
from kip30.pipeline.run_directory import read_manifest

JOB = "feed"
INTERVAL_SECONDS = 10.0
_SHORTEST_INTERVAL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """What to follow, and where to.

    Attributes:
        source: The part of a store.
        target: A store to keep equal to it; None: Parquet files in the folder of the run.
        out: The folder of the run.
        resume: Whether to continue the run in *out*.
        after: The folder of a snapshot or migration of *source*, whose position the feed begins
            at; None: everything that is there is the beginning of the feed. A run that is resumed
            no longer needs it.
        once: Whether to end at the position that the store has when the feed begins.
        interval: How many seconds there are from one reading of the store to the next.
        batch_seconds: How many seconds there are at least from one batch to the next; None: for
            files 60, so that a day has no more than 1,440, and for a store none.
        request_seconds: How long a request to *source* may take.
        max_delete: How many keys a scan of *source* may find deleted, else the feed stops before
            it deletes any; None: with a target a tenth of all, and at least 100. What a log of
            changes says is not limited.
        overwrite: Whether to replace and delete at *target* also what programs wrote there. Without
            it that is a conflict: it stays, and is named.
        rate: How many writes a second may go to *target*; None: as many as it takes.
        accept_stores: Stores that *source* and *target* may be from now on, as the errors name them
            that are raised if one is another store than before.
    """

    source: StoreEndpoint
    target: StoreEndpoint | None = None
    out: Path
    resume: bool = False
    after: Path | None = None
    once: bool = False
    interval: float = INTERVAL_SECONDS
    batch_seconds: float | None = None
    request_seconds: float | None = None
    max_delete: int | None = None
    overwrite: bool = False
    rate: float | None = None
    accept_stores: tuple[str, ...] = ()

    job: ClassVar[str] = JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result; `after` as it was when the run began."""
        after = resumed(self).after
        return {
            "source": self.source.text,
            "target": None if self.target is None else self.target.text,
            "after": None if after is None else str(after),
        }

    def check(self) -> None:
        """Raise if these contradict each other.

        Raises:
            UsageError: They do; the message says what to write.
            UnsupportedError: The source does not offer scanning, or the target no fencing.
            ConfigError: The configuration of a store is wrong.
        """
        if not self.interval >= _SHORTEST_INTERVAL:
            raise UsageError(
                f"an interval of {self.interval} s: give {_SHORTEST_INTERVAL:g} or more"
            )
        if self.max_delete is not None and self.max_delete < 0:
            raise UsageError(f"--max-delete {self.max_delete}: give 0 or more")
        require(self.source, Capability.SCANNING)
        if self.target is None:
            if self.overwrite or self.rate is not None:
                raise UsageError("--overwrite and --rate are of a feed into a store: name one")
            return
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"a rate of {self.rate} writes a second: give more than 0")
        require(self.target, Capability.FENCING)
        if not self.overwrite:
            require(self.target, Capability.COMPARE_AND_SET)
        if self.source.layout is not Layout.KIP30:
            raise UsageError(f"{self.source.text} is raw: a feed of it goes to files alone")
        if self.target.under:
            raise UsageError(f"{self.target.text}: keys keep their namespaces: leave out the '#'")
        source, target = self.source.config.resolve(), self.target.config.resolve()
        if _place(source) == _place(target):
            raise UsageError(f"{self.source.text} and {self.target.text} are the same store")


def resumed(options: FeedOptions) -> FeedOptions:
    """Return *options* completed by those that were given when the run began."""
    if options.after or not options.resume or not (options.out / MANIFEST_NAME).exists():
        return options
    after = read_manifest(options.out).arguments.get("after")
    return options if after is None else replace(options, after=Path(after))


def _place(resolved: Any) -> tuple[Any, ...]:
    return resolved.choice.backend, resolved.context.namespace, resolved.settings
