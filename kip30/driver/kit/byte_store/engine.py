"""The four drivers over one `ByteStore`, put together, and taken apart in the right order."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kip30.driver.contract import Context, ElectionDriver, MembershipDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.byte_store.claims import Claims
from kip30.driver.kit.byte_store.interface import ByteStore, Commit, StorePosition
from kip30.driver.kit.byte_store.session import Sessions
from kip30.driver.kit.byte_store.storage import ByteStorage
from kip30.driver.kit.byte_store.target_states import TargetStates
from kip30.driver.kit.key_claims import KeyElection, KeyMembership
from kip30.driver.kit.lifecycle import CloseOnce, on_thread_of
from kip30.driver.kit.polled_watches import PolledWatches
from kip30.driver.kit.watch import Observe
from kip30.driver.records import Snapshot, Target

T = TypeVar("T")


class ByteStoreEngine:
    """An open store. A backend makes one, and hands out its drivers.

    Attributes:
        membership: The driver of groups.
        election: The driver of services.
        storage: The driver of values.
        observe: The driver of targets.
    """

    def __init__(self, context: Context, store: ByteStore, name: str) -> None:
        """Read from *store* once, to check that it works.

        Args:
            context: What the backend is opened with.
            store: Is closed with this, also if this fails.
            name: That of the backend; threads are named after it.

        Raises:
            Kip30Error: What `ByteStore.get` raises.
            UnavailableError: The system has no thread to spare.
        """
        thread = f"kip30-{name}"
        self._store = store
        self._pid = os.getpid()
        self._calls = BlockingCalls(thread, seconds=context.operation_timeout_seconds)
        self._sessions = Sessions(context, store, thread)
        self._states = TargetStates(store, Paths(context.namespace))
        # How far the store was when the last wait ended; a change since ends the next at once.
        self._known = StorePosition("", 0)
        self._watches = PolledWatches(
            f"{thread}-watch", self._calls, read=self._read_now, wait=self._wait
        )
        self._close_once = CloseOnce(on_thread_of(thread))
        claims = Claims(store, self._calls, self._states, self._sessions)
        self.membership: MembershipDriver = KeyMembership(claims, self._states.paths.member)
        self.election: ElectionDriver = KeyElection(claims, self._states.leader_key)
        self.storage: ByteStorage = ByteStorage(store, self._calls, self._states)
        self.observe: Observe = Observe(self._read, self._watches.add)
        try:
            self._sessions.start()
            store.get([], time.monotonic() + context.connect_timeout_seconds)
        except BaseException:
            self.close()
            raise

    def call(self, work: Callable[[float], T]) -> T:
        """Return what *work* does with the store by the operation timeout, as for `describe`.

        Raises:
            ClosedError: The backend is closed. Nothing was done.
            LifecycleError: It belongs to the parent of this forked process. Nothing was done.
        """
        return self._calls.on_demand(work).result()

    def expire_session(self) -> None:
        """End this client's session in the store, as if it had run out there; for tests."""
        self.call(self._sessions.expire)

    def delete_leader(self, service: str) -> None:
        """Remove the record of the leader of *service*, as an operator might; for tests."""
        self._delete(self._states.leader_key(service))

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member of *group*, as an operator might; for tests."""
        self._delete(self._states.paths.member(group, member_id))

    def close(self) -> None:
        """End the session, all watches, calls and threads, and close the store. Idempotent."""
        self._close_once.once(self._close)

    def _close(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child: all of it is the parent's
        # No further call begins and nothing more is delivered; the lease ends while the store is
        # open; closing the store ends the calls under way, for which threads wait.
        self._calls.gate.close()
        self._watches.stop()
        self._sessions.close()
        self._store.close()
        self._sessions.join()
        self._calls.close()
        self._watches.join()

    def _read(self, target: Target) -> Future[Snapshot]:
        return self._calls.on_demand(lambda until: self._states.read(target, until))

    def _read_now(self, target: Target) -> Snapshot:
        return self._states.read(target, time.monotonic() + self._calls.seconds)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds + self._calls.seconds
        self._known = self._store.wait(self._known, seconds, until)

    def _delete(self, key: str) -> None:
        self.call(lambda until: self._store.commit([Commit({}, {}, [key])], until))
