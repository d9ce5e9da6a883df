"""The store to measure, and its place."""

from typing import NamedTuple, Self

from typing_extensions import override

from kip30 import PluginLocator
from kip30_conformance.servers import Ensemble, Link

SESSION_SECONDS = 8.0
_STORE = "plugin.backend"
_ADDRESSES = {
    "zookeeper": "zookeeper.connect",
    "etcd": "plugin.etcd.endpoints",
    "consul": "plugin.consul.address",
    "cassandra": "plugin.cassandra.contact.points",
}
STORES = tuple(_ADDRESSES)


class Place(NamedTuple):
    """A *store* at ``host:port``. As text it can be passed to other processes."""

    store: str
    address: str

    @classmethod
    def parse(cls, text: str) -> Self:
        store, _, address = text.partition("=")
        return cls(store, address)

    @classmethod
    def of(cls, servers: Ensemble | Link) -> Self:
        """Return the place that *servers* are, reached as their settings say."""
        (address,) = (value for key, value in servers.settings().items() if key != _STORE)
        return cls(servers.settings()[_STORE], address)

    @override
    def __str__(self) -> str:
        return f"{self.store}={self.address}"

    def observe_seconds(self) -> float:
        """Return the maximum delay of observers, as the backend declares it.

        It is 0 where the store notifies them.
        """
        with self.started() as locator:
            return locator.backend.limits.observe_seconds

    def started(
        self, namespace: str = "bench", session_seconds: float = SESSION_SECONDS
    ) -> PluginLocator:
        return PluginLocator().startup(self.settings(namespace, session_seconds))

    def settings(self, namespace: str, session_seconds: float = SESSION_SECONDS) -> dict[str, str]:
        return {
            _STORE: self.store,
            _ADDRESSES[self.store]: self.address,
            "plugin.namespace": namespace,
            "plugin.session.timeout.ms": f"{session_seconds * 1000:.0f}",
        }
