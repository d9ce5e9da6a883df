"""ZooKeeper as a backend."""

import weakref
from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from kip30.driver.scanning import View
from kip30_backends.zookeeper.election import ZookeeperElection
from kip30_backends.zookeeper.engine import Engine, check_not_reserved
from kip30_backends.zookeeper.faults import Faults
from kip30_backends.zookeeper.membership import ZookeeperMembership
from kip30_backends.zookeeper.scanning import ZooKeeperScanner
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.storage import ZookeeperStorage
from kip30_backends.zookeeper.watch import ZookeeperObserve


class ZookeeperBackend(Backend):
    """An ensemble of ZooKeeper servers, 3.6 or newer; older ones do with more round trips.

    Claims end with the session: by `close` at once, after a crash by the session timeout. A fence
    is the version of a node that every election writes, compared in the transaction it guards.
    """

    name = "zookeeper"
    settings_class: ClassVar[type[ZookeeperSettings]] = ZookeeperSettings
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

    def __init__(self, context: Context, settings: ZookeeperSettings) -> None:
        """Connect, and make the root of the tree if it is missing.

        Raises:
            ConfigError: The settings cannot be used. Nothing was sent.
            UnavailableError: No server answered within the connect timeout.
            AuthenticationError: The credentials are rejected, or do not suffice.
        """
        check_not_reserved(context, settings)
        engine = self._engine = Engine(context, settings)
        engine.make_root()
        self._settings = settings
        self._drop = weakref.finalize(self, engine.drop)
        self._drop.atexit = False
        self.membership = ZookeeperMembership(engine.outbox, engine.tree)
        self.election = ZookeeperElection(engine.outbox, engine.tree, engine.states)
        self.storage = ZookeeperStorage(engine.outbox, engine.tree, engine.states)
        self.observe = ZookeeperObserve(engine.outbox, engine.states, engine.watches)
        self.faults = Faults(engine.sessions, engine.outbox, engine.tree)

    @override
    @classmethod
    def scanner(cls, context: Context, settings: ZookeeperSettings, view: View) -> ZooKeeperScanner:
        return ZooKeeperScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        return self._engine.describe()

    @override
    def close(self) -> None:
        self._drop.detach()
        self._engine.close()
