"""Guarantees of the recipes when holders die, stall or lose the store: Q05, Q06 and Q12."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip30 import FencedError, NotAcquiredError, PluginLocator
from kip30.driver import Capability
from kip30.recipes import Barrier, Grip, Lock, ReadWriteLock, Semaphore
from kip30.recipes.barrier import barrier_group
from kip30_conformance.clients.peer import Peer, settled
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported
from kip30_conformance.suites.recipes import A_MOMENT, both

_Acquire = Callable[[float], Grip]

in_line = pytest.mark.parametrize("kind", ["read", "write", "permit"])


@pytest.mark.fault
class RecipeFaultTests(Suite):
    """A dead or stalled holder is replaced in time, and finds its grip lost when it resumes."""

    @both
    def test_Q05_killed_holder(
        self,
        open_client: OpenClient,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        *,
        fair: bool,
    ) -> None:
        """A lock whose holder was killed is acquired within the session timeout."""
        holder, lock = peer(), Lock(open_client(), "x", fair=fair)
        token = holder.call("acquire", name="x", fair=fair)
        assert lock.try_acquire() is None
        holder.kill()
        with lock.acquire(harness.crash_patience) as grip:
            assert grip.token > token
        evidence.saw("dead process", holder.pid)

    @in_line
    def test_Q05_killed_holder_in_line(
        self,
        open_client: OpenClient,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        kind: str,
    ) -> None:
        """A read-write lock or permit whose holder was killed is acquired, as a lock is."""
        holder, acquire = peer(), _others(open_client(), kind)
        token = holder.call("hold", kind=kind, name="x")
        with pytest.raises(NotAcquiredError):
            acquire(0)
        holder.kill()
        with acquire(harness.crash_patience) as grip:
            assert grip.token > token
        evidence.saw("dead process", holder.pid)

    @in_line
    def test_Q06_stopped_holder_in_line(
        self,
        open_client: OpenClient,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        kind: str,
    ) -> None:
        """A holder of one that was stopped for too long finds its grip over."""
        holder = peer()
        token = holder.call("hold", kind=kind, name="x")
        holder.stop()
        acquire = _others(open_client(**harness.steady), kind)
        with acquire(10 + harness.crash_patience) as grip:
            assert grip.token > token
            holder.resume()
            assert not holder.call("holds", name="x")
            assert holder.call("lost", name="x")
        evidence.saw("stopped process", holder.pid)

    def test_Q12_barrier_and_a_death(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A party that died is not counted once its session has ended."""
        clients = [open_client(**harness.steady) for _ in range(3)]
        if Capability.COMPARE_AND_SET not in clients[0].backend.capabilities:
            pytest.skip("a barrier needs compare-and-set")
        line = clients[0].group_membership(barrier_group("x"))
        dead = peer()
        dead.send("wait_at_barrier", name="x", parties=3)
        eventually(lambda: len(line.membership_list()) == 1, what="it waits")
        dead.kill()
        eventually(
            lambda: not line.membership_list(),
            within=10 + harness.crash_patience,
            what="its session is over",
        )
        first, *others = (Barrier(client, "x", 3) for client in clients)
        patience = 10 * harness.crash_patience
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(barrier.wait, patience) for barrier in others]
            eventually(lambda: len(line.membership_list()) == 2, what="both wait")
            throughout(lambda: not any(one.done() for one in waiting), seconds=A_MOMENT)
            assert first.wait(patience) == 2
            assert sorted(one.result() for one in waiting) == [0, 1]
        evidence.saw("dead process", dead.pid)

    @both
    def test_Q06_stopped_holder_knows(
        self,
        open_client: OpenClient,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        *,
        fair: bool,
    ) -> None:
        """A holder that was stopped for too long finds its grip over, and cannot write with it."""
        client, holder = open_client(**harness.steady), peer()
        token = holder.call("acquire", name="x", fair=fair)
        client.storage().put("key", "kept")
        holder.stop()
        with Lock(client, "x", fair=fair).acquire(10 + harness.crash_patience) as grip:
            assert grip.token > token
            holder.resume()
            assert not holder.call("holds", name="x")
            assert holder.call("lost", name="x")
            if Capability.FENCING in client.backend.capabilities:
                kind = eventually(
                    lambda: settled(lambda: _write(holder, token)), what="the write is answered"
                )
                assert kind == FencedError.__name__
        evidence.saw("stopped process", holder.pid)

    @both
    def test_Q06_store_away(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence, *, fair: bool
    ) -> None:
        """A grip is lost once the store was away for too long; afterwards the lock works again."""
        client = open_client()
        faults, lock = harness.faults(client), Lock(client, "x", fair=fair)
        grip = lock.acquire()
        with supported(faults.cut_off):
            client.storage().fetch("unanswered")
            assert grip.lost.wait(2 * harness.crash_patience)
            assert not grip.is_valid()
            evidence.saw("cut connection", faults.counted())
        grip.close()
        with lock.acquire(2 * harness.crash_patience) as later:
            assert later.token > grip.token


def _others(client: PluginLocator, kind: str) -> _Acquire:
    """Return a function that acquires what a holder of *kind* excludes."""
    lock, semaphore = ReadWriteLock(client, "x"), Semaphore(client, "x", 1)
    if kind == "permit":
        return lambda seconds: semaphore.acquire(1, seconds)
    return lock.write if kind == "read" else lock.read


def _write(holder: Peer, token: int) -> object:
    return holder.call("update", key="key", value="late", fence=["kip30.lock/x", token])
