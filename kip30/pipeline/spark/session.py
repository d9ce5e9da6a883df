"""The one place that builds a session of Spark."""

import os
import shlex
import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kip30.driver.kit.interpreter import interpreter
from kip30.errors import UsageError
from kip30.pipeline.run.job_errors import JobFailedError
from kip30.pipeline.spark import worker_daemon
from kip30.pipeline.spark.class_archive import options_of_archive
from kip30.pipeline.spark.connect_session import open_remote
from kip30.pipeline.spark.data_source import Kip30DataSource
from kip30.pipeline.spark.errors import is_of_spark, translated
from kip30.pipeline.spark.settings import MASTER, settings_in
from kip30.pipeline.spark.tasks import context_of

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which then has decided on the master."""

_NAME = "kip30"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""Arguments that PySpark adds to its call of spark-submit, which starts the JVM."""
_PROPERTIES_FILE = "--properties-file"

_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's pool by default, mimalloc, keeps more of what is freed than that of the system, and Spark
keeps its workers from one job to the next."""

_DEFAULTS = {
    "spark.app.name": _NAME,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # By rows alone a batch of 10,000 values of 250 KB has 2.5 GB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024),
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key|store|config",
    "spark.python.worker.faulthandler.enabled": "true",
    **({} if _POOL in os.environ else {f"spark.executorEnv.{_POOL}": "system"}),
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_DAEMON = "spark.python.daemon.module"
_TASK_ATTEMPTS = 3
_LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of a local master: Python has most of the work, and a job ends before better code has paid."""
_END_SECONDS = 20.0
_PARTITIONS = "spark.sql.shuffle.partitions"
ROWS_OF_PARTITION = 250_000
"""So many keys with versions and digests have about 20 MB."""

_NOTICE_SECONDS = 1.0
"""Seconds that a process may take to end after its connections are gone."""

_OUT_OF_MEMORY = 52
"""Spark's exit code (`SparkExitCode.OOM`)."""


@contextmanager
def running_session(
    master: str | None = None,
    *,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    properties_file: Path | None = None,
    end_seconds: float = _END_SECONDS,
) -> Generator[SparkSession]:
    """Open a session for the duration of a with-block, for a program of one job.

    It has no data source ``kip30``, which jobs do not need (`register`). Whatever ends the block,
    Ctrl-C included, jobs that still run are cancelled, and no process of the session is left. A
    session that this process has already is used, and stays as it is.

    Args:
        master: As for `open_session`.
        remote: As for `open_session`.
        conf: As for `open_session`.
        properties_file: As for `open_session`.
        end_seconds: How long the JVM may take to end.

    Raises as `open_session`.
    """
    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    before = signal.getsignal(signal.SIGINT) if _is_main_thread() else None
    session = _opened(master, remote, conf, properties_file)
    if before is not None:
        # Spark's own handler calls the JVM in the middle of the code that it has interrupted.
        signal.signal(signal.SIGINT, before)
    try:
        yield session
    finally:
        # A call that was interrupted leaves its answer in this thread's connection to the JVM.
        closer = threading.Thread(
            target=close_session, args=(session, end_seconds), name="kip30-spark-close"
        )
        closer.start()
        closer.join()


def close_session(session: SparkSession, seconds: float = _END_SECONDS) -> None:
    """Cancel what runs in *session*, stop it, and end its JVM if this process has started it.

    The JVM is killed if it has not ended after *seconds*.
    """
    with suppress(Exception):
        _quieten(session.sparkContext)
    with suppress(Exception):
        session.sparkContext.cancelAllJobs()
    with suppress(Exception):
        session.stop()
    _end_jvm(seconds)


def _end_jvm(seconds: float) -> None:
    gateway: Any = getattr(SparkContext, "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()  # which ends the JVM
    try:
        process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()
    context: Any = SparkContext
    context._gateway = None  # noqa: SLF001  a later session starts another JVM
    context._jvm = None  # noqa: SLF001


def java_process() -> "Popen[bytes]":
    """Return the JVM that this process has started for its session."""
    context: Any = SparkContext
    process: Popen[bytes] = context._gateway.proc  # noqa: SLF001
    return process


def why_ended() -> str:
    """Return why Spark's JVM has ended; empty if it runs, or this process did not start it."""
    with suppress(Exception):
        gateway: Any = getattr(SparkContext, "_gateway", None)
        try:
            code: int = gateway.proc.wait(_NOTICE_SECONDS)
        except TimeoutExpired:
            return ""
        return f"Spark's process ended: {_end_of(code)}"
    return ""


def _end_of(code: int) -> str:
    if code == _OUT_OF_MEMORY:
        return "it had too little memory; --conf spark.driver.memory=2g gives it more"
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name}; the kernel may have lacked memory" if name == "SIGKILL" else name
    return f"status {code}"


def _quieten(context: Any) -> None:
    """Drop what Spark's receiver of counts prints if the JVM hangs up before it is asked to end."""

    def say_nothing(*_request: object) -> None:
        """Log nothing about a connection that ended."""

    context._accumulatorServer.handle_error = say_nothing  # noqa: SLF001


def open_session(
    master: str | None = None,
    *,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    properties_file: Path | None = None,
) -> SparkSession:
    """Return a session with the data source ``kip30``, for programs; the caller stops it.

    Args:
        master: Spark's master, else that of *conf* or of the file; all cores of this machine if
            none is given, unless spark-submit has chosen one.
        remote: The address of a Spark Connect server in place of a master, which has settings of
            its own.
        conf: Settings of Spark's over those of the file.
        properties_file: A file with settings, as spark-submit reads it, over those that kip30
            chooses, and in place of ``spark-defaults.conf``.

    Raises:
        UsageError: *remote* is no address, a package that it needs is missing, or the file has a
            line that is no setting of Spark's, or the environment names another one.
        ConfigError: The file cannot be read. As with all others of these, no session was opened.
        JobFailedError: Spark has not started. What its JVM printed is on stderr.
        UnavailableError: There is no server at *remote*.
        UnsupportedError: There is no Python to start workers with.
    """
    session = _opened(master, remote, conf, properties_file)
    register(session)
    return session


def _opened(
    master: str | None,
    remote: str | None,
    conf: Mapping[str, str] | None,
    properties_file: Path | None,
) -> SparkSession:
    if remote is not None:
        return open_remote(SparkSession.builder.appName(_NAME), remote)
    try:
        session = _open_here(master, conf or {}, properties_file)
        session.sparkContext.setLogLevel("ERROR")
    except Exception as error:
        if not is_of_spark(error):
            raise
        reason = why_ended() or str(translated(error))
        _end_jvm(_END_SECONDS)
        raise JobFailedError(f"Spark has not started: {reason}") from error
    return session


def _open_here(master: str | None, conf: Mapping[str, str], file: Path | None) -> SparkSession:
    in_file = {} if file is None else settings_in(file)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if variable not in os.environ:
            os.environ[variable] = interpreter()
    master = master or conf.get(MASTER) or in_file.get(MASTER)
    if master is None and _SUBMITTED not in os.environ:
        master = "local[*]"
    chosen = {**_DEFAULTS, **_for_master(master)}
    kept = {key: value for key, value in chosen.items() if key not in in_file}
    settings = {**kept, **conf}
    if master is not None:
        settings[MASTER] = _with_retries(master)
    if file is None:
        return _built(settings)
    if has_jvm():
        return _built({**in_file, **settings})
    with _read_by_spark(file):
        return _built(settings)


def _built(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _read_by_spark(file: Path) -> Generator[None]:
    """Let a JVM that starts in the block read *file*.

    Settings that are handed to the JVM are arguments of its process, which other users can see; a
    file may have a password of Spark's.

    Raises:
        UsageError: The environment names another file, which Spark would read in place of this one.
    """
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    if before and _names_a_file(before):
        raise UsageError(
            f"{_SUBMIT_ARGUMENTS} names a {_PROPERTIES_FILE} too, and Spark reads one:"
            " leave out either"
        )
    words = f"{_PROPERTIES_FILE} {shlex.quote(str(file.absolute()))}"
    os.environ[_SUBMIT_ARGUMENTS] = f"{words} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SUBMIT_ARGUMENTS]
        else:
            os.environ[_SUBMIT_ARGUMENTS] = before


def _names_a_file(arguments: str) -> bool:
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"{_SUBMIT_ARGUMENTS} is not written as a shell does: {error}") from error
    return any(word.partition("=")[0] == _PROPERTIES_FILE for word in words)


def has_jvm() -> bool:
    """Return whether this process has a JVM, which has read its files of settings."""
    return _SUBMITTED in os.environ or getattr(SparkContext, "_gateway", None) is not None


def submitted_master() -> str | None:
    """Return the master that spark-submit was given; None if it did not start this process."""
    if _SUBMITTED not in os.environ:
        return None
    context: Any = SparkContext
    context._ensure_initialized()  # noqa: SLF001  connects to the JVM that is there
    return SparkConf().get("spark.master")


@contextmanager
def shuffling(session: SparkSession, rows: int) -> Generator[None]:
    """Let exchanges of *rows* small rows in the block have as many partitions as that needs."""
    before = session.conf.get(_PARTITIONS)
    session.conf.set(_PARTITIONS, str(max(1, -(-rows // ROWS_OF_PARTITION))))
    try:
        yield
    finally:
        session.conf.set(_PARTITIONS, before or "")


def register(session: SparkSession) -> None:
    """Make the data source ``kip30`` known to *session*, for notebooks.

    Spark starts a process of Python twice for that, to look for data sources of other packages.
    """
    session.dataSource.register(Kip30DataSource)


def slots(session: SparkSession) -> int:
    """Return how many tasks *session* runs at a time."""
    context = context_of(session)
    if context is None:
        return int(session.conf.get("spark.sql.shuffle.partitions", "2") or "2")
    return max(1, context.defaultParallelism)


def is_local(master: str | None) -> bool:
    """Return whether workers of *master* share files and network with this process."""
    return master is None or master.startswith("local")


def _for_master(master: str | None) -> dict[str, str]:
    if master is None:
        return {}
    if not is_local(master):
        return {JAVA_OPTIONS: quiet} if (quiet := _quiet()) else {}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    daemon = {_DAEMON: worker_daemon.__name__} if _has_pyspark_for_workers() else {}
    java = f"{local_java()} {options_of_archive()}".rstrip()
    return {**_LOCAL, **daemon, JAVA_OPTIONS: java}


def _has_pyspark_for_workers() -> bool:
    """Return whether workers of a local master can import the PySpark of this process."""
    is_installed = Path(pyspark.__file__).exists() and Path(worker_daemon.__file__).exists()
    return is_installed and os.environ.get("PYSPARK_PYTHON") == interpreter() and not has_jvm()


def local_java() -> str:
    """Return the options of Java of a local master, without those of an archive of classes."""
    return f"{_LOCAL_JAVA} {_quiet()}".rstrip()


def _quiet() -> str:
    return f"-Dlog4j2.configurationFile={_LOGGING}" if _LOGGING.exists() else ""


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _with_retries(master: str) -> str:
    """Let failed tasks be tried again, which Spark does on a local master only if it says so."""
    if master == "local":
        return f"local[1,{_TASK_ATTEMPTS}]"
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},{_TASK_ATTEMPTS}]"
    return master
