"""Sessions of real processes: killed, stopped, forked, shared, rebooted."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend, Capability
from kip30.driver.records import Claim, Condition, Fence, HeldByOther, Kind, Snapshot, Target, Write
from kip30.errors import ClosedError, ConfigError, FencedError, UnsupportedError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, database_file
from kip30_backends.embedded.database import Transaction
from kip30_backends.embedded.liveness_locks import choose
from kip30_conformance.polling import throughout, time_scale
from tests.embedded_faults import faults_of

SERVICE = Target(Kind.SERVICE, "s")
GROUP = Target(Kind.GROUP, "g")
KEY = Key("", "key")
FENCED = Write(KEY, "n", b"", Condition.ANY, Fence("s", 1))


def leader(backend: Backend) -> list[str]:
    return list(backend.observe.snapshot(SERVICE).result().entries)


def led(backend: Backend, candidate: str, nonce: str = "n") -> Claim:
    claim = backend.election.claim("s", candidate, nonce, b"").result()
    assert isinstance(claim, Claim)
    return claim


@pytest.mark.parametrize("notify", ["inotify", "poll"])
@pytest.mark.parametrize("locks", ["ofd ofd", "ofd record", "record ofd", "record record"])
def test_a_killed_leader_is_gone_at_once(
    open_backend: Any, start_child: Any, eventually: Any, locks: str, notify: str
) -> None:
    mine, theirs = locks.split()
    backend = open_backend(session=60, notify=notify, liveness=mine)
    child = start_child(theirs, "60", "lead", "s", "them")
    assert child.line() == "leads 1"
    seen: list[Snapshot] = []
    watch = backend.observe.watch(SERVICE, seen.append)
    eventually(lambda: seen and "them" in seen[-1].entries)
    assert isinstance(backend.election.claim("s", "me", "n", b"").result(), HeldByOther)
    child.kill()
    eventually(lambda: not seen[-1].entries)
    watch.close()
    assert led(backend, "me").entry.version.major == 2


def test_a_death_is_heard_and_not_only_seen(
    open_backend: Any, start_child: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip30_backends.embedded.change_signal._LOOK_ANYWAY", 1000)
    backend = open_backend(session=60, notify="inotify")
    seen: list[Snapshot] = []
    backend.observe.watch(SERVICE, seen.append)
    child = start_child("auto", "60", "lead", "s", "them")
    eventually(lambda: seen and seen[-1].entries)
    child.kill()
    eventually(lambda: not seen[-1].entries)


def test_a_killed_leader_is_noticed_without_any_watch(open_backend: Any, start_child: Any) -> None:
    backend = open_backend(session=60)
    child = start_child("auto", "60", "lead", "s", "them")
    assert child.line() == "leads 1"
    child.kill()
    assert leader(backend) == []
    assert led(backend, "me").entry.version.major == 2


def test_a_killed_member_frees_its_id(open_backend: Any, start_child: Any) -> None:
    backend = open_backend(session=60)
    child = start_child("auto", "60", "join", "g", "m")
    child.line()
    assert backend.membership.claim("g", "m", "n", b"").exception() is not None
    child.kill()
    backend.membership.claim("g", "m", "n", b"").result()


def test_a_stopped_leader_leads_until_its_deadline_and_then_knows(
    open_backend: Any, start_child: Any, eventually: Any
) -> None:
    backend = open_backend()
    child = start_child("auto", "1", "lead", "s", "them")
    assert child.line() == "leads 1"
    seen: list[Snapshot] = []
    watch = backend.observe.watch(SERVICE, seen.append)
    eventually(lambda: seen)
    os.kill(child.pid, signal.SIGSTOP)
    assert leader(backend) == ["them"]
    eventually(lambda: not seen[-1].entries)
    watch.close()
    assert led(backend, "me").entry.version.major == 2
    os.kill(child.pid, signal.SIGCONT)
    child.say("lead s again")
    assert child.line() == "waits"


def test_a_session_of_before_the_last_start_is_dead(
    open_backend: Any, start_child: Any, directory: Path
) -> None:
    """Its deadline may be far ahead, for the clock has begun again; its lock is gone."""
    backend = open_backend()
    child = start_child("auto", "60", "lead", "s", "them")
    child.line()
    assert leader(backend) == ["them"]
    with closing(sqlite3.connect(directory / "kip30.db", isolation_level=None)) as other:
        child.kill()
        other.execute("UPDATE session SET boot = 'another start', deadline = deadline + 1e9")
        assert leader(backend) == []
        with pytest.raises(FencedError):
            backend.storage.write(FENCED).result()


def test_containers_with_boot_ids_of_their_own_live_side_by_side(
    open_backend: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """They share the kernel, its locks and its clock."""
    one = open_backend(session=60)
    monkeypatch.setattr(database_file, "boot_id", lambda: "that of a container")
    two = open_backend(session=1)
    assert led(one, "me").lease.is_valid()
    assert leader(two) == ["me"]
    two.membership.claim("g", "m", "n", b"").result()
    assert leader(one) == ["me"]
    members = Target(Kind.GROUP, "g")
    assert list(one.observe.snapshot(members).result().entries) == ["m"]
    two.storage.write(FENCED).result()
    faults_of(two).renewals_paused = True  # hung, it is freed by its deadline
    eventually(lambda: not one.observe.snapshot(members).result().entries)


def test_a_session_that_others_ended_is_lost_and_the_next_claim_opens_a_new_one(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    first = led(backend, "me")
    faults_of(backend).end_session()
    eventually(lambda: first.lease.end_reason)
    second = led(backend, "me", "n2")
    assert second.lease is not first.lease
    assert second.entry.version.major == first.entry.version.major + 1
    backend.election.release("s", first).result()
    assert leader(backend) == ["me"]


def test_the_reason_tells_an_end_in_the_store_from_a_removed_lock_file(
    backend: EmbeddedBackend, directory: Path, eventually: Any
) -> None:
    first = led(backend, "me")
    faults_of(backend).end_session()
    eventually(lambda: first.lease.end_reason == "the store ended the session")
    second = led(backend, "me", "n2")
    for file in (directory / "sessions").glob("*.lock"):
        file.unlink()
    eventually(lambda: second.lease.end_reason == "its lock file was removed")


def test_a_session_without_its_lock_file_is_deleted_once_the_store_is_unlocked(
    open_backend: Any, locked: Any, eventually: Any
) -> None:
    """Otherwise others wait for its deadline."""
    one, other = open_backend(session=60, operation=20), open_backend(session=60)
    claim = led(one, "me")
    with locked():
        Path(one._resources.sessions.session.file).unlink()
        eventually(lambda: claim.lease.end_reason == "its lock file was removed")
        throughout(lambda: leader(other) == ["me"], seconds=0.5 * time_scale())
    eventually(lambda: leader(other) == [])


def test_a_session_without_its_lock_file_is_kept_while_work_goes_on_under_it(
    open_backend: Any, eventually: Any
) -> None:
    one, other = open_backend(session=60), open_backend(session=60)
    claim = led(one, "me")
    claim.lease.begin_use()
    Path(one._resources.sessions.session.file).unlink()
    eventually(lambda: claim.lease.end_reason == "its lock file was removed")
    throughout(lambda: leader(other) == ["me"], seconds=0.5 * time_scale())
    claim.lease.end_use()
    eventually(lambda: leader(other) == [])


def test_a_write_that_fails_leaves_the_lock_file_of_the_session_that_it_ended(
    backend: EmbeddedBackend, directory: Path
) -> None:
    led(backend, "me")
    sessions = backend._resources.sessions
    assert sessions.session is not None
    ident = sessions.session.ident

    def end_and_fail(transaction: Transaction) -> None:
        sessions._liveness.end(transaction, ident)
        raise FencedError("no")

    with pytest.raises(FencedError):
        backend._resources.database.write(end_and_fail)
    assert [file.stem for file in (directory / "sessions").glob("*.lock")] == [ident]


def test_a_hung_leader_loses_its_term_and_its_lease_ends(
    open_backend: Any, eventually: Any
) -> None:
    hung, other = open_backend(session=0.6), open_backend(session=60)
    claim = led(hung, "hung")
    faults_of(hung).renewals_paused = True
    eventually(lambda: leader(other) == [])
    assert not claim.lease.is_valid()
    faults_of(hung).renewals_paused = False
    eventually(lambda: claim.lease.end_reason)
    assert led(other, "other").entry.version.major == 2


def test_a_lease_end_callback_can_claim_again_at_once(open_backend: Any, eventually: Any) -> None:
    backend = open_backend(session=0.4)
    for number in range(5):
        again: list[Claim | HeldByOther] = []

        def claim_again(
            nonce: str = f"b{number}", again: list[Claim | HeldByOther] = again
        ) -> None:
            again.append(backend.election.claim("s", "me", nonce, b"").result())

        claim = led(backend, "me", f"a{number}")
        claim.lease.on_end(threading.Thread(target=claim_again).start)
        faults_of(backend).renewals_paused = True
        eventually(lambda again=again: again)
        faults_of(backend).renewals_paused = False
        assert isinstance(again[0], Claim)
        assert again[0].entry.version.major == claim.entry.version.major + 1
        backend.election.release("s", again[0]).result()


def test_a_fence_ends_with_the_deadline_before_anyone_takes_over(
    open_backend: Any, start_child: Any, eventually: Any
) -> None:
    backend = open_backend()
    child = start_child("auto", "1", "lead", "s", "them")
    assert child.line() == "leads 1"
    write = Write(KEY, "n", b"", Condition.ANY, Fence("s", 1))
    backend.storage.write(write).result()
    os.kill(child.pid, signal.SIGSTOP)
    eventually(lambda: isinstance(backend.storage.write(write).exception(), FencedError))


def test_renewals_keep_a_session_beyond_its_timeout(open_backend: Any, eventually: Any) -> None:
    backend = open_backend(session=1)
    claim = led(backend, "me")
    first = claim.lease.deadline
    eventually(lambda: claim.lease.deadline > first + claim.lease.timeout_seconds)
    assert claim.lease.is_valid()
    assert leader(backend) == ["me"]


def test_backends_of_one_process_with_record_locks_see_each_other_alive(open_backend: Any) -> None:
    one, two = open_backend(liveness="record"), open_backend(liveness="record")
    led(one, "one")
    assert isinstance(two.election.claim("s", "two", "n2", b"").result(), HeldByOther)
    assert leader(two) == ["one"]
    one.close()
    assert led(two, "two").entry.version.major == 2


def test_record_locks_outlive_probing(open_backend: Any, start_child: Any) -> None:
    one = open_backend(liveness="record", session=60)
    led(one, "one")
    two = open_backend(liveness="record", session=60)
    assert leader(two) == ["one"]
    two.close()
    child = start_child("record", "60", "lead", "s", "them")
    assert child.line() == "waits"


@pytest.mark.parametrize("kinds", ["record record", "record ofd", "ofd record", "ofd ofd"])
def test_one_directory_by_two_paths_is_one_store(
    open_backend: Any, start_child: Any, directory: Path, kinds: str
) -> None:
    one_kind, two_kind = kinds.split()
    link = directory.with_name("link")
    link.symlink_to(directory)
    one = open_backend(liveness=one_kind, session=60)
    two = open_backend(liveness=two_kind, session=60, directory=link)
    claim = led(one, "one")
    assert isinstance(two.election.claim("s", "two", "n2", b"").result(), HeldByOther)
    two.membership.claim("g", "m", "n", b"").result()  # a session: it looks at all others
    assert leader(two) == ["one"]
    assert claim.lease.is_valid()
    child = start_child("record", "60", "lead", "s", "them")
    assert child.line() == "waits"


def test_where_the_system_refuses_the_other_locks_they_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels of some sandboxes know the call and answer EINVAL."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    assert choose("auto").name == "ofd"
    monkeypatch.setattr("fcntl.fcntl", refuse)
    assert choose("auto").name == "record"
    with pytest.raises(ConfigError, match="not on this system"):
        choose("ofd")


def test_record_locks_cannot_be_shared(open_backend: Any) -> None:
    backend = open_backend(liveness="record")
    assert Capability.LEASE_SHARING not in backend.capabilities
    assert Capability.LEASE_SHARING in open_backend(liveness="ofd").capabilities
    with pytest.raises(UnsupportedError):
        backend.share(led(backend, "me").lease)


SHARER = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[2])
import child
backend = child.open_backend(sys.argv[1], "ofd", "60")
claim = backend.election.claim("s", "shared", "n", b"").result()
fd = backend.share(claim.lease)
guard = subprocess.Popen(["sleep", "1000"], pass_fds=[fd], stdout=subprocess.DEVNULL)
print(guard.pid, flush=True)
sys.stdin.read()
"""


def test_a_shared_lease_lives_until_both_are_gone(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    backend = open_backend(session=60)
    here = str(Path(__file__).parent)
    sharer = subprocess.Popen(
        [sys.executable, "-c", SHARER, str(directory), here],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sharer.stdout is not None
    guard = int(sharer.stdout.readline())
    try:
        seen: list[Snapshot] = []
        watch = backend.observe.watch(SERVICE, seen.append)
        sharer.kill()
        sharer.communicate()
        assert leader(backend) == ["shared"]
    finally:
        os.kill(guard, signal.SIGKILL)
    eventually(lambda: seen and not seen[-1].entries)
    watch.close()


def test_close_ends_a_shared_lease_too(open_backend: Any) -> None:
    one, two = open_backend(), open_backend()
    descriptor = os.dup(one.share(led(one, "one").lease))
    one.close()
    assert leader(two) == []
    os.close(descriptor)


FORKER = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
import child
backend = child.open_backend(sys.argv[1], "ofd", "60")
backend.election.claim("s", "parent", "n", b"").result()
pid = os.fork()
if pid == 0:
    time.sleep(1000)
print(pid, flush=True)
sys.stdin.read()
"""


def test_a_forked_child_does_not_keep_the_session(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    backend = open_backend(session=60)
    here = str(Path(__file__).parent)
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKER, str(directory), here],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert leader(backend) == ["parent"]
        parent.kill()
        parent.wait()
        eventually(lambda: leader(backend) == [])
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_dropping_the_backend_ends_its_session(open_backend: Any, eventually: Any) -> None:
    watcher = open_backend(session=60)
    context, settings = watcher._resources.sessions._context, watcher._settings
    dropped: list[EmbeddedBackend] = [EmbeddedBackend(context, settings)]
    led(dropped[0], "dropped")
    dropped.clear()
    eventually(lambda: leader(watcher) == [])


def test_close_waits_for_no_other_program_and_frees_the_claims(
    open_backend: Any, locked: Any, took: Any
) -> None:
    backend, other = open_backend(operation=20), open_backend(session=60)
    led(backend, "me")
    with locked():
        assert took(backend.close) < 1
    assert leader(other) == []


def test_claims_of_a_closed_backend_are_refused(backend: Backend) -> None:
    led(backend, "me")
    backend.close()
    backend.close()
    assert isinstance(backend.election.claim("s", "c", "n", b"").exception(), ClosedError)
    assert isinstance(backend.storage.read([KEY]).exception(), ClosedError)
    with pytest.raises(ClosedError):
        backend.observe.watch(GROUP, lambda _: None)


def test_a_new_session_clears_away_what_dead_ones_left(
    open_backend: Any, start_child: Any, directory: Path
) -> None:
    backend = open_backend()
    start_child("auto", "60", "join", "g", "m").line()
    child = start_child("auto", "60", "join", "h", "m")
    child.line()
    child.kill()
    (directory / "sessions" / "0123.lock").write_bytes(b"")
    assert len(list((directory / "sessions").iterdir())) == 3
    led(backend, "me")
    assert len(list((directory / "sessions").iterdir())) == 2
    assert backend.describe()["sessions"] == "2"
