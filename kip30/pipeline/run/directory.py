"""The folder of a run: its lock, manifest and plan, and the files of its waves."""

import fcntl
import json
import os
import shutil
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from typing_extensions import override

from kip30 import __version__
from kip30.driver.closeable import Closeable
from kip30.driver.kit import fork_safety
from kip30.driver.scanning import Span
from kip30.errors import StoreError, UsageError
from kip30.pipeline.run.checksums import checksum, checksum_of
from kip30.pipeline.run.manifest import MANIFEST_NAME, DataFile, Manifest, Wave

_LOCK_NAME = "lock"
PLAN_NAME = "plan.jsonl"
SHARED = "the folder of a run must be on a file system that this machine and all workers share"
"""The advice if something is missing that workers have written."""
_LEFT_BY_A_BEGINNING = {_LOCK_NAME, f"{MANIFEST_NAME}.new"}
_UUID_TIME_BITS = 80


class RunDirectory(Closeable):
    """The folder of a run, locked until it is closed. One process uses it at a time.

    Its mode is 0700, because it holds all values.

    Attributes:
        path: The folder.
        manifest: What is known of the run; `save` makes changes last.
    """

    def __init__(
        self, path: Path, job: str, arguments: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        """Begin a run in *path*, or continue the one that is there.

        Args:
            path: The folder. It must not exist, or be empty, unless *resume* is given.
            job: The name of the job.
            arguments: What decides the result; a run is resumed with the same ones.
            resume: Whether to continue a run that stopped before its end.

        Raises:
            UsageError: The folder holds something else, or another process works in it, or
                there is nothing to resume, or the arguments differ. Nothing was changed.
        """
        self.path: Path = path.absolute()
        check_usable(path, job, arguments, resume=resume)
        self._lock = _entered(self.path, path)
        self._pid = os.getpid()
        fork_safety.register(self)
        try:
            if not resume:
                _check_unused(path)  # once more: another process may have begun and ended
            self.manifest: Manifest = (
                _resumed(self.path, job, arguments) if resume else _new_manifest(job, arguments)
            )
            self.save()
        except BaseException:
            self.close()
            raise

    @override
    def close(self) -> None:
        """Release the lock, unless this is a child of the process that has it. Idempotent."""
        if self._lock >= 0:
            if os.getpid() == self._pid:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Leave the lock to the parent process, and do not keep it if that ends."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def save(self) -> None:
        """Replace the manifest's file as a whole."""
        write_whole(self.path / MANIFEST_NAME, self.manifest.to_json())

    def save_plan(self, spans: Iterable[Span]) -> None:
        """Keep the plan for waves to come and for resumes."""
        lines = [json.dumps([b64encode(span.token).decode(), span.rows]) for span in spans]
        text = "".join(f"{line}\n" for line in lines)
        write_whole(self.path / PLAN_NAME, text)
        self.manifest.planned = len(lines)
        self.manifest.plan_checksum = checksum(text.encode())
        self.save()

    def plan(self) -> list[Span]:
        """Return the plan that was kept.

        Raises:
            StoreError: It cannot be read, or is not as it was.
        """
        return read_spans(self.path, self.manifest)

    def drop_damaged_waves(self) -> list[str]:
        """Remove from the manifest what must run again; return what is wrong with each."""
        damages = {wave.number: damage(self.path, wave) for wave in self.manifest.waves}
        self.manifest.waves = [wave for wave in self.manifest.waves if not damages[wave.number]]
        return list(filter(None, damages.values()))

    def wave_folder(self, kind: str, wave: int) -> Path:
        """Return the folder for files of *kind* of a wave, without files of earlier attempts."""
        folder = self.path / kind / f"wave={wave}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        return folder

    def files_in(self, folder: Path) -> tuple[DataFile, ...]:
        """Return the Parquet files of *folder*."""
        files = sorted(folder.glob("*.parquet"))
        return tuple(
            DataFile(str(one.relative_to(self.path)), one.stat().st_size, checksum_of(one))
            for one in files
        )


def check_usable(
    path: Path, job: str, arguments: Mapping[str, Any], *, resume: bool = False
) -> None:
    """Raise what `RunDirectory` would raise, and change nothing."""
    if not resume:
        _check_unused(path)
        return
    if not (path / MANIFEST_NAME).exists():
        raise UsageError(f"{path} holds no run to resume: leave out --resume")
    _resumed(path.absolute(), job, arguments)
    os.close(_locked(path / _LOCK_NAME, path))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in *folder*.

    Raises:
        UsageError: There is none.
        StoreError: It cannot be read, is damaged, or of another format.
    """
    file = folder / MANIFEST_NAME
    try:
        text = file.read_text()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder} has no {MANIFEST_NAME}: name the folder of a run, which --out named"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    return Manifest.of_json(text, str(file))


def read_spans(folder: Path, manifest: Manifest) -> list[Span]:
    """Return the spans of the plan of *manifest*, whose run is in *folder*.

    Raises:
        StoreError: It cannot be read, or is not as it was.
    """
    file = folder / PLAN_NAME
    try:
        text = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    if checksum(text) != manifest.plan_checksum:
        raise StoreError(f"{file} is not as it was written: its checksum differs")
    return [Span(b64decode(token), rows) for token, rows in map(json.loads, text.splitlines())]


def process_in(folder: Path) -> int | None:
    """Return the pid of the process that works in *folder*; None if none does."""
    try:
        with (folder / _LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int((folder / _LOCK_NAME).read_bytes().split()[0])
    except FileNotFoundError:
        return None
    return None


def check_files(folder: Path, manifest: Manifest) -> None:
    """Require that all files of *manifest* are in *folder*, and read none of them.

    Raises:
        StoreError: One is missing or has another size; the message names it and its wave.
    """
    for wave in manifest.waves:
        for file in wave.files:
            if wrong := _misfit(folder / file.name, file):
                raise StoreError(_of_wave(wave, folder / file.name, wrong))


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Read all files of *manifest* in *folder*, and require that they are as they were written.

    Raises:
        StoreError: One is missing or was changed; the message names it and its wave.
    """
    for wave in manifest.waves:
        if wrong := damage(folder, wave):
            raise StoreError(wrong)


def damage(folder: Path, wave: Wave) -> str:
    """Return which file of *wave* is not in *folder* as it was written; empty if all are."""
    return next(filter(None, (file_damage(folder, wave, file) for file in wave.files)), "")


def file_damage(folder: Path, wave: Wave, file: DataFile) -> str:
    """Return how *file*, of *wave*, differs from what was written; empty if it does not."""
    path = folder / file.name
    wrong = _misfit(path, file)
    if not wrong:
        try:
            wrong = "" if checksum_of(path) == file.checksum else "is not as it was written"
        except OSError as error:
            wrong = f"cannot be read: {error.strerror}"
    return wrong and _of_wave(wave, path, wrong)


def _misfit(path: Path, file: DataFile) -> str:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if size == file.size else f"has {size} bytes instead of {file.size}"


def _of_wave(wave: Wave, path: Path, wrong: str) -> str:
    return f"{path}, of wave {wave.number}, {wrong}"


def write_whole(file: Path, text: str) -> None:
    """Replace *file* with *text*, in such a way that a crash leaves the old or the new content."""
    temporary = file.with_name(f"{file.name}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    temporary.replace(file)
    sync(file.parent)


def sync(path: Path) -> None:
    """Make what was written to a file, or the names in a folder, survive a crash of the machine."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folder(folder: Path) -> None:
    """Make the files of *folder*, their names and its own survive a crash of the machine."""
    for path in (*folder.iterdir(), folder, folder.parent):
        sync(path)


def _resumed(path: Path, job: str, arguments: Mapping[str, Any]) -> Manifest:
    manifest = read_manifest(path)
    if manifest.job != job:
        raise UsageError(f"{path} is a run of {manifest.job}: name another folder")
    if manifest.done:
        raise UsageError(f"{path} is done: there is nothing to resume")
    wanted = json.loads(json.dumps(dict(arguments)))
    for name in sorted(wanted.keys() | manifest.arguments.keys()):
        before, now = manifest.arguments.get(name), wanted.get(name)
        if before != now:
            raise UsageError(
                f"--resume takes the same arguments: {name} was {before!r} and is {now!r}"
            )
    return manifest


def _check_unused(path: Path) -> None:
    if (path / MANIFEST_NAME).exists():
        manifest = read_manifest(path)
        state = "done" if manifest.done else "not done: --resume continues it"
        raise UsageError(
            f"{path} holds the run {manifest.run} of {manifest.job}, which is {state};"
            " or name another folder"
        )
    try:
        # A process that was killed before its first manifest was in place leaves these.
        others = path.exists() and {one.name for one in path.iterdir()} - _LEFT_BY_A_BEGINNING
    except OSError as error:  # such as a file
        raise UsageError(f"{path} cannot be the folder of a run: {error}") from error
    if others:
        raise UsageError(f"{path} exists and is not a run of kip30: name another folder")


def _entered(folder: Path, shown: Path) -> int:
    """Make *folder*, and lock it against other processes; return the lock."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        return _locked(folder / _LOCK_NAME, shown)
    except OSError as error:
        raise UsageError(f"{shown} cannot be the folder of a run: {error}") from error


def _locked(file: Path, shown: Path) -> int:
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(lock, 20).decode(errors="replace").strip()
        os.close(lock)
        raise UsageError(f"another process works in {shown}: its pid is {pid}") from None
    except OSError:
        os.close(lock)
        raise
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def _new_manifest(job: str, arguments: Mapping[str, Any]) -> Manifest:
    return Manifest(
        job=job,
        run=_new_run_id(),
        arguments=dict(arguments),
        created=time.time(),
        versions={
            "kip30": __version__,
            "spark": _installed("pyspark"),
            "python": sys.version.split()[0],
        },
    )


def _new_run_id() -> str:
    """Return a UUID of version 7 (RFC 9562): its first 48 bits are the time in milliseconds."""
    random = int.from_bytes(os.urandom(10)) & ~(0xF << 76) & ~(0b11 << 62)
    number = time.time_ns() // 1_000_000 << _UUID_TIME_BITS | 7 << 76 | 0b10 << 62 | random
    text = f"{number:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a zip file
        return ""
