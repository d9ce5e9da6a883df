"""The phases of a member, and which data wins."""

import threading
import time
import weakref

import pytest

from kip30.runtime.member_phases import MemberPhases, Phase, Update

pytestmark = pytest.mark.virtual_time

PATHS = {
    Phase.JOINING: (),
    Phase.JOINED: (Phase.JOINED,),
    Phase.LOST: (Phase.JOINED, Phase.LOST),
    Phase.ENDED: (Phase.JOINED, Phase.ENDED),
    Phase.LEAVING: (Phase.LEAVING,),
    Phase.EVICTED: (Phase.JOINED, Phase.LOST, Phase.EVICTED),
    Phase.CLOSED: (Phase.CLOSED,),
}
ALLOWED = {
    (Phase.JOINING, Phase.JOINED),
    (Phase.JOINED, Phase.LOST),
    (Phase.JOINED, Phase.ENDED),
    (Phase.LOST, Phase.JOINED),
    (Phase.LOST, Phase.EVICTED),
    *((start, Phase.LEAVING) for start in (Phase.JOINING, Phase.JOINED, Phase.LOST)),
    *((start, Phase.CLOSED) for start in Phase if start is not Phase.CLOSED),
}


def reach(phase: Phase) -> MemberPhases:
    lifecycle = MemberPhases(b"first")
    for step in PATHS[phase]:
        assert lifecycle.enter(step)
    return lifecycle


@pytest.mark.parametrize("start", Phase)
@pytest.mark.parametrize("end", Phase)
def test_only_the_moves_of_the_table_are_made(start: Phase, end: Phase) -> None:
    lifecycle = reach(start)
    assert lifecycle.enter(end) == ((start, end) in ALLOWED)
    assert lifecycle.phase is (end if (start, end) in ALLOWED else start)


@pytest.mark.parametrize("phase", Phase)
def test_data_is_kept_only_for_a_member_that_stays(phase: Phase) -> None:
    lifecycle = reach(phase)
    stays = phase in {Phase.JOINED, Phase.LOST}
    assert lifecycle.keep(lifecycle.number(b"new")) == stays
    assert lifecycle.newest().data == (b"new" if stays else b"first")
    over = {Phase.ENDED, Phase.LEAVING, Phase.EVICTED, Phase.CLOSED}
    assert lifecycle.is_over() == (phase in over)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("rejoins", [True, False])
def test_only_a_member_that_re_joins_is_lost_for_a_while(phase: Phase, *, rejoins: bool) -> None:
    lifecycle = MemberPhases(b"", rejoins=rejoins)
    for step in PATHS[phase]:
        assert lifecycle.enter(step)
    after = Phase.LOST if rejoins else Phase.ENDED
    assert lifecycle.lose() is (after if phase is Phase.JOINED else None)
    assert lifecycle.phase is (after if phase is Phase.JOINED else phase)


def test_older_data_never_replaces_newer_data() -> None:
    lifecycle = reach(Phase.LOST)
    older, newer = lifecycle.number(b"z"), lifecycle.number(b"a")
    lifecycle.keep(newer)
    lifecycle.keep(older)
    lifecycle.acknowledge(older)
    assert lifecycle.newest() == newer
    lifecycle.enter(Phase.JOINED)
    assert lifecycle.is_behind()
    lifecycle.acknowledge(newer)
    assert not lifecycle.is_behind()


def test_a_new_incarnation_shows_nothing_for_certain() -> None:
    lifecycle = reach(Phase.JOINED)
    lifecycle.acknowledge(lifecycle.newest())
    assert not lifecycle.is_behind()
    lifecycle.enter(Phase.LOST)
    assert not lifecycle.is_behind()
    lifecycle.enter(Phase.JOINED)
    assert lifecycle.is_behind()


def test_a_late_acknowledgement_does_not_count_for_the_next_incarnation() -> None:
    lifecycle = reach(Phase.LOST)
    lifecycle.acknowledge(lifecycle.number(b"acknowledged late"))
    lifecycle.enter(Phase.JOINED)
    assert lifecycle.is_behind()


def test_a_call_waits_for_its_data_or_newer_data() -> None:
    lifecycle = reach(Phase.LOST)
    older, newer = lifecycle.number(b"older"), lifecycle.number(b"newer")
    lifecycle.keep(newer)
    threading.Timer(0.05, lifecycle.acknowledge, [newer]).start()
    assert lifecycle.wait_until_shown(older, time.monotonic() + 60)
    assert not lifecycle.wait_until_shown(Update(newer.number + 1, b""), time.monotonic())


def test_a_future_is_done_with_its_data_or_newer_data() -> None:
    lifecycle = reach(Phase.LOST)
    older, newer = lifecycle.number(b"older"), lifecycle.number(b"newer")
    lifecycle.keep(newer)
    futures = [lifecycle.shown(one) for one in (older, newer, Update(newer.number + 1, b""))]
    assert [one.done() for one in futures] == [False, False, False]
    lifecycle.acknowledge(newer)
    assert [one.done() for one in futures] == [True, True, False]
    assert futures[0].result()
    assert lifecycle.shown(older).result(0)
    lifecycle.enter(Phase.LEAVING)
    assert futures[2].result(0) is False
    assert lifecycle.shown(newer).result(0)


def test_a_future_that_is_forgotten_is_not_kept() -> None:
    """A member may be lost for days, while its program tries to update it again and again."""
    lifecycle = reach(Phase.LOST)
    future = lifecycle.shown(lifecycle.number(b"new"))
    reference = weakref.ref(future)
    lifecycle.forget(future)
    del future
    assert reference() is None
    assert not lifecycle._awaited


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Phase.JOINED, Phase.ENDED),
        (Phase.LOST, Phase.EVICTED),
        (Phase.LOST, Phase.LEAVING),
        (Phase.LOST, Phase.CLOSED),
    ],
)
def test_a_call_does_not_wait_for_a_member_that_is_over(start: Phase, end: Phase) -> None:
    lifecycle = reach(start)
    update = lifecycle.number(b"new")
    lifecycle.keep(update)
    threading.Timer(0.05, lifecycle.enter, [end]).start()
    assert not lifecycle.wait_until_shown(update, time.monotonic() + 60)
