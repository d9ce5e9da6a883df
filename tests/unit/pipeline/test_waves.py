"""Waves: each span once, despite failures; long enough and not too long."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.driver.scanning import Span
from kip30.pipeline.run.waves import WAVE_SECONDS, Waves, partitions


def spans(*rows: int, token: bytes = b"t") -> list[Span]:
    return [Span(token, number) for number in rows]


@given(
    rows=st.lists(st.integers(0, 50), max_size=60),
    finished=st.sets(st.integers(0, 59)),
    slots=st.integers(1, 5),
    data=st.data(),
)
def test_each_span_is_done_once(
    rows: list[int], finished: set[int], slots: int, data: st.DataObject
) -> None:
    waves = Waves(spans(*rows), finished, "seed", slots)
    done: Counter[int] = Counter()
    while numbers := waves.next():
        assert len(set(numbers)) == len(numbers)
        if len(numbers) > 1 and data.draw(st.booleans()):
            waves.halve(numbers)
            continue
        done.update(numbers)
        waves.adapt(numbers, data.draw(st.floats(0, 100)))
    assert done == dict.fromkeys(set(range(len(rows))) - finished, 1)


def test_a_wave_that_failed_is_run_in_its_halves_next() -> None:
    waves = Waves(spans(*[1] * 40), (), "seed", 8)
    failed = waves.next()
    waves.halve(failed)
    first = waves.next()
    assert first == failed[:4]
    waves.halve(first)
    assert [waves.next(), waves.next()] == [failed[:2], failed[2:4]]
    assert waves.next() == failed[4:]
    after = waves.next()
    assert len(after) == 8
    assert not set(after) & set(failed)


@pytest.mark.parametrize("bad", range(8))
def test_a_bad_span_is_found_in_few_attempts(bad: int) -> None:
    waves = Waves(spans(*[1] * 64), (), "seed", 8)
    culprit = waves.next()[bad]
    waves = Waves(spans(*[1] * 64), (), "seed", 8)
    failures = 0
    while True:
        numbers = waves.next()
        if culprit not in numbers:
            waves.adapt(numbers, 0.1)
            continue
        failures += 1
        if len(numbers) == 1:
            break
        waves.halve(numbers)
    assert failures == 4


def test_waves_begin_with_a_span_for_each_slot() -> None:
    assert len(Waves(spans(*[100] * 50), (), "seed", 3).next()) == 3
    assert len(Waves(spans(100), (), "seed", 3).next()) == 1
    assert Waves([], (), "seed", 3).next() == []


def grown(seconds: Callable[[int], float], count: int = 2_000) -> list[int]:
    """Return the rows of each wave, if *seconds* returns the duration of a wave by its rows."""
    plan = spans(*[100] * count)
    waves = Waves(plan, (), "seed", 2)
    sizes: list[int] = []
    while numbers := waves.next():
        sizes.append(100 * len(numbers))
        waves.adapt(numbers, seconds(sizes[-1]))
    return sizes


def test_waves_grow_to_their_time() -> None:
    sizes = grown(lambda rows: rows / 1_000)
    assert sizes[:4] == [200, 800, 3_200, 12_800]
    assert set(sizes[4:-1]) == {1_000 * WAVE_SECONDS}


def test_waves_shrink_when_a_store_gets_slow() -> None:
    sizes = grown(lambda rows: rows / (1_000 if rows < 3_200 else 10))
    assert sizes[:4] == [200, 800, 3_200, 300]


def test_a_wave_has_a_span_for_each_slot_however_slow() -> None:
    assert set(grown(lambda _: 1_000.0, 20)) == {200}


def test_spans_that_may_be_empty_are_no_endless_wave() -> None:
    waves = Waves(spans(*[0] * 1_000), (), "seed", 2)
    first = waves.next()
    waves.adapt(first, 1.0)
    assert len(first) == 2
    assert len(waves.next()) == 8


def test_a_wave_is_not_too_long_to_describe() -> None:
    waves = Waves(spans(*[1] * 1_000, token=b"t" * 4096), (), "seed", 2)
    waves.adapt(range(1_000), 0.001)
    assert len(waves.next()) == 128
    huge = Waves(spans(1, 1, token=b"t" * 1024 * 1024), (), "seed", 2)
    assert [len(huge.next()) for _ in range(3)] == [1, 1, 0]


def test_the_order_is_the_runs_own() -> None:
    plan = spans(*[1] * 100)
    first, again, other = (Waves(plan, (), seed, 100).next() for seed in ("a", "a", "b"))
    assert first == again != other
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


@given(st.lists(st.integers(0, 1_000), max_size=40), st.integers(1, 8))
def test_partitions_have_about_as_many_rows(rows: list[int], slots: int) -> None:
    plan = [Span(b"%d" % number, size) for number, size in enumerate(rows)]
    groups = partitions(plan, slots)
    assert len(groups) == min(slots, len(plan))
    assert all(groups)
    assert sorted(span for group in groups for span in group) == sorted(plan)
    sizes = [sum(max(span.rows, 1) for span in group) for group in groups]
    if sizes:
        assert max(sizes) - min(sizes) <= max(1, *rows)


def test_spans_of_a_region_are_next_to_each_other() -> None:
    plan = [Span(f"{number % 3}-{number:02}".encode(), number) for number in range(30)]
    for group in partitions(plan, 4):
        regions = [span.token[:1] for span in group]
        assert regions == sorted(regions)


def test_empty_spans_are_shared_as_well() -> None:
    assert sorted(map(len, partitions(spans(*[0] * 9), 4))) == [2, 2, 2, 3]
