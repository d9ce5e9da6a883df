"""A modelled store that clients reach by a name, and how its server stops and starts."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kip30.errors import ConfigError
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network


class ModelService(NamedTuple):
    """A modelled store, and the network before it."""

    store: ModelStore
    network: Network

    def stop(self) -> None:
        """Let the server serve nothing, and end no session, until `restart`."""
        self.network.is_down = self.store.is_down = True

    def restart(self) -> None:
        """Let the server serve again; every session lasts its whole time from now."""
        self.network.is_down = self.store.is_down = False
        self.store.has_restarted()

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Suspend the server in the block: requests that arrive meanwhile are served at its end.

        No session ends meanwhile, and each lasts its whole time from then on.
        """
        self.store.is_down = True
        try:
            with self.network.frozen():
                yield
        finally:
            self.restart()


_offered: Final[dict[str, ModelService]] = {}


@contextmanager
def offered(name: str, service: ModelService) -> Generator[None]:
    """Let clients with ``plugin.model.store`` = *name* reach *service* in the block."""
    _offered[name] = service
    try:
        yield
    finally:
        del _offered[name]


def service_named(name: str) -> ModelService:
    """Return the service that is offered under *name*.

    Raises:
        ConfigError: There is none.
    """
    if name not in _offered:
        raise ConfigError(f"plugin.model.store = {name}: no such store is offered")
    return _offered[name]
