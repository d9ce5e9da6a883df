"""Preparing a machine for small jobs: the archive of classes that their JVM starts with."""

import errno
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import SparkSession

from kip30.codecs import BYTES
from kip30.errors import StoreError, UsageError
from kip30.locator import PluginLocator
from kip30.pipeline.compare import diff
from kip30.pipeline.compare.diff import DiffOptions
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.spark.class_archive import (
    archive_folder,
    archive_name,
    finish,
    options_of_writing,
)
from kip30.pipeline.spark.session import (
    JAVA_OPTIONS,
    has_jvm,
    java_process,
    local_java,
    running_session,
)
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.pipeline.transfer.restore_and_migrate import RestoreOptions
from kip30.pipeline.transfer.snapshot import SnapshotOptions

_WRITING_SECONDS = 900.0
"""Java takes about 25 s of CPU time for it."""
_KEYS = 10


class Prepared(NamedTuple):
    """An archive that was written.

    Attributes:
        file: Where it is.
        bytes: Its size.
        seconds: How long it took.
    """

    file: Path
    bytes: int
    seconds: float


def prepare() -> Prepared:
    """Write the archive for the Spark and the Java that are here, in place of an earlier one.

    Small jobs on a store of the embedded backend, in a temporary folder, load the classes.

    Raises:
        UsageError: This process has a JVM already, such as spark-submit's.
        ConfigError: No folder can have the archive, or versions are not known.
        OSError: The folder or the archive cannot be written, such as for lack of space.
        StoreError: A job ended otherwise than it should. As with all others of these, an earlier
            archive stays as it is.
    """
    if has_jvm():
        raise UsageError("Java runs already, and writes an archive only if it starts for that")
    begun = time.monotonic()
    folder, name = archive_folder(), archive_name()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    with TemporaryDirectory(dir=folder, prefix="writing-") as here:
        written = Path(here, name)
        _write(written)
        finish(written)
        size = written.stat().st_size
        written.replace(folder / name)
    return Prepared(folder / name, size, time.monotonic() - begun)


def _write(file: Path) -> None:
    conf = {JAVA_OPTIONS: f"{local_java()} {options_of_writing(file)}"}
    with (
        TemporaryDirectory(prefix="kip30-prepare-") as stores,
        ExitStack() as at_end,  # an interrupt may come while Java writes
        running_session("local[*]", conf=conf, end_seconds=_WRITING_SECONDS) as session,
    ):
        java = java_process()
        at_end.callback(java.kill)
        with _killing(java):
            _run_jobs(session, Path(stores))
    if java.returncode or not file.exists():
        raise OSError(
            errno.EIO,
            f"Java wrote no archive and ended with status {java.returncode}: see what it printed;"
            " it needs space on the disk, and a Spark without a folder of settings",
        )


@contextmanager
def _killing(java: "Popen[bytes]") -> Generator[None]:
    """End *java* at once if the block fails: it would write an archive that is not wanted."""
    try:
        yield
    except BaseException:
        java.kill()
        raise


def _run_jobs(session: SparkSession, folder: Path) -> None:
    """Load the classes that jobs use: those of small ones, and those that plan queries."""
    left, right = (_store(folder, name) for name in ("left", "right"))
    with PluginLocator().startup(folder / "left.properties") as locator:
        locator.storage(BYTES).put_many({f"n/k{number}": b"v" for number in range(_KEYS)})
    taken = SnapshotEndpoint("snapshot", folder / "snapshot", "")
    _done(snapshot.run(session, SnapshotOptions(source=left, out=taken.folder)))
    restored = RestoreOptions(source=taken, target=right, out=folder / "restore")
    _done(restore_and_migrate.run(session, restored))
    for name, full in (("small", False), ("full", True)):
        _done(diff.run(session, DiffOptions(left=left, right=right, out=folder / name, full=full)))


def _store(folder: Path, name: str) -> StoreEndpoint:
    file = folder / f"{name}.properties"
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": str(folder / name)}
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return store_endpoint(parse_endpoint(str(file)))


def _done(report: Report) -> None:
    if report.ending is not JobEnding.DONE:
        raise StoreError(
            f"a {report.job} for the archive is {report.ending.value}: {report.reason}"
        )
