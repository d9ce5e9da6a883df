"""A system that has no thread to spare, for kip30 or for gRPC."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from types import TracebackType
from typing import Any

import pytest

from kip30 import Kip30Error, UnavailableError, ValueChange
from kip30.runtime.resolution import resolve
from kip30_backends.etcd.client.channel import STATUS, NoThreadError, WatchRpc, channels
from kip30_backends.etcd.client.messages import MESSAGES
from kip30_backends.etcd.client.private_grpc import GRPC
from kip30_backends.etcd.watch import WatchStream
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open
from tests.unit.threads import no_threads

SOON = 5


def _error(future: Future[str | None]) -> BaseException | None:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    assert done.wait(SOON * time_scale())
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


class _Interrupted:
    """A lock; the first thread that comes for it finds that *work* was done a moment before."""

    def __init__(self, lock: threading.Lock, work: Callable[[], object]) -> None:
        self._lock = lock
        self._work: Callable[[], object] | None = work

    def __enter__(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


def test_a_stream_is_served_though_a_call_beside_it_found_no_thread(ensemble: Ensemble) -> None:
    (channel, *_) = channels(resolve(ensemble.settings()).settings)

    def call_in_vain() -> None:
        with no_threads("Thread-"), suppress(NoThreadError):
            channel.call(STATUS, MESSAGES["StatusRequest"](), SOON * time_scale(), ())

    channel._starting = _Interrupted(channel._starting, call_in_vain)  # type: ignore[assignment]
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with closing(channel):
        stream = channel.watch(iter(requests.get, None), ())
        assert channel._starting._work is None  # type: ignore[attr-defined]
        ended = threading.Thread(target=_read_to_its_end, args=(stream,), daemon=True)
        ended.start()
        channel.cancel(stream)
        requests.put(None)
        ended.join(SOON * time_scale())
        assert not ended.is_alive()


def _read_to_its_end(stream: WatchRpc) -> None:
    with suppress(*GRPC.call_errors()):
        list(stream)


def test_a_listener_follows_a_server_that_was_left_while_it_connected(
    open_client: Open, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ensemble.nodes[0].address.partition(":")[2]
    client = open_client(**{"plugin.etcd.endpoints": f"127.0.0.1:{port},localhost:{port}"})
    backend: Any = client.backend
    endpoints, running = backend._resources.calls.endpoints, backend._resources.watches
    left: list[object] = []

    def listening(channel: Any, metadata: Any) -> WatchStream:
        stream = WatchStream(channel, metadata)
        if not left:
            left.append(channel)
            endpoints.leave(channel)
        return stream

    monkeypatch.setattr("kip30_backends.etcd.watch.WatchStream", listening)
    heard: Recorder[ValueChange[str]] = Recorder()
    client.listener_registry().add_value_change_listener("k", heard)
    eventually(
        lambda: running._stream is not None and running._stream.channel is endpoints.current,
        what="the listener is at the server in use",
    )
    assert endpoints.current is not left[0]
    client.storage().put("k", "v")
    heard.expect(lambda change: change.value == "v")
