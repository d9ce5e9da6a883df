"""The harness that a backend's test file supplies to run the suites against its store."""

import itertools
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from kip30 import PluginLocator, UnsupportedError
from kip30.config import Written
from kip30.driver.clock import Clock
from kip30_conformance.client_faults import ClientFaults, InProcessFaults, hook
from kip30_conformance.clients.peer import Peer
from kip30_conformance.neighbour.base import Neighbour, Spot, leader, member
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble
from kip30_conformance.unreachable import nowhere

SESSION_SECONDS = 2.0
OPERATION_SECONDS = 1.5
STEADY_FACTOR = 10
STEADY_SECONDS = 20.0
"""The longest session to request: a ZooKeeper refuses more than 20 of its ticks."""


class Harness(ABC):
    """One store under test. Subclasses say how to configure a client; the rest is the suite's.

    Attributes:
        session_seconds: Session timeout of clients that may lose their session.
        operation_seconds: Operation timeout of the same clients.
        crash_seconds: Time beyond a session timeout for which the store may keep a dead client's
            claims.
        processes_per_crowd_fault: Number of processes of a crowd that are killed or stopped, one at
            a time.
        client_threads: Threads, at most, of a client that the driver has in place of a vendor's.
        peer_class: Class of a client in a separate process.
    """

    session_seconds: float = SESSION_SECONDS
    operation_seconds: float = OPERATION_SECONDS
    crash_seconds: float = 2.0
    processes_per_crowd_fault: int = 30
    client_threads: int = 0
    peer_class: type[Peer] = Peer
    _roots = itertools.count()

    @cached_property
    def _faults(self) -> weakref.WeakKeyDictionary[PluginLocator, ClientFaults]:
        return weakref.WeakKeyDictionary()

    @property
    def soon(self) -> float:
        """Seconds within which anything must happen that does not wait for a session to expire."""
        return self.session_seconds / 2

    @property
    def crash_patience(self) -> float:
        """Seconds within which the store must release the claims of a dead or silent client."""
        return self.session_seconds + self.crash_seconds

    @property
    def timeouts(self) -> Mapping[str, Any]:
        """Timeouts for clients that lose their session, or the store: short."""
        return _timeouts(self.session_seconds, self.operation_seconds)

    @property
    def patient(self) -> Mapping[str, Any]:
        """Timeouts for clients that keep both: longer on a slow machine."""
        factor = min(time_scale(), STEADY_SECONDS / self.session_seconds)
        return _timeouts(factor * self.session_seconds, factor * self.operation_seconds)

    @property
    def steady(self) -> Mapping[str, Any]:
        """Timeouts for a client without faults, in a check about faults: very long.

        A busy machine that delays its renewals must not end its claims.
        """
        factor = STEADY_FACTOR * max(1.0, time_scale())
        session = max(self.session_seconds, min(factor * self.session_seconds, STEADY_SECONDS))
        return _timeouts(session, min(session, 4 * self.operation_seconds))

    @property
    def contended(self) -> Mapping[str, Any]:
        """Timeouts for clients that make hundreds of calls at once, none of which may fail."""
        session = self.steady["plugin.session.timeout.ms"]
        return {**self.steady, "plugin.operation.timeout.ms": session}

    @abstractmethod
    def settings(self) -> Mapping[str, Written]:
        """Return the properties that reach the store, without namespace and timeouts."""

    def unique_root(self) -> str:
        """Return an unused namespace."""
        return f"conform-{os.getpid()}-{next(self._roots)}-{os.urandom(4).hex()}"

    def properties(self, root: str, **more: Written) -> dict[str, Written]:
        """Return the whole configuration of a client of *root*."""
        return {
            **self.timeouts,
            **self.settings(),
            "plugin.namespace": root,
            **more,
        }

    def open(self, root: str, *, clock: Clock | None = None, **more: Written) -> PluginLocator:
        """Return a new client of *root*, with a connection and a session of its own."""
        client = self.started(root, clock=clock, **more)
        milliseconds = {**self.timeouts, **more}["plugin.operation.timeout.ms"]
        self._faults[client] = InProcessFaults(client, float(str(milliseconds)) / 1000)
        return client

    def open_steady(
        self, root: str, *, clock: Clock | None = None, **more: Written
    ) -> PluginLocator:
        """Return a new client of *root* that is never cut off from the store.

        It may be connected in a cheaper way than those of `open`, which it is by default.
        """
        return self.open(root, clock=clock, **more)

    def started(self, root: str, *, clock: Clock | None = None, **more: Written) -> PluginLocator:
        """Return a new client of *root* that no faults can happen to."""
        return PluginLocator(clock=clock).startup(self.properties(root, **more))

    def nowhere(self, root: str, **more: Written) -> AbstractContextManager[Mapping[str, Written]]:
        """Return a configuration that reaches no store in the block."""
        return nowhere(self.properties(root, **more))

    def faults(self, client: PluginLocator) -> ClientFaults:
        """Return the faults of *client*, which this has opened."""
        return self._faults[client]

    def delete_leader(self, root: str, service: str) -> None:
        """Remove the record of the leader of *service*, without any client's knowledge.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        self._delete(root, leader(service), "delete_leader", service)

    def delete_member(self, root: str, group: str, member_id: str) -> None:
        """Remove the record of a member, without any client's knowledge.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        self._delete(root, member(group, member_id), "delete_member", group, member_id)

    def neighbour(self, root: str) -> Neighbour:
        """Return another program, which writes to the namespace *root* with a client of its own.

        Raises:
            UnsupportedError: This harness has none.
        """
        # A reason names nothing of one check, so that reports count the checks skipped for it.
        del root
        raise UnsupportedError("the harness has no other program that could write to the store")

    def frozen(self) -> AbstractContextManager[None]:
        """Keep the store from accepting any write, of any client, in the block.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError("no way to freeze the store")

    def late_answers(self, client: PluginLocator) -> AbstractContextManager[None]:
        """Hold back the store's answers to *client* in the block; requests are done.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError(f"no way to keep the answers of {client.backend.name!r} back")

    def servers(self) -> Ensemble:
        """Return the servers of the store, for faults of them and of the network to them.

        Raises:
            UnsupportedError: The store has none, or they are not this harness's to harm.
        """
        raise UnsupportedError("no servers that may be harmed")

    @contextmanager
    def peer(self, root: str, **more: Written) -> Generator[Peer]:
        """Run a client of *root* in a process of its own, to be killed or stopped."""
        peer = self.peer_class(self.properties(root, **more))
        try:
            yield peer
        finally:
            peer.end()

    def _delete(self, root: str, spot: Spot, method: str, *names: str) -> None:
        """Remove the record at *spot* with another program, or with a *method* of the backend."""
        try:
            neighbour = self.neighbour(root)
        except UnsupportedError:
            with self.started(root) as client:
                hook(client.backend, method)(*names)
            return
        with neighbour:
            neighbour.remove(spot)


def _timeouts(session_seconds: float, operation_seconds: float) -> dict[str, Written]:
    return {
        "plugin.session.timeout.ms": round(session_seconds * 1000),
        "plugin.operation.timeout.ms": round(operation_seconds * 1000),
    }
