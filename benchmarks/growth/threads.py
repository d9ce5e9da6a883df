"""Puts from many threads of one process, against the raw client."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from threading import Barrier, BrokenBarrierError

from benchmarks.clients.embedded import RawSide
from benchmarks.clients.library import VALUE
from benchmarks.clients.opening import raw_side
from benchmarks.report.figure import middle
from benchmarks.store_address import StoreAddress

_PUTS = 1600
_ROUNDS = 3
_BUSY_SECONDS = 60.0


def puts(address: StoreAddress, threads: int) -> dict[str, float]:
    """Return puts a second, and over those of the raw client."""
    if address.is_embedded:
        ours = _library(address, threads)
        ratio = ours / _sqlite(address, threads)
    else:
        # In turn, and after a first round: whichever side begins is the slower one.
        rounds = list(_in_turn(address, threads))[1:]
        ours = middle(one for one, _ in rounds)
        ratio = middle(one / other for one, other in rounds)
    return {"threads that put: rate": ours, "threads that put: over raw": ratio}


def _library(address: StoreAddress, threads: int) -> float:
    with address.open(f"threads-{threads}") as locator:
        storage = locator.storage()
        return _rate(threads, lambda one, at: storage.put(f"many/{one}-{at}", VALUE))


def _in_turn(address: StoreAddress, threads: int) -> Iterator[tuple[float, float]]:
    """One connection for all threads; on Consul one each, for http.client has no more."""
    with address.open(f"threads-{threads}") as locator, ExitStack() as stack:
        storage = locator.storage()
        number = threads if address.store == "consul" else 1
        raws = [stack.enter_context(closing(raw_side(address))) for _ in range(number)]

        def ours(turn: int, one: int, at: int) -> None:
            storage.put(f"many/{turn}-{one}-{at}", VALUE)

        def theirs(turn: int, one: int, at: int) -> None:
            raws[one % number].put(f"{turn}-{one}-{at}")

        for turn in range(_ROUNDS + 1):
            yield _rate(threads, partial(ours, turn)), _rate(threads, partial(theirs, turn))


def _rate(threads: int, put: Callable[[int, int], object]) -> float:
    each = _PUTS // threads

    def run(one: int, ready: Barrier) -> None:
        ready.wait()
        for at in range(each):
            put(one, at)

    return timed(threads, run)


def _sqlite(address: StoreAddress, threads: int) -> float:
    """A connection for each thread, with SQLite's own busy handler."""

    def run(_: int, ready: Barrier) -> None:
        with closing(RawSide(raw_address, _BUSY_SECONDS)) as raw:
            put, arguments = raw.put(_PUTS // threads)
            ready.wait()
            for one in arguments:
                put(*one)

    with address.fresh() as raw_address:
        return timed(threads, run)


def timed(threads: int, run: Callable[[int, Barrier], None]) -> float:
    """Return puts a second from when all are *ready* to when the last one is done.

    What one of them raises is raised here: a side that ends early would seem quick.
    """
    ready = Barrier(threads + 1)

    def guarded(one: int) -> None:
        try:
            run(one, ready)
        except BaseException:
            ready.abort()
            raise

    with ThreadPoolExecutor(threads) as pool:
        under_way = [pool.submit(guarded, one) for one in range(threads)]
        with suppress(BrokenBarrierError):
            ready.wait()
        began = time.perf_counter()
        for one in under_way:
            one.result()
        return _PUTS // threads * threads / (time.perf_counter() - began)
