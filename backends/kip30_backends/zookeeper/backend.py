"""ZooKeeper as a backend."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.watch import Observe
from kip30.driver.scanning import View
from kip30_backends.zookeeper.election import ZookeeperElection
from kip30_backends.zookeeper.membership import ZookeeperMembership
from kip30_backends.zookeeper.resources import Resources, check_not_reserved
from kip30_backends.zookeeper.scanning import ZookeeperScanner
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.storage import ZookeeperStorage


class ZookeeperBackend(Backend):
    """An ensemble of ZooKeeper servers, 3.6 or newer; older ones need more round trips.

    Claims end with the session: by `close` at once, after a crash by the session timeout. A fence
    is the version of a node that every election writes, compared in the transaction it guards.
    """

    name = "zookeeper"
    settings_class: ClassVar[type[ZookeeperSettings]] = ZookeeperSettings
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

    def __init__(self, context: Context, settings: ZookeeperSettings) -> None:
        """Connect, and create the root of the tree if it is missing.

        Raises:
            ConfigError: The settings cannot be used, or not with the timeout that is granted.
                Nothing was created.
            UnavailableError: No server answered within the connect timeout.
            AuthenticationError: The credentials are rejected, or lack permissions.
        """
        check_not_reserved(context, settings)
        resources = self._resources = Resources(context, settings)
        resources.make_root()
        self._settings = settings
        self._drop = close_when_dropped(self, resources.drop)
        self.membership = ZookeeperMembership(resources.outbox, resources.tree)
        self.election = ZookeeperElection(resources.outbox, resources.tree, resources.states)
        self.storage = ZookeeperStorage(resources.outbox, resources.tree, resources.states)
        self.observe = Observe(resources.read, resources.watches.add)
        self.faults = resources.sessions

    @override
    @classmethod
    def servers(cls, settings: ZookeeperSettings) -> Sequence[tuple[str, ZookeeperSettings]]:
        connect = settings.connect
        return [
            (str(one), replace(settings, connect=connect._replace(servers=(one,))))
            for one in connect.servers
        ]

    @override
    @classmethod
    def scanner(cls, context: Context, settings: ZookeeperSettings, view: View) -> ZookeeperScanner:
        return ZookeeperScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        return self._resources.describe()

    @override
    def close(self) -> None:
        self._drop.detach()
        self._resources.close()
