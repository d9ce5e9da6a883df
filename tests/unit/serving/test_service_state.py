"""The moment at which a store was last seen: by renewals of a lease, or by reads."""

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import failed
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    LifecycleError,
    StoreError,
    UnavailableError,
)
from kip30.serving.service_state import StoreSight
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually

TIMEOUT = 30.0
SETTINGS: Mapping[str, Written] = {
    "plugin.backend": "embedded",
    "plugin.session.timeout.ms": round(TIMEOUT * 1000),
}


class Reads:
    """Counts the reads of a store, or lets them fail."""

    def __init__(self) -> None:
        self.number = 0
        self.error: Kip30Error | None = None

    def read(self, real: Callable[..., Future[Any]], *keys: Any) -> Future[Any]:
        self.number += 1
        return real(*keys) if self.error is None else failed(self.error)


class Seen:
    """A sight whose looks are made by the test, with a lease of the test's."""

    def __init__(self, locator: PluginLocator, clock: ManualClock) -> None:
        self.clock = clock
        self.reads = Reads()
        wrap(locator.backend.storage, "read", self.reads.read)
        self.renewed_at = -math.inf
        self.sight = StoreSight(locator, lambda: self.renewed_at)

    def look(self) -> float:
        return self.sight._look()

    @property
    def ago(self) -> float:
        return self.clock.now() - self.sight.seen_at()


@pytest.fixture
def locator(tmp_path: Path) -> Iterator[PluginLocator]:
    with PluginLocator(clock=ManualClock()) as locator:
        yield locator.startup({**SETTINGS, "plugin.embedded.directory": tmp_path})


@pytest.fixture
def seen(locator: PluginLocator, monkeypatch: pytest.MonkeyPatch) -> Seen:
    monkeypatch.setattr(StoreSight, "_watch", lambda _: None)
    clock = locator.context.clock
    assert isinstance(clock, ManualClock)
    return Seen(locator, clock)


def test_without_a_lease_a_third_of_the_session_timeout_passes_between_reads(seen: Seen) -> None:
    assert math.isinf(seen.ago)
    for number in range(1, 5):
        assert seen.look() == pytest.approx(TIMEOUT / 3)
        assert (seen.reads.number, seen.ago) == (number, 0)
        seen.clock.advance(TIMEOUT / 6)
        assert seen.look() == pytest.approx(TIMEOUT / 6)
        assert seen.ago == pytest.approx(TIMEOUT / 6)
        seen.clock.advance(TIMEOUT / 6)


def test_a_lease_that_is_renewed_needs_no_read(seen: Seen) -> None:
    for _ in range(5):
        seen.renewed_at = seen.clock.now()
        for _ in range(3):
            seen.look()
            seen.clock.advance(TIMEOUT / 5)  # a renewal is late
    assert seen.reads.number == 0
    assert seen.ago == pytest.approx(TIMEOUT * 3 / 5)
    seen.clock.advance(TIMEOUT / 10)
    seen.look()
    assert (seen.reads.number, seen.ago) == (1, 0)


def test_a_renewal_has_shown_the_store_also_when_the_lease_is_gone(seen: Seen) -> None:
    seen.renewed_at = seen.clock.now()
    seen.look()
    seen.renewed_at = -math.inf
    seen.clock.advance(TIMEOUT / 2)
    assert seen.ago == pytest.approx(TIMEOUT / 2)


@pytest.mark.parametrize(
    ("error", "is_seen"),
    [(AuthenticationError, True), (StoreError, False), (UnavailableError, False)],
)
def test_a_refusal_of_this_key_is_an_answer(
    seen: Seen, error: type[Kip30Error], *, is_seen: bool
) -> None:
    seen.reads.error = error("not this one")
    assert seen.look() == pytest.approx(TIMEOUT / 3)
    assert (seen.reads.number, math.isinf(seen.ago)) == (1, not is_seen)
    seen.reads.error = None
    seen.look()
    assert seen.reads.number == (1 if is_seen else 2)


def test_a_store_that_is_not_open_yet_or_no_longer_is_not_read(
    seen: Seen, locator: PluginLocator
) -> None:
    with pytest.raises(LifecycleError):
        StoreSight(PluginLocator(), lambda: -math.inf)._look()
    locator.close()
    with pytest.raises(ClosedError):
        seen.look()


def test_a_store_that_is_opened_later_is_seen_then(tmp_path: Path) -> None:
    with PluginLocator() as locator:
        sight = StoreSight(locator, lambda: -math.inf)
        assert math.isinf(sight.seen_at())
        locator.startup({**SETTINGS, "plugin.embedded.directory": tmp_path})
        eventually(lambda: math.isfinite(sight.seen_at()))
        sight.close()
        assert not sight._thread.is_alive()
