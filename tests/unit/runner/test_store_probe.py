"""The read by which a program that only waits finds out whether its store still answers."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.driver.kit.futures import failed
from kip30.errors import AuthenticationError, UnavailableError
from kip30.names import Key
from kip30.runner import retried_call
from kip30.runner.retried_call import StoreProbe
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually
from tests.unit.threads import no_threads

Read = Callable[[Sequence[Key]], Future[Any]]


class Permissions:
    """Lets a client read, or refuses it as a store does that limits its credentials to some keys.

    Attributes:
        grants: Whether reads are done.
        reads: How many there were.
    """

    def __init__(self, locator: PluginLocator) -> None:
        self.grants = False
        self.reads = 0
        wrap(locator.backend.storage, "read", self._read)

    def await_reads(self, probe: StoreProbe) -> None:
        """Check *probe* until it has seen the answers to two more reads."""
        wanted = self.reads + 3  # the last one may be under way

        def has_read() -> bool:
            probe.check()
            return self.reads >= wanted

        eventually(has_read, what="it reads again")

    def _read(self, real: Read, keys: Sequence[Key]) -> Future[Any]:
        self.reads += 1
        return real(keys) if self.grants else failed(AuthenticationError("not permitted"))


@pytest.fixture
def locator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[PluginLocator]:
    monkeypatch.setattr(retried_call, "_PROBE_SECONDS", 0.0)
    properties = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path)}
    with closing(PluginLocator()) as started:
        yield started.startup(properties)


def test_a_key_that_may_never_be_read_is_an_answer(locator: PluginLocator) -> None:
    """Credentials for some keys alone suffice for a program that watches one of these."""
    Permissions(locator).await_reads(StoreProbe(locator))


def test_credentials_that_were_withdrawn_are_an_error(locator: PluginLocator) -> None:
    permissions, probe = Permissions(locator), StoreProbe(locator)
    permissions.grants = True
    permissions.await_reads(probe)
    permissions.grants = False
    with pytest.raises(AuthenticationError, match="not permitted"):
        permissions.await_reads(probe)


def test_a_read_without_a_thread_to_spare_is_an_outage_that_ends(locator: PluginLocator) -> None:
    permissions, probe = Permissions(locator), StoreProbe(locator)
    permissions.grants = True
    with no_threads("kip30-opening"), pytest.raises(UnavailableError, match="no thread to spare"):
        probe.check()
    permissions.await_reads(probe)
