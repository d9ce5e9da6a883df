import asyncio
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait

import pytest

from kip30.futures import Completed, fail, failed, mapped, succeed


def test_a_completed_future_answers_like_any_other() -> None:
    future = Completed(3)
    seen: list[int] = []
    future.add_done_callback(lambda done: seen.append(done.result()))
    assert (future.result(0), future.exception(), future.done(), future.cancel()) == (
        3,
        None,
        True,
        False,
    )
    assert not future.cancelled()
    assert not future.running()
    assert seen == [3]


def test_completed_futures_can_be_waited_for_with_others() -> None:
    open_one: Future[int] = Future()
    ready = [Completed(number) for number in range(3)]
    done, pending = wait([*ready, open_one], return_when=FIRST_COMPLETED)
    assert (len(done), pending) == (3, {open_one})
    open_one.set_result(9)
    assert sorted(future.result() for future in as_completed([*ready, open_one])) == [0, 1, 2, 9]
    assert not Completed(0)._waiters


def test_a_completed_future_can_be_awaited() -> None:
    async def main() -> int:
        return await asyncio.wrap_future(Completed(5))

    assert asyncio.run(main()) == 5


@pytest.mark.parametrize("late", [False, True])
def test_a_mapped_future_has_the_result_or_the_error(late: bool) -> None:  # noqa: FBT001
    source: Future[int] = Future() if late else Completed(2)
    doubled, broken = mapped(source, lambda x: 2 * x), mapped(source, lambda x: 1 // (x - 2))
    if late:
        source.set_result(2)
    assert doubled.result(1) == 4
    assert isinstance(broken.exception(1), ZeroDivisionError)


def test_a_mapped_future_passes_an_error_on() -> None:
    assert isinstance(mapped(failed(KeyError("a")), str).exception(1), KeyError)


def test_cancelling_a_mapped_future_leaves_the_source_alone() -> None:
    source: Future[int] = Future()
    target = mapped(source, str)
    assert target.cancel()
    source.set_result(1)
    assert target.cancelled()
    assert source.result() == 1


def test_the_first_end_of_a_future_counts() -> None:
    future: Future[int] = Future()
    succeed(future, 1)
    succeed(future, 2)
    fail(future, ValueError())
    assert future.result(0) == 1
    error = ValueError()
    fallen: Future[int] = Future()
    fail(fallen, error)
    succeed(fallen, 1)
    assert fallen.exception(0) is error
