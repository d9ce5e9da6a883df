from kip30_conformance.storm.fault_kinds import KINDS
from kip30_conformance.storm.fault_schedule import schedule
from kip30_conformance.storm.timing import Timing

SHORT, LONG = (count * Timing().calm for count in (10, 200))  # which grow with the time scale


def test_equal_seeds_give_equal_schedules() -> None:
    assert schedule(7, LONG, Timing()) == schedule(7, LONG, Timing())
    assert schedule(7, LONG, Timing()) != schedule(8, LONG, Timing())


def test_a_shorter_storm_is_the_beginning_of_a_longer_one() -> None:
    short, long = schedule(7, SHORT, Timing()), schedule(7, LONG, Timing())
    assert 1 < len(short) < len(long)
    assert long[: len(short)] == short


def test_it_fits_and_has_every_kind() -> None:
    timing = Timing()
    episodes = schedule(7, LONG, timing)
    lasts = sum(episode.seconds + timing.calm for episode in episodes) + timing.calm
    assert 0.95 * LONG < lasts <= LONG
    assert {fault.kind for episode in episodes for fault in episode.faults} == set(KINDS)


def test_two_at_a_time_hit_different_sides() -> None:
    pairs = [one.faults for one in schedule(7, LONG, Timing()) if len(one.faults) > 1]
    assert pairs
    for first, second in pairs:
        assert KINDS[first.kind].side is not KINDS[second.kind].side
        assert not KINDS[first.kind].alone
        assert not KINDS[second.kind].alone


def test_there_is_always_one() -> None:
    assert len(schedule(7, 0.1, Timing())) == 1
