"""The suites on real servers, with a link of its own for every client."""

import weakref
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.clock import Clock
from kip30_conformance.clients.peer import Peer
from kip30_conformance.harness import ClientFaults, Harness
from kip30_conformance.interposition import Interposition
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.neighbour.opening import open_neighbour
from kip30_conformance.servers.ensemble import Ensemble
from kip30_conformance.servers.link import Link


@runtime_checkable
class StoreFaults(Protocol):
    """What a backend offers as its attribute ``faults``: only the store itself can do this."""

    def expire_session(self) -> None:
        """End this client's session in the store."""
        ...

    def delete_leader(self, service: str) -> None:
        """Remove the record of who leads *service*."""
        ...

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member of *group*."""
        ...


class ServerFaults(Interposition):
    """The faults of one client: in its process, on its link, and in the store.

    Attributes:
        link: The client's own, for trouble that the suites do not ask for.
    """

    def __init__(self, client: PluginLocator, link: Link) -> None:
        """Make trouble for *client*."""
        super().__init__(client.backend)
        self.link = link
        self._store: StoreFaults = _store_faults(client)
        self._expired = 0

    @contextmanager
    def cut_off(self) -> Generator[None]:
        """Keep this client from the store: nothing gets through, in either direction."""
        self.link.cut()
        try:
            yield
        finally:
            self.link.heal()

    def expire_session(self) -> None:
        """End this client's session in the store."""
        self._store.expire_session()
        self._expired += 1

    @override
    def on_closed(self) -> None:
        self.link.close()

    @override
    def counted(self) -> int:
        """Return the calls struck, the sessions ended, and the bytes that did not get through."""
        return super().counted() + self._expired + self.link.counted().dropped


class ServerHarness(Harness):
    """Runs the suites on an ensemble, which it does not own.

    Attributes:
        ensemble: The servers.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        """Test the store on *ensemble*."""
        self.ensemble = ensemble
        self.session_seconds = ensemble.session_seconds or self.session_seconds
        self._faults = weakref.WeakKeyDictionary[PluginLocator, ServerFaults]()

    @override
    def settings(self) -> Mapping[str, Written]:
        return self.ensemble.settings()

    @override
    def open(self, root: str, *, clock: Clock | None = None, **more: Written) -> PluginLocator:
        link = self.ensemble.link()
        try:
            client = super().open(root, clock=clock, **{**link.settings(), **more})
            self._faults[client] = ServerFaults(client, link)
        except BaseException:
            link.close()
            raise
        return client

    @override
    def faults(self, client: PluginLocator) -> ClientFaults | None:
        return self._faults.get(client)

    @override
    def delete_leader(self, root: str, service: str) -> None:
        with super().open(root) as client:
            _store_faults(client).delete_leader(service)

    @override
    def neighbour(self, root: str) -> Neighbour:
        return open_neighbour(self.ensemble.settings(), root)

    @override
    def delete_member(self, root: str, group: str, member_id: str) -> None:
        with super().open(root) as client:
            _store_faults(client).delete_member(group, member_id)

    @override
    def frozen(self) -> AbstractContextManager[None]:
        return self.ensemble.frozen()

    @contextmanager
    @override
    def late_answers(self, client: PluginLocator) -> Generator[None]:
        link = self._faults[client].link
        link.half_open("client")
        try:
            yield
        finally:
            link.heal()

    @override
    def servers(self) -> Ensemble:
        return self.ensemble

    @contextmanager
    @override
    def peer(self, root: str, **more: Written) -> Generator[Peer]:
        with (
            self.ensemble.link() as link,
            super().peer(root, **{**link.settings(), **more}) as peer,
        ):
            yield peer


def _store_faults(client: PluginLocator) -> StoreFaults:
    faults = getattr(client.backend, "faults", None)
    if not isinstance(faults, StoreFaults):
        raise TypeError(f"store {client.backend.name!r} offers no faults: see `StoreFaults`")
    return faults
