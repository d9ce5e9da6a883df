"""The base of every suite: the fixtures through which a check accesses the store."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import pytest

from kip30 import PluginLocator, UnsupportedError
from kip30.config import Written
from kip30.driver import Capability
from kip30.driver.clock import Clock
from kip30_conformance._sealed import Sealed
from kip30_conformance.clients.peer import Peer
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness

P = ParamSpec("P")
T = TypeVar("T")


class OpenClient(Protocol):
    """Opens a client in this process; it is closed when the check ends."""

    def __call__(
        self, other_root: str | None = None, *, clock: Clock | None = None, **more: Written
    ) -> PluginLocator:
        """Open one of *other_root*, or of the check's own, with *more* properties."""
        ...


class OpenPeer(Protocol):
    """Starts a client in a process of its own; it is ended when the check ends."""

    def __call__(self, other_root: str | None = None, **more: Written) -> Peer:
        """Start one of *other_root*, or of the check's own, with *more* properties."""
        ...


Freeze = Callable[[], AbstractContextManager[None]]
"""Returns a context in which the store accepts no write; see `Harness.frozen`."""


class Suite(Sealed):
    """Base of all suites. Its subclass supplies the fixture ``harness``."""

    @pytest.fixture
    def root(self, harness: Harness) -> str:
        """Return a namespace of the check's own."""
        return harness.unique_root()

    @pytest.fixture
    def is_about_faults(self, request: pytest.FixtureRequest) -> bool:
        """Return whether the check bears the marker ``fault``."""
        return request.node.get_closest_marker("fault") is not None

    @pytest.fixture
    def timeouts(self, harness: Harness, *, is_about_faults: bool) -> Mapping[str, Written]:
        """Return the timeouts of the check's clients: patient ones, unless it is about faults."""
        return harness.timeouts if is_about_faults else harness.patient

    @pytest.fixture
    def open_client(
        self,
        harness: Harness,
        root: str,
        timeouts: Mapping[str, Written],
        *,
        is_about_faults: bool,
    ) -> Iterator[OpenClient]:
        """Yield a factory of clients, which can be cut off only in a check about faults."""
        opened = harness.open if is_about_faults else harness.open_steady
        with ExitStack() as clients:

            def open_one(
                other_root: str | None = None, *, clock: Clock | None = None, **more: Written
            ) -> PluginLocator:
                properties = {**timeouts, **more}
                client = opened(other_root or root, clock=clock, **properties)
                return clients.enter_context(client)

            yield open_one

    @pytest.fixture
    def client(self, open_client: OpenClient) -> PluginLocator:
        """Return a client of the check's own root."""
        return open_client()

    @pytest.fixture
    def peer(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written]
    ) -> Iterator[OpenPeer]:
        """Yield a factory of clients in processes of their own."""
        with ExitStack() as peers:

            def start_one(other_root: str | None = None, **more: Written) -> Peer:
                properties = {**timeouts, **more}
                return peers.enter_context(harness.peer(other_root or root, **properties))

            yield start_one

    @pytest.fixture
    def freeze(self, harness: Harness) -> Freeze:
        """Return `Harness.frozen`; where it is not supported, a call of it skips the check."""
        return partial(supported, harness.frozen)

    @pytest.fixture
    def evidence(self, record_property: Callable[[str, object], None]) -> Evidence:
        """Return the evidence to which a check adds proof of its faults; every fault check must."""
        return Evidence(record_property)


def needing(client: PluginLocator, power: Capability) -> AbstractContextManager[object]:
    """Return a context in which *power* works or, if the store does not declare it, is refused."""
    if power in client.backend.capabilities:
        return nullcontext()
    return pytest.raises(UnsupportedError)


def supported(power: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of *power* of the harness; if it is not supported, skip the check."""
    try:
        return power(*args, **kwargs)
    except UnsupportedError as error:
        pytest.skip(str(error))
