"""Cassandra as a backend."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, Limits
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.watch import Observe
from kip30.driver.records import Pruned
from kip30.driver.scanning import View
from kip30_backends.cassandra.election import CassandraElection, Fences, Pruning
from kip30_backends.cassandra.membership import CassandraMembership
from kip30_backends.cassandra.resources import Resources
from kip30_backends.cassandra.scanning import CassandraScanner
from kip30_backends.cassandra.schema import ddl
from kip30_backends.cassandra.settings import CassandraSettings
from kip30_backends.cassandra.storage import CassandraStorage

_PULL_SECONDS = 0.5


class CassandraBackend(Backend):
    """A Cassandra cluster, version 3.0.24, 3.11.10, 4.0 or later.

    A crashed or silent client keeps its claims for the session timeout, rounded up to whole
    seconds, and up to a second more. Observers poll for changes, twice a second.
    """

    name = "cassandra"
    settings_class: ClassVar[type[CassandraSettings]] = CassandraSettings
    capabilities = frozenset(
        {
            Capability.COMPARE_AND_SET,
            Capability.FENCING,
            Capability.GUARDS,
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
        resources = self._resources = Resources(context, settings)
        self._drop = close_when_dropped(self, resources.drop)
        self.limits = Limits(observe_seconds=settings.pull_seconds)
        calls, claims = resources.calls, resources.claims
        fences = Fences(calls)
        self.membership = CassandraMembership(calls, claims, resources.folding)
        self.election = CassandraElection(calls, claims, fences)
        self.storage = CassandraStorage(calls, fences, resources.folding)
        self.observe = Observe(resources.states.read, resources.watches.add)
        self._pruning = Pruning(calls, fences)
        self.faults = claims

    @classmethod
    @override
    def ddl(cls, settings: CassandraSettings) -> Sequence[str]:
        return ddl(settings)

    @classmethod
    @override
    def servers(cls, settings: CassandraSettings) -> Sequence[tuple[str, CassandraSettings]]:
        return [(str(one.contact_points[0]), one) for one in settings.nodes_apart()]

    @classmethod
    @override
    def scanner(cls, context: Context, settings: CassandraSettings, view: View) -> CassandraScanner:
        return CassandraScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        return self._resources.describe()

    @override
    def prune(self, unused_seconds: float, *, dry_run: bool, after: str = "") -> Future[Pruned]:
        return self._pruning.prune(unused_seconds, after, dry_run=dry_run)

    @override
    def close(self) -> None:
        self._drop.detach()
        self._resources.close()
