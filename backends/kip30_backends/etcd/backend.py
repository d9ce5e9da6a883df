"""etcd as a backend."""

import weakref
from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from kip30.driver.scanning import View
from kip30_backends.etcd.claims import Claims
from kip30_backends.etcd.election import EtcdElection
from kip30_backends.etcd.engine import Engine
from kip30_backends.etcd.faults import Faults
from kip30_backends.etcd.membership import EtcdMembership
from kip30_backends.etcd.scanning import EtcdScanner
from kip30_backends.etcd.settings import EtcdSettings
from kip30_backends.etcd.storage import EtcdStorage
from kip30_backends.etcd.watch import EtcdObserve


class EtcdBackend(Backend):
    """A cluster of etcd servers, version 3.4 or later.

    A crashed or silent client keeps its claims for the session timeout, rounded up to whole
    seconds and to two at least, and as much again if the cluster changes its own leader meanwhile.
    """

    name = "etcd"
    settings_class: ClassVar[type[EtcdSettings]] = EtcdSettings
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

    def __init__(self, context: Context, settings: EtcdSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is connected.
            AuthenticationError: The cluster wants other credentials or certificates.
            UnavailableError: No server answered in the connect timeout.
            UnsupportedError: The connection is borrowed, and this is a forked child.
            LifecycleError: This is a forked child, and gRPC cannot be loaded once more.
        """
        if settings.client:
            self.capabilities -= {Capability.FORKING}
        engine = self._engine = Engine(context, settings)
        self._drop = weakref.finalize(self, engine.drop)
        self._drop.atexit = False
        claims = Claims(engine.calls, engine.sessions)
        self.membership = EtcdMembership(engine.paths, claims)
        self.election = EtcdElection(engine.paths, claims)
        self.storage = EtcdStorage(engine.paths, engine.calls, engine.states)
        self.observe = EtcdObserve(engine.states, engine.watches)
        self.faults = Faults(engine.paths, engine.calls, engine.sessions)

    @override
    @classmethod
    def scanner(cls, context: Context, settings: EtcdSettings, view: View) -> EtcdScanner:
        return EtcdScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        calls = self._engine.calls
        status = calls.status()
        return {
            "version": f"etcd {status.version}",
            "server": calls.endpoints.current.server,
            "leader": f"{status.leader:x}",
            "size": f"{status.dbSize} bytes",
            "session timeout": f"{self._engine.sessions.asked_seconds} s",
        }

    @override
    def close(self) -> None:
        self._drop.detach()
        self._engine.close()
