"""The judge of shares: the ticks that count as two runs of an item at once, or as a next run."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kip30_conformance.clients.coordinate_processes import SharingArena

ITEMS = "items=0,1"


@pytest.fixture
def arena(tmp_path: Path) -> Generator[SharingArena]:
    with closing(SharingArena(tmp_path, {"plugin.backend": "embedded"}, shards=2)) as arena:
        yield arena


def write(arena: SharingArena, *ticks: tuple[float, str, int, int, str]) -> None:
    """Write ticks of processes that do not exist: their ids exceed the greatest possible one."""
    with arena.log.open("a") as log:
        for at, member, since, run, what in ticks:
            log.write(f"{at} {since} {member} {2**30 + run} {run} {what}\n")


def test_runs_one_after_the_other_are_no_overlap(arena: SharingArena) -> None:
    write(arena, (1, "a", 1, 1, ITEMS), (2, "a", 1, 1, "tick"))
    write(arena, (3, "a", 1, 2, ITEMS), (4, "a", 1, 2, "tick"))
    write(arena, (5, "b", 2, 3, ITEMS))
    assert [(period.run, period.first, period.last) for period in arena.periods()] == [
        (1, 1, 2),
        (2, 3, 4),
        (3, 5, 5),
    ]
    arena.expect_no_overlap()


@pytest.mark.parametrize(
    ("member", "since"), [("b", 2), ("a", 2), ("a", 1)], ids=["other", "later", "restart"]
)
def test_two_runs_at_once_are_an_overlap(arena: SharingArena, member: str, since: int) -> None:
    write(arena, (1, "a", 1, 1, ITEMS), (2, member, since, 2, "items=1"), (3, "a", 1, 1, "tick"))
    with pytest.raises(AssertionError):
        arena.expect_no_overlap()


def test_a_tick_of_a_dying_command_is_no_next_run(
    arena: SharingArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIP30_TIME_SCALE", "0.002")
    write(arena, (1, "a", 1, 1, ITEMS))
    struck = arena.newest()[0]
    write(arena, (1e12, "a", 1, 1, "tick"))
    with pytest.raises(AssertionError, match="other runs"):
        arena.await_next_runs(struck, after=2)
    write(arena, (1.5, "a", 2, 2, ITEMS), (1e12, "a", 2, 2, "tick"))
    with pytest.raises(AssertionError, match="other runs"):
        arena.await_next_runs(struck, after=2)
    write(arena, (2e12, "a", 2, 3, ITEMS))
    assert {period.run for period in arena.await_next_runs(struck, after=2).values()} == {3}
