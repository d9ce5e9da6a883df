"""Threads of a driver that do its work."""

import weakref
from collections.abc import Iterator

import pytest

from kip30.driver.kit.thread_pool import ThreadPool
from kip30_conformance.polling import eventually

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    made = ThreadPool("pool-of-a-test")
    yield made
    made.stop()


def test_work_that_is_done_is_not_kept_alive(pool: ThreadPool) -> None:
    class Owner:
        def work(self) -> None:
            """Be something that work refers to."""

    pool.keep_one()
    owner = Owner()
    gone = weakref.ref(owner)
    pool.do(owner.work)
    del owner
    eventually(lambda: gone() is None, within=1, what="nothing refers to it")
