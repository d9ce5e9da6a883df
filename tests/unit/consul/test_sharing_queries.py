"""Watches that share a query: the delay of their notifications, and the cost to the servers."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, sleep

import pytest

from kip30 import BYTES, ValueChange
from kip30.driver.records import Kind, Snapshot, Target, new_nonce
from kip30_backends.consul import ConsulBackend
from kip30_backends.consul.blocking_query import ConsulWatch, SharedPoll
from kip30_backends.consul.client import endpoints
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.client.operation_requests import (
    OK_OR_ABSENT,
    OperationRequests,
    TypedRequest,
)
from kip30_backends.consul.watch import Watches
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import PATIENT, Open

MANY = 1000
SECONDS = 3.0


class Requests:
    """Counts the requests of each thread, except blocking queries and those about sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = Counter[str]()
        send = endpoints.Adapter.send

        def counted(http: endpoints.Adapter, *request: object) -> Answer:
            if "session" not in str(request[1]):
                self._count[threading.current_thread().name] += 1
            return send(http, *request)  # type: ignore[arg-type]

        monkeypatch.setattr(endpoints.Adapter, "send", counted)

    def of_watches(self) -> int:
        names = ("kip30-consul", "kip30-consul-watch")
        return sum(self._count[name] for name in names)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


@pytest.fixture(params=["absent", "present"])
def heard(
    request: pytest.FixtureRequest, open_client: Open
) -> dict[str, Recorder[ValueChange[bytes]]]:
    """Return listeners of many keys, once the state of each is known."""
    client = open_client(**PATIENT)
    listeners = {f"n/{number}": Recorder[ValueChange[bytes]]() for number in range(MANY)}
    if request.param == "present":
        client.storage(BYTES).put_many(dict.fromkeys(listeners, b""))
    registry = client.listener_registry(BYTES)
    for key, listener in listeners.items():
        registry.add_value_change_listener(key, listener)
    return listeners


def test_a_single_listener_among_a_thousand_is_notified_in_time(
    heard: dict[str, Recorder[ValueChange[bytes]]], open_client: Open
) -> None:
    writer = open_client(**PATIENT)
    storage, bound = writer.storage(BYTES), writer.backend.limits.observe_seconds + 0.5
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            storage.set("n/1", b"again")
            stop.wait(0.05)

    other = threading.Thread(target=write)
    other.start()
    try:
        for number in range(0, MANY, 200):
            key = f"n/{number}"
            began = monotonic()
            storage.set(key, b"new")
            heard[key].expect(lambda event: event.value == b"new")
            assert monotonic() - began < bound * time_scale()
    finally:
        stop.set()
        other.join()


def test_a_first_answer_that_arrives_during_a_shared_reading_hides_no_change(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The presence of a key was once checked twice, and its watch was in neither of two lists."""
    client, storage = open_client(**PATIENT), open_client(**PATIENT).storage()
    keys = [f"n/{number}" for number in range(6)]  # the last two share a query
    storage.put_many(dict.fromkeys(keys, "before"))
    recorders = {key: Recorder[ValueChange[str]]() for key in keys}
    registry = client.listener_registry()
    for key in keys[:-1]:
        registry.add_value_change_listener(key, recorders[key], initial=True)
    first_answer: list[Callable[[], None]] = []
    reads: list[int] = []
    changes = threading.Event()  # the query may end for another reason before the key changes
    read_together = SharedPoll._read_together

    def read_first(
        watches: Watches, watch: ConsulWatch, _: object, requests: OperationRequests
    ) -> None:
        sent = watches._states.mark(watch.place)
        asked = TypedRequest("GET", watch.place.url, watch.understand, answers=OK_OR_ABSENT)
        index, content = requests.ask(asked)
        first_answer.append(lambda: watch.tell(watches._states.order(index, sent), content))

    def answer_and_read(poll: SharedPoll, watches: Sequence[ConsulWatch]) -> list[ConsulWatch]:
        if changes.is_set() and first_answer:
            reads.clear()
            first_answer.pop()()
        reads.append(len(watches))
        return read_together(poll, watches)

    monkeypatch.setattr(Watches, "_read_first", read_first)
    monkeypatch.setattr(SharedPoll, "_read_together", answer_and_read)
    add = partial(registry.add_value_change_listener, keys[-1], recorders[keys[-1]], initial=True)
    adding = threading.Thread(target=add)
    adding.start()
    eventually(lambda: first_answer, what="the first answer is there, and not delivered")
    changes.set()
    storage.update(keys[-1], "racing")
    recorders[keys[-1]].expect(lambda event: event.value == "racing")
    adding.join()
    assert len(reads) == 1  # not after a later change, nor once the query has timed out


def test_a_write_elsewhere_costs_nothing(
    heard: dict[str, Recorder[ValueChange[bytes]]], open_client: Open, requests: Requests
) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    storage.set("n/5", b"last")
    heard["n/5"].expect(lambda event: event.value == b"last")
    _until_idle(requests)
    before = requests.of_watches()
    for number in range(50):
        storage.set("elsewhere/k", b"%d" % number)
    sleep(SECONDS)  # the time without changes that is measured
    # All are read once in ten seconds in any case: a request for 64 of them.
    assert requests.of_watches() - before <= 1 + MANY // 64


def _until_idle(requests: Requests) -> None:
    def is_idle() -> bool:
        before = requests.of_watches()
        sleep(0.5)
        return requests.of_watches() == before

    eventually(is_idle, within=30)


def test_updates_hand_over_the_same_set_of_keys(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    storage.put("n/k", b"0")
    told: list[Snapshot] = []
    open_client(**PATIENT).backend.observe.watch(Target(Kind.NAMESPACE, "n"), told.append)
    eventually(lambda: told)
    for number in range(5):
        version = storage.update("n/k", b"%d" % number)
        eventually(partial(_is_notified, told, version.major))
    assert all(one.entries is told[0].entries for one in told)
    storage.put("n/l", b"")
    eventually(lambda: set(told[-1].entries) == {"k", "l"})


def _is_notified(told: list[Snapshot], index: int) -> bool:
    return told[-1].order & (1 << 64) - 1 >= index


def test_own_members_are_read_together_once_they_are_watched(
    open_client: Open, requests: Requests
) -> None:
    backend = open_client(**PATIENT).backend
    assert isinstance(backend, ConsulBackend)
    backend._resources.sessions.on_renewed = lambda: None  # so no renewal reads them
    names = [f"m{number}" for number in range(MANY)]
    claiming = [backend.membership.claim("g", name, new_nonce(), b"") for name in names]
    versions = {one.result().name: one.result().entry.version for one in claiming}
    received, before = {name: Recorder[Snapshot]() for name in names}, requests.of_watches()
    for name, recorder in received.items():
        backend.observe.watch(Target(Kind.MEMBER, "g", name), recorder)
    eventually(lambda: all(one.events for one in received.values()), what="all have a state")
    shown = {name: one.events[-1].entries[name].version for name, one in received.items()}
    assert shown == versions
    assert requests.of_watches() - before < MANY / 10


def test_many_members_are_released_together(open_client: Open) -> None:
    client = open_client(**PATIENT)
    membership = client.backend.membership
    claims = [
        membership.claim("g", f"m{number}", f"{number:016x}", b"").result() for number in range(150)
    ]
    other = membership.claim("g", "other", "ff" * 8, b"").result()
    successor = open_client(**PATIENT).backend.membership
    membership.release("g", claims[70]).result()
    successor.claim("g", "m70", "ee" * 8, b"").result()
    answers = membership.release_many("g", claims)
    assert [answer.result() for answer in answers] == [None] * 150
    state = client.backend.observe.snapshot(Target(Kind.GROUP, "g")).result()
    assert set(state.entries) == {"m70", other.name}
    assert membership.release_many("g", []) == []
