"""The suites on real servers, with a link of its own for every client that may be cut off.

A link costs every request two passes through a process in Python, so other clients have none.
"""

import weakref
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.clock import Clock
from kip30_conformance.client_faults import ClientFaults
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.ensemble import Ensemble
from kip30_conformance.servers.link import Link


class SteadyFaults(ClientFaults):
    """The faults of a client without a link: in its process, and in the store."""

    @override
    def cut_off(self) -> AbstractContextManager[None]:
        """Raise an error that says what the check lacks: to skip it would hide that."""
        raise LookupError("this client has no link: mark the check with `fault`")


class ServerFaults(ClientFaults):
    """The faults of one client: in its process, on its link, and in the store.

    Attributes:
        link: The client's own, for faults that the suites do not request.
    """

    def __init__(self, client: PluginLocator, link: Link) -> None:
        """Inject faults into *client*."""
        super().__init__(client)
        self.link = link

    @override
    @contextmanager
    def cut_off(self) -> Generator[None]:
        """Keep this client from the store: nothing gets through, in either direction."""
        self.link.cut()
        try:
            yield
        finally:
            self.link.heal()

    @override
    def on_closed(self) -> None:
        self.link.close()

    @override
    def counted(self) -> int:
        """Return the calls struck, the sessions ended, and the bytes that were dropped."""
        return super().counted() + self.link.counted().dropped


class ServerHarness(Harness):
    """Runs the suites on an ensemble, which it does not own.

    Attributes:
        ensemble: The servers.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        """Test the store on *ensemble*."""
        self.ensemble = ensemble
        self.session_seconds = ensemble.session_seconds or self.session_seconds
        self.client_threads = ensemble.client_threads
        self._linked = weakref.WeakKeyDictionary[PluginLocator, ServerFaults]()
        self._steady = weakref.WeakKeyDictionary[PluginLocator, SteadyFaults]()

    @override
    def settings(self) -> Mapping[str, Written]:
        return self.ensemble.settings()

    @override
    def open(self, root: str, *, clock: Clock | None = None, **more: Written) -> PluginLocator:
        link = self.ensemble.link()
        try:
            client = self.started(root, clock=clock, **{**link.settings(), **more})
            self._linked[client] = ServerFaults(client, link)
        except BaseException:
            link.close()
            raise
        return client

    @override
    def open_steady(
        self, root: str, *, clock: Clock | None = None, **more: Written
    ) -> PluginLocator:
        client = self.started(root, clock=clock, **more)
        self._steady[client] = SteadyFaults(client)
        return client

    @override
    def faults(self, client: PluginLocator) -> ClientFaults:
        return self._steady[client] if client in self._steady else self._linked[client]

    def link(self, client: PluginLocator) -> Link:
        """Return the link of *client*, which `open` has opened."""
        return self._linked[client].link

    @override
    def neighbour(self, root: str) -> Neighbour:
        return self.ensemble.neighbour(root)

    @override
    def frozen(self) -> AbstractContextManager[None]:
        return self.ensemble.frozen()

    @contextmanager
    @override
    def late_answers(self, client: PluginLocator) -> Generator[None]:
        link = self.link(client)
        link.half_open("client")
        try:
            yield
        finally:
            link.heal()

    @override
    def servers(self) -> Ensemble:
        return self.ensemble
