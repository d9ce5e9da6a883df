"""Cassandra as a backend."""

import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, Limits
from kip30.driver.records import Pruned
from kip30.driver.scanning import View
from kip30_backends.cassandra.election import CassandraElection, Pruning
from kip30_backends.cassandra.engine import Engine
from kip30_backends.cassandra.faults import Faults
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.membership import CassandraMembership
from kip30_backends.cassandra.scanning import CassandraScanner
from kip30_backends.cassandra.schema import ddl
from kip30_backends.cassandra.settings import CassandraSettings
from kip30_backends.cassandra.storage import CassandraStorage
from kip30_backends.cassandra.watch import CassandraObserve

_PULL_SECONDS = 0.5


class CassandraBackend(Backend):
    """A Cassandra cluster, version 3.0.24, 3.11.10, 4.0 or later.

    A crashed or silent client keeps its claims for the session timeout, rounded up to whole
    seconds, and up to a second more. Observers hear of changes by looking, twice a second.
    """

    name = "cassandra"
    settings_class: ClassVar[type[CassandraSettings]] = CassandraSettings
    capabilities = frozenset(
        {
            Capability.COMPARE_AND_SET,
            Capability.FENCING,
            Capability.LISTING,
            Capability.FORKING,
            Capability.SCANNING,
        }
    )
    is_blocking = False
    limits = Limits(observe_seconds=_PULL_SECONDS)

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Connect.

        Raises:
            ConfigError: Settings contradict each other, or a file cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials or certificates.
            StoreError: Its servers are too old, or the tables are missing and not to be made.
            UnavailableError: No node answered in the connect timeout.
        """
        engine = self._engine = Engine(context, settings)
        self._drop = weakref.finalize(self, engine.drop)
        self._drop.atexit = False
        self.limits = Limits(observe_seconds=settings.pull_seconds)
        calls, claims = engine.calls, engine.claims
        fences = Fences(calls)
        self.membership = CassandraMembership(calls, claims, engine.folds)
        self.election = CassandraElection(calls, claims, fences)
        self.storage = CassandraStorage(calls, fences, engine.folds)
        self.observe = CassandraObserve(engine.states, engine.watches)
        self._pruning = Pruning(calls, fences)
        self.faults = Faults(calls, claims)

    @classmethod
    @override
    def ddl(cls, settings: CassandraSettings) -> Sequence[str]:
        return ddl(settings)

    @classmethod
    @override
    def scanner(cls, context: Context, settings: CassandraSettings, view: View) -> CassandraScanner:
        return CassandraScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        return self._engine.describe()

    @override
    def prune(self, unused_seconds: float, *, dry_run: bool, after: str = "") -> Future[Pruned]:
        return self._pruning.prune(unused_seconds, after, dry_run=dry_run)

    @override
    def close(self) -> None:
        self._drop.detach()
        self._engine.close()
