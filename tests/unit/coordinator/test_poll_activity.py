"""The moment at which a member leaves because its application is silent."""

from contextlib import ExitStack, nullcontext

import pytest

from kip30.coordinator.poll_activity import PollActivity
from kip30.driver.clock import ManualClock

pytestmark = [pytest.mark.case("K26")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def activity(clock: ManualClock) -> PollActivity:
    return PollActivity(clock, 60.0)


def test_silence_begins_at_the_end_of_a_poll_and_with_a_callback(
    clock: ManualClock, activity: PollActivity
) -> None:
    assert activity.leave_at() == 160.0
    clock.advance(10.0)
    with activity.polling():
        clock.advance(100.0)
        assert activity.leave_at() == 270.0
        with activity.callback():
            clock.advance(5.0)
            assert activity.leave_at() == 270.0
        assert activity.leave_at() == 275.0
    clock.advance(1.0)
    assert activity.leave_at() == 275.0


def test_a_silence_that_was_too_long_lasts_until_the_member_has_left(
    clock: ManualClock, activity: PollActivity
) -> None:
    clock.advance(60.0)
    with activity.polling():
        assert activity.leave_at() == 160.0
        with activity.callback():
            assert activity.leave_at() == 160.0
        activity.left()
        assert activity.leave_at() == 220.0
    activity.left()
    clock.advance(1.0)
    assert activity.leave_at() == 220.0


def test_a_member_that_has_left_is_not_overdue_when_its_application_polls_again(
    clock: ManualClock, activity: PollActivity
) -> None:
    clock.advance(70.0)
    activity.left()
    clock.advance(59.0)
    with activity.polling():
        assert activity.leave_at() == clock.now() + 60.0


@pytest.mark.parametrize("block", ["polling", "callback"])
def test_a_member_that_left_long_ago_is_not_overdue_either(
    clock: ManualClock, activity: PollActivity, block: str
) -> None:
    with ExitStack() as ends:
        if block == "callback":
            ends.enter_context(activity.polling())
        with activity.callback() if block == "callback" else nullcontext():
            clock.advance(60.0)
            activity.left()
            clock.advance(120.0)
        ends.enter_context(activity.polling())
        assert activity.leave_at() == clock.now() + 60.0


def test_the_end_of_each_silence_is_reported(activity: PollActivity) -> None:
    silent = list[bool]()
    activity.resumed = lambda: silent.append(activity.is_silent())
    assert activity.is_silent()
    with activity.polling():
        assert silent == [False]
        with activity.callback():
            assert activity.is_silent()
        assert silent == [False, False]
    assert activity.is_silent()
