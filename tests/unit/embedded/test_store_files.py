"""Files of a store that are removed, replaced or cut short while it is in use."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

from kip30 import Kip30Error, PluginLocator
from kip30.driver import Backend
from kip30.driver.records import Claim, Condition, Write
from kip30.errors import OutcomeUnknownError, StoreError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded import liveness_locks
from kip30_conformance.polling import time_scale

DATABASE = "kip30.db"
COMPANIONS = ("kip30.db-wal", "kip30.db-shm")
USER = Path(__file__).with_name("store_user.py")


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    shutil.copy2(file, file.with_suffix(".copy"))
    file.with_suffix(".copy").replace(file)


def cut_short(file: Path) -> None:
    os.truncate(file, 0)


def put(backend: Backend, name: str) -> None:
    backend.storage.write(Write(Key("n", name), "nonce", b"v" * 500, Condition.ANY)).result()


def claimed(backend: Backend, candidate: str) -> bool:
    return isinstance(backend.election.claim("s", candidate, candidate, b"").result(), Claim)


@pytest.mark.parametrize("harm", [removed, replaced])
@pytest.mark.parametrize("name", [DATABASE, *COMPANIONS])
def test_a_file_that_is_removed_or_replaced_ends_writes_reads_and_session(
    open_backend: Any,
    directory: Path,
    eventually: Any,
    name: str,
    harm: Callable[[Path], None],
) -> None:
    backend = open_backend(session=60)
    put(backend, "k")
    lease = backend.membership.claim("g", "me", "n", b"").result().lease
    harm(directory / name)
    with pytest.raises(StoreError, match=rf"{name} was replaced or removed while it was open"):
        put(backend, "k")
    eventually(lambda: not lease.is_valid())

    def is_refused() -> bool:
        try:
            backend.storage.read([Key("n", "k")]).result()
        except StoreError:
            return True
        return False

    eventually(is_refused)


def test_a_thread_that_connects_later_sees_what_was_removed_before(
    open_backend: Any, directory: Path
) -> None:
    first = open_backend()
    put(first, "k")
    (directory / "kip30.db-shm").unlink()
    with pytest.raises(StoreError, match=r"kip30\.db-shm was replaced or removed"):
        put(open_backend(), "k")


def test_a_log_that_is_cut_short_is_noticed_by_the_next_write(
    open_backend: Any, directory: Path
) -> None:
    backend = open_backend()
    for number in range(50):
        put(backend, f"{number}")
    cut_short(directory / "kip30.db-wal")
    with pytest.raises((StoreError, OutcomeUnknownError)):
        put(backend, "k")


def test_a_log_that_a_program_copied_back_and_cut_is_no_loss(
    open_backend: Any, directory: Path
) -> None:
    backend = open_backend()
    put(backend, "k")
    with closing(sqlite3.connect(directory / DATABASE)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert not (directory / "kip30.db-wal").stat().st_size
    put(backend, "another")


@pytest.mark.parametrize("harm", [removed, replaced])
@pytest.mark.parametrize("locks", ["ofd", "record"])
def test_a_session_without_its_lock_file_lasts_until_its_client_knows(
    open_backend: Any, directory: Path, eventually: Any, harm: Callable[[Path], None], locks: str
) -> None:
    mine, other = open_backend(session=60, liveness=locks), open_backend(session=60, liveness=locks)
    assert claimed(mine, "me")
    session = mine._resources.sessions.session
    harm(next((directory / "sessions").iterdir()))
    is_granted = claimed(other, "other")
    assert not (is_granted and session.lease.is_valid())
    eventually(lambda: not session.lease.is_valid())
    eventually(lambda: claimed(other, "other"))


@pytest.mark.parametrize("harm", [removed, replaced])
def test_a_session_without_its_lock_file_is_ended_later_if_another_program_was_writing(
    open_backend: Any,
    directory: Path,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path], None],
) -> None:
    mine, other = (open_backend(session=600, operation=0.2) for _ in range(2))
    assert claimed(mine, "me")
    sessions = mine._resources.sessions
    session = sessions.session
    retried, retry = list[float](), sessions._ends.retry

    def noted(patience_seconds: float) -> None:
        retried.append(patience_seconds)
        retry(patience_seconds)

    with closing(sqlite3.connect(directory / DATABASE, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        harm(next((directory / "sessions").iterdir()))
        eventually(lambda: session.file not in vars(liveness_locks)["_held"])  # it has given up
        assert not session.lease.is_valid()
        monkeypatch.setattr(sessions._ends, "retry", noted)
        eventually(lambda: len(retried) > 2)  # with no session that keeps the thread
        writer.execute("ROLLBACK")
    eventually(lambda: claimed(other, "other"))
    eventually(lambda: not sessions.has_work())


def test_the_thread_that_retries_an_end_stays_while_the_lease_ends(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    """A callback of the lease takes its time, and then another program is writing."""
    mine, other = (open_backend(session=600, operation=0.2) for _ in range(2))
    assert claimed(mine, "me")
    sessions, renewal = mine._resources.sessions, mine._resources.renewal
    session, goes_on, is_ending = sessions.session, threading.Event(), threading.Event()
    session.lease.on_end(is_ending.set)
    session.lease.on_end(lambda: goes_on.wait() and None)
    ending = threading.Thread(target=sessions.end, args=(session, "lost"))
    with closing(sqlite3.connect(directory / DATABASE, isolation_level=None)) as writer:
        ending.start()
        try:
            assert is_ending.wait(20)
            renewal.wake()
            assert sessions.has_work()
            writer.execute("BEGIN IMMEDIATE")
        finally:
            goes_on.set()
        ending.join()
        assert sessions.has_work()
        writer.execute("ROLLBACK")
    eventually(lambda: claimed(other, "other"))
    eventually(lambda: not sessions.has_work())


@pytest.mark.parametrize("harm", [removed, replaced])
def test_a_database_is_not_opened_before_the_sessions_of_the_former_one_have_ended(
    open_backend: Any, directory: Path, harm: Callable[[Path], None]
) -> None:
    lease = open_backend(session=60).membership.claim("g", "me", "n", b"").result().lease
    harm(directory / DATABASE)
    another = open_backend()
    assert not lease.is_valid()
    put(another, "k")


@pytest.mark.parametrize("harm", [removed, replaced])
def test_a_database_is_not_opened_beside_a_stopped_process_with_a_session_of_the_former_one(
    open_backend: Any, directory: Path, harm: Callable[[Path], None]
) -> None:
    with using(directory, "A") as (user,):
        user.signal(signal.SIGSTOP)
        harm(directory / DATABASE)
        with pytest.raises(UnavailableError, match="has a session of the former one: end that"):
            open_backend(operation=0.2)
        user.signal(signal.SIGCONT)
        put(open_backend(), "k")


def test_the_log_of_a_removed_database_is_kept_apart_from_the_new_one(
    directory: Path, open_backend: Any
) -> None:
    with using(directory, "A"):
        pass
    log = (directory / "kip30.db-wal").read_bytes()
    assert log
    (directory / DATABASE).unlink()
    assert open_backend().storage.list_names("k", "", 10).result().names == []
    assert (directory / "kip30.db-wal.former").read_bytes() == log


def is_locked(directory: Path) -> bool:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_the_directory_is_locked_as_long_as_the_store_is_open(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    first, second = open_backend(), open_backend()
    child = os.fork()
    if not child:
        signal.pause()
    try:
        assert is_locked(directory)
        first.close()
        assert is_locked(directory)
        second.close()
        eventually(lambda: not is_locked(directory))  # the child closes its descriptor first
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_write_succeeds_while_a_cleaner_locks_the_directory(
    open_backend: Any, directory: Path
) -> None:
    open_backend().close()
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        put(open_backend(operation=0.2), "k")
    finally:
        os.close(descriptor)


@pytest.mark.medium
@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="needs systemd-tmpfiles")
def test_systemd_tmpfiles_leaves_an_open_store_alone(
    open_backend: Any, tmp_path: Path, eventually: Any
) -> None:
    base = tmp_path / "aged"
    base.mkdir()
    rules = tmp_path / "rules.conf"
    rules.write_text(f"d {base} 0755 - - 1s\n")
    backend = open_backend(directory=base / "kip30")
    assert claimed(backend, "me")
    before = sorted(base.rglob("*"))
    (base / "unused").mkdir()
    (base / "unused" / "file").touch()

    def has_aged() -> bool:
        subprocess.run(["systemd-tmpfiles", "--clean", str(rules)], check=False)
        return not (base / "unused" / "file").exists()

    eventually(has_aged)
    assert sorted(base.rglob("*.*")) == sorted(file for file in before if file.suffix)


@pytest.mark.medium
def test_a_copy_beside_the_log_of_a_crashed_store_is_refused_and_left_whole(
    open_backend: Any, directory: Path, tmp_path: Path
) -> None:
    backend = open_backend()
    for number in range(300):
        put(backend, f"{number}")
    copy, crashed = tmp_path / "copy", tmp_path / "crashed"
    with closing(sqlite3.connect(directory / DATABASE)) as other:
        other.execute("VACUUM INTO ?", (str(copy),))
    for number in range(600):
        put(backend, f"{number}-later")
    crashed.mkdir(0o700)
    for name in (DATABASE, "kip30.db-wal", "create.lock"):
        shutil.copy(directory / name, crashed)
    log, whole = crashed / "kip30.db-wal", copy.read_bytes()
    (crashed / DATABASE).write_bytes(whole)
    with pytest.raises(StoreError, match=r"remove kip30\.db-wal and kip30\.db-shm"):
        open_backend(directory=crashed)
    assert (crashed / DATABASE).read_bytes() == whole
    log.unlink()
    (crashed / "kip30.db-shm").unlink(missing_ok=True)
    again = open_backend(directory=crashed)
    keys = [Key("n", "299"), Key("n", "299-later")]
    old, later = again.storage.read(keys).result()
    assert old is not None
    assert later is None


# -- under load

_LINES = 50


class User:
    """A process that writes and leads, and what it said."""

    def __init__(self, directory: Path, tag: str) -> None:
        session_ms = str(round(2000 * time_scale()))
        self._process = subprocess.Popen(
            [sys.executable, str(USER), str(directory), tag, session_ms],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._first = [self._process.stdout.readline() for _ in range(_LINES)]

    def signal(self, number: signal.Signals) -> None:
        """Send it."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it, unless it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def end(self) -> list[str]:
        """Return all lines."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            out += f"failed with exit code {self._process.returncode}\n"
        return [*map(str.strip, self._first), *out.splitlines()]


@contextmanager
def using(directory: Path, *tags: str) -> Iterator[list[User]]:
    users: list[User] = []
    try:
        users += [User(directory, tag) for tag in tags]
        yield users
    finally:
        for user in users:
            user.kill()


def terms(lines: list[str]) -> list[tuple[float, float]]:
    """Return from when to when each term was certainly valid."""
    moments = defaultdict[str, list[float]](list)
    for line in lines:
        if line.startswith("led "):
            _, epoch, moment = line.split()
            moments[epoch].append(float(moment))
    return [(min(each), max(each)) for each in moments.values()]


def stored(directory: Path) -> set[str] | None:
    """Return the keys there, or None if the store says that it is damaged."""
    try:
        config: dict[str, str | Path] = {
            "plugin.backend": "embedded",
            "plugin.embedded.directory": directory,
        }
        with PluginLocator().startup(config) as locator:
            return {f"k/{key.removeprefix('k/')}" for key in map(str, locator.storage().list("k"))}
    except Kip30Error:
        return None


FILES = (DATABASE, *COMPANIONS, "doorbell", "create.lock", "sessions")
KEEPS_ALL = {"kip30.db-shm", "doorbell", "create.lock", "sessions"}


def harmed_under_load(directory: Path, name: str, harm: Callable[[Path], None]) -> None:
    with using(directory, "A", "B") as users:
        place = directory / name
        for file in list(place.iterdir()) if place.is_dir() else [place]:
            harm(file)
        with using(directory, "C") as late:
            said = [user.end() for user in (*users, *late)]
    spans = [[(start, end, who) for start, end in terms(said[who])] for who in range(len(said))]
    for one, other in combinations(spans, 2):
        for first in one:
            for second in other:
                assert first[1] < second[0] or second[1] < first[0], (first, second)
    lines = list(chain.from_iterable(said))
    acknowledged = {line.removeprefix("wrote ") for line in lines if line.startswith("wrote ")}
    is_loud = any(line.startswith("failed ") for line in lines)
    assert acknowledged
    found = stored(directory)
    if found is None or not acknowledged <= found:
        assert is_loud
        assert not (harm is removed and name in KEEPS_ALL)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "harm"),
    [("kip30.db-shm", removed), ("kip30.db-wal", replaced), ("sessions", removed)],
)
def test_nothing_is_lost_in_silence(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harmed_under_load(tmp_path / "state", name, harm)


@pytest.mark.large
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("harm", [removed, replaced, cut_short])
@pytest.mark.parametrize("name", FILES)
def test_nothing_is_lost_in_silence_in_fifty_rounds(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    for number in range(50):
        harmed_under_load(tmp_path / f"state{number}", name, harm)
