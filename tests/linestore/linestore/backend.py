"""The class that the entry point names: connects, declares, and provides the four drivers."""

from collections.abc import Mapping

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, Limits
from kip30.driver.kit.byte_store import ByteStoreEngine
from linestore.connections import MOST_IDLE, Connections
from linestore.settings import LineSettings
from linestore.store import LineStore


class LineBackend(Backend):
    """A store behind a socket."""

    name = "line"
    settings_class = LineSettings
    capabilities = frozenset(
        {
            Capability.COMPARE_AND_SET,
            Capability.FENCING,
            Capability.GUARDS,
            Capability.LISTING,
            Capability.FORKING,
        }
    )
    limits = Limits(idle_descriptors=MOST_IDLE)
    is_blocking = False

    @override
    def __init__(self, context: Context, settings: LineSettings) -> None:
        self._connections = Connections(settings.address[0])
        self._store = LineStore(self._connections)
        engine = self._engine = ByteStoreEngine(context, self._store, self.name)
        self.membership = engine.membership
        self.election = engine.election
        self.storage = engine.storage
        self.observe = engine.observe
        self.faults = engine

    @override
    def describe(self) -> Mapping[str, str]:
        reading = self._engine.call(lambda until: self._store.get([], until))
        return {
            "version": "line store 1.0",
            "server": self._connections.server,
            "revision": str(reading.position.revision),
        }

    @override
    def close(self) -> None:
        self._engine.close()
