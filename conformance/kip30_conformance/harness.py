"""What a backend's test file supplies so that the suites can be run against its store."""

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

from kip30 import PluginLocator, UnsupportedError
from kip30.config import Written
from kip30.driver.clock import Clock
from kip30_conformance.clients.peer import Peer
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.polling import TIME_SCALE
from kip30_conformance.servers import Ensemble
from kip30_conformance.unreachable import nowhere

SESSION_SECONDS = 2.0
OPERATION_SECONDS = 1.5
STEADY_FACTOR = 10
STEADY_SECONDS = 20.0
"""The longest session to request: a ZooKeeper refuses more than 20 of its ticks."""


@runtime_checkable
class ClientFaults(Protocol):
    """Faults a backend object can inject into itself, as its attribute ``faults``."""

    def lose_answers(self, operation: str, *, times: int = 1) -> None:
        """Let the next *times* calls of a driver method (``storage.write``) commit unanswered."""
        ...

    def fail(self, operation: str, *, times: int = 1) -> None:
        """Let the next *times* calls of a driver method be refused, with nothing done."""
        ...

    def delay(self, operation: str, seconds: float, *, times: int = 1) -> None:
        """Let the next *times* calls of a driver method begin *seconds* late."""
        ...

    def cut_off(self) -> AbstractContextManager[None]:
        """Keep this client from the store: no call, renewal or notification gets through."""
        ...

    def expire_session(self) -> None:
        """End this client's session in the store, as if it had run out there."""
        ...

    def counted(self) -> int:
        """Return how many faults have been injected so far: the evidence."""
        ...


class Harness(ABC):
    """One store under test. Subclasses say how to configure a client; the rest is the suite's."""

    session_seconds: float = SESSION_SECONDS
    operation_seconds: float = OPERATION_SECONDS
    crash_seconds: float = 2.0
    kept_descriptors: int = 0
    """How many descriptors the store's library may keep for its next connections."""
    _roots = itertools.count()

    @property
    def soon(self) -> float:
        """Seconds within which must happen what does not wait for a session to run out."""
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
        return _timeouts(self.session_seconds * TIME_SCALE, self.operation_seconds * TIME_SCALE)

    @property
    def steady(self) -> Mapping[str, Any]:
        """Timeouts for a client in a check about faults that no fault happens to: very long.

        A busy machine that delays its renewals must not end its claims.
        """
        factor = STEADY_FACTOR * max(1.0, TIME_SCALE)
        session = max(self.session_seconds, min(factor * self.session_seconds, STEADY_SECONDS))
        return _timeouts(session, min(session, 4 * self.operation_seconds))

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
        return PluginLocator(clock=clock).startup(self.properties(root, **more))

    def nowhere(self, root: str, **more: Written) -> AbstractContextManager[Mapping[str, Written]]:
        """Return a configuration that reaches no store for as long as this lasts."""
        return nowhere(self.properties(root, **more))

    def faults(self, client: PluginLocator) -> ClientFaults | None:
        """Return the faults that can be injected into *client*, if its store has hooks for them."""
        faults = getattr(client.backend, "faults", None)
        return faults if isinstance(faults, ClientFaults) else None

    def delete_leader(self, root: str, service: str) -> None:
        """Remove the record of who leads *service*, behind the back of every client.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError(
            f"no way to remove the leader of {service!r} in {root!r} from outside"
        )

    def neighbour(self, root: str) -> Neighbour:
        """Return another program, which writes to the namespace *root* with a client of its own.

        Raises:
            UnsupportedError: This harness has none.
        """
        raise UnsupportedError(f"no other program that could write to {root!r}")

    def delete_member(self, root: str, group: str, member_id: str) -> None:
        """Remove the record of a member, behind the back of every client.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError(
            f"no way to remove member {member_id!r} of {group!r} in {root!r} from outside"
        )

    def frozen(self) -> AbstractContextManager[None]:
        """Keep the store from taking any write, of any client, while this lasts.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError("no way to freeze the store")

    def late_answers(self, client: PluginLocator) -> AbstractContextManager[None]:
        """Hold back what the store answers *client* while this lasts; requests are done.

        Raises:
            UnsupportedError: This harness does not know how.
        """
        raise UnsupportedError(f"no way to keep the answers of {client.backend.name!r} back")

    def servers(self) -> Ensemble:
        """Return the servers of the store, for trouble with them and on the way to them.

        Raises:
            UnsupportedError: The store has none, or they are not this harness's to harm.
        """
        raise UnsupportedError("no servers that may be harmed")

    @contextmanager
    def peer(self, root: str, **more: Written) -> Generator[Peer]:
        """Run a client of *root* in a process of its own, to be killed or stopped."""
        peer = Peer(self.properties(root, **more))
        try:
            yield peer
        finally:
            peer.end()


def _timeouts(session_seconds: float, operation_seconds: float) -> dict[str, Written]:
    return {
        "plugin.session.timeout.ms": round(session_seconds * 1000),
        "plugin.operation.timeout.ms": round(operation_seconds * 1000),
    }
