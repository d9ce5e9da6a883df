"""Guarantees of `kip30 coordinate` on every store: each item in one running command."""

import signal
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import le
from pathlib import Path

import pytest

from kip30 import PluginLocator, UsageError
from kip30.config import Written
from kip30.coordinator import ShareGuard, describe_group, parse_guard, storage_of_share
from kip30.coordinator.work_items import numbered_item
from kip30.errors import IllegalGenerationError
from kip30_conformance.clients.coordinate_processes import GROUP, RunPeriod, SharingArena
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.clients.run_processes import Runner
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import Suite

_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_REFUSED = 1
_SHARDS = 8
_GRACE_SECONDS = 0.5
_SHOW = (
    'printf "%s\\n" "$KIP30_GROUP" "$KIP30_MEMBER" "$KIP30_GENERATION" "$KIP30_SHARE" '
    '"$(tr "\\n" " " < "$KIP30_SHARE_FILE")" "$KIP30_GUARD" > "$0.new"; mv "$0.new" "$0"; '
    "exec sleep 600"
)
"""Writes what a command finds in its environment to the file $0, a line each."""
_EACH = "--each"
_KEY = "work"
_NOTE_GUARD = 'printf %s "$KIP30_GUARD" > "$0/$1.new"; mv "$0/$1.new" "$0/$1"; exec sleep 600'
"""Writes the guard of the item $1 to a file in the folder $0."""


class ShareSuite(Suite):
    """Base of the suites of `kip30 coordinate`."""

    @pytest.fixture
    def arena(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], tmp_path: Path
    ) -> Iterator[SharingArena]:
        """Yield a place for runners of the check's own group; they end with the check."""
        with _arena(tmp_path, harness.properties(root, **timeouts)) as arena:
            yield arena

    @pytest.fixture
    def steady_arena(self, harness: Harness, root: str, tmp_path: Path) -> Iterator[SharingArena]:
        """Yield a place for runners that may take long to start, within a session's time."""
        with _arena(tmp_path, harness.properties(root, **harness.steady)) as arena:
            yield arena


@contextmanager
def _arena(folder: Path, properties: Mapping[str, Written]) -> Generator[SharingArena]:
    arena = SharingArena(folder, properties, shards=_SHARDS)
    with heeded():
        yield arena
    arena.close()


@pytest.mark.coordinator
class ShareTests(ShareSuite):
    """Shares move with the processes that take part, and a command has one of them."""

    def test_V01_all_items_once(self, arena: SharingArena) -> None:
        """All items are worked on, each by one command, however many processes come and go."""
        runners = [arena.start(*arena.ticker("polite")) for _ in range(2)]
        arena.await_items(members=2)
        runners.append(arena.start(*arena.ticker("polite")))
        eventually(
            lambda: _is_even(arena.await_items(members=3)), within=60, what="the shares are even"
        )
        runners[0].send(signal.SIGTERM)
        runners[0].wait()
        arena.await_items(after=arena.now(), members=2)
        arena.expect_no_overlap()

    def test_V02_environment(
        self, arena: SharingArena, client: PluginLocator, tmp_path: Path
    ) -> None:
        """The command finds group, member, generation, share and guard in its environment."""
        note = tmp_path / "note"
        arena.start("sh", "-c", _SHOW, str(note))
        eventually(note.exists, within=30, what="the command has written its note")
        group, member, since, share, in_file, guard = note.read_text().splitlines()
        assert group == GROUP
        assert share.split() == in_file.split() == [str(one) for one in range(_SHARDS)]
        found = describe_group(client, GROUP)
        assert found is not None
        assert found.members[member].since == int(since)
        written = parse_guard(guard)
        assert written == ShareGuard(GROUP, member, member, int(since), history=written.history)

    def test_V03_unchanged_not_restarted(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], tmp_path: Path
    ) -> None:
        """A command whose share stays as it is runs on while other members come and go."""
        arena = SharingArena(tmp_path, harness.properties(root, **timeouts), shards=2)
        with heeded():
            for _ in range(2):
                arena.start(*arena.ticker())
            shares = arena.await_items(members=2)
            idle = arena.start(*arena.ticker())
            eventually(lambda: "waiting for a share" in idle.said, what="the third one waits")
            throughout(lambda: arena.newest().keys() == {0, 1}, seconds=1.0)
            idle.send(signal.SIGTERM)
            assert idle.wait() == 128 + signal.SIGTERM
            again = arena.await_items(after=arena.now(), members=2)
            assert _places(again) == _places(shares)
            assert len({tick.pid for tick in arena.ticks()}) == len(arena.periods())
        arena.close()

    def test_V08_stubborn_cmd(self, arena: SharingArena) -> None:
        """A command that ignores the signal is killed after the grace; only then its items go."""
        grace = _GRACE_SECONDS * time_scale()  # long enough for a tick on a busy machine
        options = (f"--grace={grace}",)
        arena.start(*arena.ticker("stubborn", "tree"), options=options)
        first = arena.await_items()[0]
        arena.start(*arena.ticker(), options=options)
        arena.await_items(members=2)
        told_at = min(tick.at for tick in arena.ticks() if tick.what == "SIGTERM")
        ended = next(one for one in arena.periods() if one.run == first.run)
        assert ended.last > told_at + grace / 2
        arena.expect_no_overlap()

    def test_V09_static_restart_quiet(self, steady_arena: SharingArena) -> None:
        """A process with an instance that returns in time has its share; no other one notices."""
        arena = steady_arena
        other = arena.start(*arena.ticker(), options=("--instance=other",))
        first = arena.start(*arena.ticker(), options=("--instance=first",))
        shares = arena.await_items(members=2)
        mine = next(one for one in shares.values() if arena.runner_with(one.member) is first)
        theirs = next(one for one in shares.values() if arena.runner_with(one.member) is other)
        first.send(signal.SIGTERM)
        first.wait()
        again = arena.start(*arena.ticker(), options=("--instance=first",))
        eventually(
            lambda: [one for one in arena.periods() if arena.runner_with(one.member) is again],
            within=30,
            what="the share is worked on again",
        )
        found = arena.newest()
        assert found[min(mine.items)].items == mine.items
        assert found[min(theirs.items)].run == theirs.run
        arena.expect_no_overlap()

    def test_V10_guard_text_refused(
        self, arena: SharingArena, client: PluginLocator, tmp_path: Path
    ) -> None:
        """A write with the guard passes while the share is the writer's; a text is no guard."""
        note = tmp_path / "note"
        runner = arena.start("sh", "-c", _SHOW, str(note))
        eventually(note.exists, within=30, what="the command has written its note")
        guard = parse_guard(note.read_text().splitlines()[-1])
        storage_of_share(client, guard).put("position", "1")
        runner.end()
        arena.start(*arena.ticker())
        arena.await_items()
        with pytest.raises(IllegalGenerationError):
            storage_of_share(client, guard).update("position", "2")
        found = storage_of_share(client, guard).get("position")
        assert found is not None
        assert found.value == "1"
        with pytest.raises(UsageError):
            parse_guard(f"{GROUP}:{guard.member}:{guard.since}")

    def test_V11_lists_differ(self, arena: SharingArena) -> None:
        """A process with another list than its group is refused, and disturbs no member."""
        arena.start(*arena.ticker())
        before = arena.await_items()
        arena.words = ("coordinate", "--group", GROUP, f"--shards={_SHARDS + 1}")
        stranger = arena.start(*arena.ticker())
        assert stranger.wait() == _REFUSED
        assert "offers none of the protocols" in stranger.said
        assert _places(arena.await_items(after=arena.now())) == _places(before)

    @pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=_HEAVY)])
    def test_V12_no_leak(
        self, arena: SharingArena, harness: Harness, root: str, rounds: int
    ) -> None:
        """However often its share changes, a runner holds no more than before."""
        runner = arena.start(*arena.ticker())
        arena.await_items()
        descriptors = threads = 0
        for nth in range(rounds):
            other = arena.start(sys.executable, "-c", "import time; time.sleep(600)")
            _await_share(other)
            other.send(signal.SIGTERM)
            other.wait()
            arena.await_items(after=arena.now())
            eventually(lambda: runner.guards() == 2, what="a guard at work, and one that waits")
            if nth < 2:
                held = runner.holds()
                descriptors, threads = max(descriptors, held[0]), max(threads, held[1])
        with harness.started(root) as client:
            kept = client.backend.limits.idle_descriptors
        allowed = (descriptors + kept, threads)
        eventually(
            lambda: all(map(le, runner.holds(), allowed)),
            what=f"no more held than {allowed} descriptors and threads; once {runner.holds()}",
        )

    def test_V13_each_item_once(self, steady_arena: SharingArena) -> None:
        """With --each every item is in one running command; those that stay are not restarted."""
        arena, each = steady_arena, (_EACH,)
        runners = [arena.start(*arena.ticker("slow", "slow-tick"), options=each) for _ in range(2)]
        arena.await_items(members=2)
        runners.append(arena.start(*arena.ticker("slow", "slow-tick"), options=each))
        arena.await_even_items(members=3)
        runners[0].send(signal.SIGTERM)
        assert runners[0].wait() == 128 + signal.SIGTERM
        found = arena.await_items(after=arena.now(), members=2)
        assert all(period.items == {item} for item, period in found.items())
        arena.expect_no_overlap()
        arena.expect_no_restart()

    def test_V15_item_guard(
        self, steady_arena: SharingArena, client: PluginLocator, tmp_path: Path
    ) -> None:
        """The guard of an item that stays passes when others move; that of a moved one does not."""
        arena, notes = steady_arena, tmp_path / "notes"
        notes.mkdir()
        arena.start("sh", "-c", _NOTE_GUARD, str(notes), "{}", options=(_EACH,))
        every = {str(item) for item in range(_SHARDS)}
        eventually(
            lambda: {note.name for note in notes.iterdir()} >= every,
            within=60,
            what="all commands have written their notes",
        )
        former = {name: parse_guard((notes / name).read_text()) for name in every}
        assert {name: guard.item for name, guard in former.items()} == {
            name: numbered_item(int(name)) for name in every
        }
        arena.start(*arena.ticker("slow-tick"), options=(_EACH,))
        moved = eventually(lambda: _half(arena.newest()), within=60, what="half of the items move")
        for name, guard in former.items():
            storage = storage_of_share(client, guard)
            if int(name) in moved:
                with pytest.raises(IllegalGenerationError):
                    storage.set(name, "refused")
            else:
                storage.set(name, "passed")
            found = storage.get(name)
            assert (found is None) == (int(name) in moved)

    def test_V16_list_in_the_store(self, steady_arena: SharingArena, client: PluginLocator) -> None:
        """With --items-key another list is divided; the commands of items that stay run on."""
        arena, storage = steady_arena, client.storage()
        storage.set(_KEY, _lines(range(_SHARDS)))
        arena.words = ("coordinate", "--group", GROUP, f"--items-key={_KEY}")
        for _ in range(2):
            arena.start(*arena.ticker("slow", "slow-tick"), options=(_EACH,))
        before = arena.await_even_items(members=2)
        storage.set(_KEY, _lines(range(1, _SHARDS + 1)))
        eventually(lambda: _SHARDS in arena.newest(), within=60, what="the new item is worked on")
        after = arena.await_items(after=arena.now())
        stay = range(1, _SHARDS)
        assert [after[item].run for item in stay] == [before[item].run for item in stay]
        arena.expect_no_overlap()


def _lines(items: Iterable[int]) -> str:
    return "".join(f"{item}\n" for item in items)


def _half(periods: Mapping[int, RunPeriod]) -> set[int]:
    """Return the items that were worked on, once they are half of them."""
    return set(periods) if len(periods) == _SHARDS // 2 else set()


def _await_share(runner: Runner) -> None:
    eventually(lambda: "working on" in runner.said, within=30, what="it has a share")


def _is_even(shares: Mapping[int, RunPeriod]) -> bool:
    """Return whether no share has two items more than another, as once a hand-over is complete."""
    sizes = [len(period.items) for period in set(shares.values())]
    return max(sizes) - min(sizes) <= 1


def _places(shares: Mapping[int, RunPeriod]) -> set[tuple[str, int]]:
    return {(one.member, one.since) for one in shares.values()}
