"""A system that has no thread to spare, for kip30 or for gRPC."""

import threading
from concurrent.futures import Future

import pytest

from kip30 import Kip30Error, UnavailableError, ValueChange
from kip30_conformance.patience import TIME_SCALE, eventually
from kip30_conformance.recorder import Recorder
from tests.unit.clients import Open
from tests.unit.threads import no_threads

SOON = 5 * TIME_SCALE


def _error(future: Future[str | None]) -> BaseException | None:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    assert done.wait(SOON)
    return future.exception()


def test_a_call_that_grpc_has_no_thread_for_fails_and_later_ones_do_not(open_client: Open) -> None:
    storage = open_client().storage()
    storage.put("k", "v")
    with no_threads("Thread-"):  # as gRPC's are called
        for _ in range(3):
            assert isinstance(_error(storage.fetch("k")), UnavailableError)
    for _ in range(3):
        future = storage.fetch("k")
        assert _error(future) is None
        assert future.result() == "v"


@pytest.mark.parametrize("prefix", ["kip30-etcd-watch", "Thread-"])
def test_a_listener_that_there_is_no_thread_for_hears_later(open_client: Open, prefix: str) -> None:
    client = open_client()
    client.storage().put("k", "0")
    heard: Recorder[ValueChange[str]] = Recorder()
    with no_threads(prefix):
        client.listener_registry().add_value_change_listener("k", heard)
        client.storage().update("k", "1")
    heard.expect(lambda change: change.value == "1")


def test_a_claim_that_there_is_no_thread_for_can_be_made_later(open_client: Open) -> None:
    group = open_client().group_membership("g")
    with no_threads("kip30-etcd-session"), pytest.raises(UnavailableError, match="no thread"):
        group.join("m", "")
    member = group.join("m", "")
    eventually(member.is_valid, what="the member is in")


def test_all_is_closed(open_client: Open) -> None:
    before = threading.active_count()
    client = open_client()
    client.listener_registry().add_value_change_listener("k", print)
    with no_threads():
        client.close()
    eventually(lambda: threading.active_count() <= before, what="all threads have ended")
    with pytest.raises(Kip30Error):
        client.storage()
