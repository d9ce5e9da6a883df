"""The tests of Tooz's locks by their names, for the lock of kip30: Q20.

Those of shared locks test its read-write lock. It omits those of ``break_`` and ``heartbeat``, and
two that check the calls of a mock. Where Tooz answers false, kip30 raises, or has nothing to call,
because only a grip can be released.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip30 import NotAcquiredError, PluginLocator
from kip30.recipes import Lock, ReadWriteLock
from kip30_conformance.clients.peer import Peer
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

_LONG = 10.12


class ToozLockTests(Suite):
    """The behaviour on which programs that move from Tooz rely."""

    def test_Q20_get_lock(self, client: PluginLocator) -> None:
        """A lock is acquired and released, and again by a block."""
        lock = Lock(client, "x")
        lock.acquire().release()
        with lock.acquire():
            pass

    def test_Q20_get_lock_concurrency_locking_same_lock(self, client: PluginLocator) -> None:
        """A thread that waits for the lock object of another gets it."""
        lock = Lock(client, "x")
        with ThreadPoolExecutor(1) as pool:
            with lock.acquire():
                waiting = pool.submit(lock.acquire)
                assert not waiting.done()
            waiting.result().release()

    def test_Q20_get_lock_concurrency_locking_two_lock_process(
        self, client: PluginLocator, peer: OpenPeer
    ) -> None:
        """Another process does not get a lock that is held."""
        with Lock(client, "x").acquire():
            assert _tried_in(peer()) is None

    def test_Q20_get_lock_serial_locking_two_lock_process(
        self, client: PluginLocator, peer: OpenPeer
    ) -> None:
        """Another process gets a lock that was released."""
        Lock(client, "x").acquire().release()
        assert _tried_in(peer()) is not None

    def test_Q20_get_lock_concurrency_locking_two_lock_thread1(
        self, open_client: OpenClient
    ) -> None:
        """Another thread with a client of its own does not get a lock that is held."""
        with Lock(open_client(), "x").acquire():
            assert _in_thread(Lock(open_client(), "x").try_acquire) is None

    def test_Q20_get_lock_concurrency_locking_two_lock_thread2(self, client: PluginLocator) -> None:
        """Another thread with the same client does not get a lock that is held."""
        with Lock(client, "x").acquire():
            assert _in_thread(Lock(client, "x").try_acquire) is None

    def test_Q20_get_lock_concurrency_locking2(self, client: PluginLocator) -> None:
        """A second lock of a client does not release its first one."""
        first, second = Lock(client, "x"), Lock(client, "y")

        def hold_the_second() -> None:
            with second.acquire():
                assert first.try_acquire() is None

        with first.acquire() as grip:
            _in_thread(hold_the_second)
            grip.check()

    def test_Q20_get_lock_twice_locked_twice(self, client: PluginLocator) -> None:
        """Two objects of one client are two contenders."""
        with Lock(client, "x").acquire():
            assert Lock(client, "x").try_acquire() is None

    def test_Q20_get_lock_twice_locked_one_released_two(self, client: PluginLocator) -> None:
        """An acquire that fails gives no grip that could release the holder's."""
        first, second = Lock(client, "x"), Lock(client, "x")
        grip = first.acquire()
        assert second.try_acquire() is None
        second.close()
        grip.check()
        grip.release()

    def test_Q20_get_lock_context_check_value(self, client: PluginLocator) -> None:
        """A block gets the grip that was acquired."""
        grip = Lock(client, "x").acquire()
        with grip as given:
            assert given is grip

    def test_Q20_lock_context_manager_acquire_no_argument(self, client: PluginLocator) -> None:
        """A block holds the lock."""
        first, second = Lock(client, "x"), Lock(client, "x")
        with first.acquire():
            assert second.try_acquire() is None
        with second.acquire(0):
            pass

    def test_Q20_lock_context_manager_acquire_argument_return_value(
        self, client: PluginLocator
    ) -> None:
        """A block with a time limit holds the lock."""
        with Lock(client, "x").acquire(_LONG) as grip:
            grip.check()

    def test_Q20_lock_context_manager_acquire_argument_release_within(
        self, client: PluginLocator
    ) -> None:
        """The lock may be released within the block, and the end of it releases nothing else."""
        lock = Lock(client, "x")
        with lock.acquire(_LONG) as grip:
            grip.release()
            later = lock.acquire(0)
        later.check()

    def test_Q20_lock_context_manager_acquire_argument_timeout(self, client: PluginLocator) -> None:
        """A block without the lock is not entered."""
        first, second = Lock(client, "x"), Lock(client, "x")
        with first.acquire(), pytest.raises(NotAcquiredError), second.acquire(0):
            pytest.fail("two hold it at once")

    def test_Q20_get_lock_locked_twice(self, client: PluginLocator) -> None:
        """A lock that is held is not acquired again, by the same object either."""
        lock = Lock(client, "x")
        with lock.acquire():
            assert lock.try_acquire() is None

    def test_Q20_get_multiple_locks_with_same_coord(self, client: PluginLocator) -> None:
        """However many objects there are, one of them holds it."""
        first, second = Lock(client, "x"), Lock(client, "x")
        with first.acquire():
            assert second.try_acquire() is None
            assert Lock(client, "x").try_acquire() is None

    def test_Q20_ensure_acquire_release_return(self, client: PluginLocator) -> None:
        """Releasing again does nothing."""
        lock = Lock(client, "x")
        grip = lock.acquire()
        grip.release()
        grip.release()
        with lock.acquire(0) as later:
            grip.release()
            later.check()

    def test_Q20_get_lock_multiple_coords(self, open_client: OpenClient) -> None:
        """Another client gets a lock once it is released."""
        first, second = (Lock(open_client(), "x") for _ in range(2))
        grip = first.acquire()
        assert second.try_acquire() is None
        grip.release()
        second.acquire().release()

    def test_Q20_acquire_twice_no_deadlock_releasing(self, client: PluginLocator) -> None:
        """A second attempt without success does not keep the holder from releasing the lock."""
        lock = Lock(client, "x")
        grip = lock.acquire(0)
        assert lock.try_acquire() is None
        grip.release()
        lock.acquire(0).release()

    def test_Q20_get_shared_lock(self, client: PluginLocator) -> None:
        """A shared lock is acquired and released, and again by a block."""
        lock = ReadWriteLock(client, "x")
        lock.read().release()
        with lock.read():
            pass

    def test_Q20_get_shared_lock_locking_same_lock_twice(self, client: PluginLocator) -> None:
        """One object is acquired as often as it is asked for, and each grip is released."""
        lock = ReadWriteLock(client, "x")
        first, second = lock.read(), lock.read()
        first.release()
        second.check()
        second.release()
        second.release()
        with lock.read(0):
            pass

    def test_Q20_get_shared_lock_locking_two_lock(self, open_client: OpenClient) -> None:
        """Two clients hold a shared lock together."""
        first, second = (ReadWriteLock(open_client(), "x") for _ in range(2))
        with first.read(), second.read() as grip:
            grip.check()

    def test_Q20_get_lock_locking_shared_and_exclusive(self, open_client: OpenClient) -> None:
        """An exclusive acquire fails while a shared lock is held."""
        first, second = (ReadWriteLock(open_client(), "x") for _ in range(2))
        with first.read(), pytest.raises(NotAcquiredError):
            second.write(0)

    def test_Q20_get_lock_locking_exclusive_and_shared(self, open_client: OpenClient) -> None:
        """A shared acquire fails while an exclusive lock is held."""
        first, second = (ReadWriteLock(open_client(), "x") for _ in range(2))
        with first.write(), pytest.raises(NotAcquiredError):
            second.read(0)


def _tried_in(peer: Peer) -> int | None:
    token: int | None = peer.call("acquire", name="x", timeout_seconds=0)
    return token


def _in_thread(work: Callable[[], object]) -> object:
    """Return the result of *work* on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
