"""Groups that are read in several pages, all as of one revision."""

import time
from typing import Any

import pytest

from kip30.driver.kit import batch_splitting
from kip30.driver.records import Kind, Target
from kip30_backends.etcd.client import messages
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open, timeouts

DATA = {f"m{number:02d}": f"{number:04d}" * 250 for number in range(12)}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_splitting, "RECORDS_AT_FIRST", 4)
    monkeypatch.setattr(batch_splitting, "_ANSWER_BYTES", 6000)


def _noted(monkeypatch: pytest.MonkeyPatch, after_first: Any = lambda: None) -> list[int]:
    """Return a list of the limits of the pages read from now on; call *after_first* once."""
    limits: list[int] = []
    page = messages.page

    def noting(key: bytes, end: bytes, **options: Any) -> Any:
        limits.append(options["limit"])
        if len(limits) == 2:
            after_first()
        return page(key, end, **options)

    monkeypatch.setattr(messages, "page", noting)
    return limits


def test_a_group_of_large_records_is_read_in_pages(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = open_client().group_membership("g")
    for member, value in DATA.items():
        group.join(member, value)
    reader = open_client().group_membership("g")
    limits = _noted(monkeypatch)
    assert reader.membership() == DATA
    assert limits == [4, 5, 5]


def test_a_group_is_read_again_if_its_history_is_compacted_between_two_pages(
    open_client: Open, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = open_client().group_membership("g")
    for member, value in DATA.items():
        group.join(member, value)
    reader = open_client().group_membership("g")

    def change_and_compact() -> None:
        group.update("m00", "new")
        ensemble.compact()

    limits = _noted(monkeypatch, change_and_compact)
    assert reader.membership() == {**DATA, "m00": "new"}
    assert limits[0] == limits[2] == 4


def test_a_state_that_is_wanted_after_the_operation_timeout_gets_no_more_time(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = open_client(**timeouts(0.3)).backend
    calls, given = backend._resources.calls, list[float]()
    send = calls.send

    def noting(ask: Any, seconds: float) -> Any:
        given.append(seconds)
        return send(ask, seconds)

    monkeypatch.setattr(calls, "send", noting)
    late = time.monotonic() + calls.seconds
    look = backend.observe.snapshot(Target(Kind.GROUP, "g"))
    eventually(lambda: time.monotonic() > late, what="its time has passed")
    look.exception()
    assert given[0] < 0.1
