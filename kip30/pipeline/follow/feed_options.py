"""The arguments of the job ``feed``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from kip30.driver import Capability
from kip30.driver.scanning import Layout
from kip30.errors import UsageError
from kip30.names import check_namespace
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import FEED_JOB, MANIFEST_NAME
from kip30.pipeline.stores.endpoints import StoreEndpoint, require
from kip30.pipeline.stores.same_store import is_same_store, shows_store

INTERVAL_SECONDS = 10.0
_SHORTEST_INTERVAL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """Arguments of the job ``feed``.

    Attributes:
        source: The part of a store.
        into: The namespace below which the records of a raw *source* become keys; None: they are
            written as they are, which a store does not take.
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
        max_delete: How many keys a scan of *source* may find deleted, else the feed stops before it
            deletes any; None: with a target a tenth of those that it knows when the scan begins,
            and at least 100. What a log of changes says is not limited.
        overwrite: Whether to replace and delete at *target* also what programs wrote there. Without
            it that is a conflict: the record stays, and is reported.
        rate: How many writes a second may go to *target*; None: as many as it takes.
        accept_stores: Stores that *source* and *target* may be from now on, as the errors name them
            that are raised if one is another store than before.
    """

    source: StoreEndpoint
    into: str | None = None
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

    job: ClassVar[str] = FEED_JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result; `after` as it was when the run began."""
        after = resumed(self).after
        return {
            "source": self.source.text,
            "into": self.into,
            "target": None if self.target is None else self.target.text,
            "after": None if after is None else str(after),
        }

    @property
    def layout(self) -> Layout:
        """The layout of the keys in the feed."""
        return self.source.layout if self.into is None else Layout.KIP30

    def check(self) -> None:
        """Raise if these contradict each other.

        Raises:
            UsageError: They do; the message says what to write.
            UnsupportedError: The source does not offer scanning, or the target no fencing, or no
                compare-and-set unless *overwrite* is given.
            InvalidNameError: *into* cannot be a namespace.
            ConfigError: The configuration of a store is wrong.
        """
        if not self.interval >= _SHORTEST_INTERVAL:
            raise UsageError(
                f"an interval of {self.interval} s: give {_SHORTEST_INTERVAL:g} or more"
            )
        if self.max_delete is not None and self.max_delete < 0:
            raise UsageError(f"--max-delete {self.max_delete}: give 0 or more")
        require(self.source, Capability.SCANNING)
        if self.into is not None:
            check_namespace(self.into)
            if self.source.layout is not Layout.RAW:
                raise UsageError(f"--into maps what is raw: {self.source.text} is not")
        if self.target is not None:
            self._check_target(self.target)
        elif self.overwrite or self.rate is not None:
            raise UsageError("--overwrite and --rate are of a feed into a store: name one")

    def _check_target(self, target: StoreEndpoint) -> None:
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"a rate of {self.rate} writes a second: give more than 0")
        require(target, Capability.FENCING)
        if not self.overwrite:
            require(target, Capability.COMPARE_AND_SET)
        if self.layout is not Layout.KIP30:
            raise UsageError(f"{self.source.text} is raw: name the namespace of its keys by --into")
        if target.under:
            raise UsageError(f"{target.text}: keys keep their namespaces: leave out the '#'")
        if self._feeds_itself(target):
            raise UsageError(f"{self.source.text} and {target.text} are the same store")

    def _feeds_itself(self, target: StoreEndpoint) -> bool:
        """Return whether the feed would read its own writes."""
        source = self.source
        if self.into is None:
            return is_same_store(source.config, target.config)
        return shows_store(source.config, source.under, target.config)


def resumed(options: FeedOptions) -> FeedOptions:
    """Return *options* completed by those that were given when the run began."""
    if options.after or not options.resume or not (options.out / MANIFEST_NAME).exists():
        return options
    after = read_manifest(options.out).arguments.get("after")
    return options if after is None else replace(options, after=Path(after))
