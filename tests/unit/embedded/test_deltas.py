"""Deltas that watches report, against states that are read as a whole."""

import random
import threading
from typing import Any

import pytest

from kip30.driver import Watch
from kip30.driver.records import Claim, Condition, Delta, Kind, Snapshot, Target, Write
from kip30.names import Key
from kip30.runtime.subscriptions import Deltas
from kip30_backends.embedded import EmbeddedBackend
from kip30_conformance.polling import time_scale
from tests.embedded_faults import faults_of

NAMESPACE, GROUP = Target(Kind.NAMESPACE, "ns"), Target(Kind.GROUP, "g")


class Told:
    """All states that a sink gets, with a check that each delta names at least what it must."""

    def __init__(self) -> None:
        self.states: list[Snapshot] = []
        self.wrong: list[str] = []
        self.deltas = Deltas()

    def __call__(self, state: Snapshot) -> None:
        self.deltas.note(state)
        for before in self.states[-5:]:
            names = self.deltas.since(before.order)
            if names is not None and not _differing(before, state) <= names:
                self.wrong.append(f"{before.order} to {state.order}: {names}")
        self.states.append(state)

    def names(self) -> set[str]:
        return set(self.states[-1].entries) if self.states else set()


def _differing(one: Snapshot, other: Snapshot) -> set[str]:
    names = one.entries.keys() | other.entries.keys()
    # Only the names of a namespace count; a group's entries are compared as a whole.
    return {
        name
        for name in names
        if (name in one.entries) != (name in other.entries)
        or (name in one.entries and one.entries[name].nonce != other.entries[name].nonce)
    }


def put(backend: EmbeddedBackend, name: str, data: bytes | None = b"1") -> None:
    backend.storage.write(Write(Key("ns", name), "n", data, Condition.ANY)).result()


def test_an_event_names_what_changed_and_an_update_is_none(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    told = Told()
    put(backend, "a")
    backend.observe.watch(NAMESPACE, told)
    eventually(lambda: told.states)
    put(backend, "b")
    eventually(lambda: len(told.states) == 2)
    assert told.states[-1].delta == Delta(told.states[0].order, frozenset({"b"}))
    put(backend, "a", b"2")
    put(backend, "c")
    eventually(lambda: told.names() == {"a", "b", "c"})
    delta = told.states[-1].delta
    assert delta is not None
    assert delta.since <= told.states[1].order
    put(backend, "a", None)
    eventually(lambda: told.names() == {"b", "c"})
    assert not told.wrong


def test_handed_over_states_stay_as_they_are(backend: EmbeddedBackend, eventually: Any) -> None:
    told = Told()
    backend.observe.watch(NAMESPACE, told)
    for number in range(20):
        put(backend, str(number))
        eventually(lambda n=number: len(told.names()) == n + 1)
    assert [len(state.entries) for state in told.states] == sorted(
        {len(state.entries) for state in told.states}
    )


def test_a_log_that_does_not_reach_back_is_followed_by_a_whole_state(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    told = Told()
    put(backend, "gone")
    backend.observe.watch(NAMESPACE, told)
    eventually(lambda: told.states)
    faults_of(backend).watches_paused = True
    put(backend, "gone", None)
    writes = [Write(Key("ns", f"{n % 7}"), "n", b"", Condition.ANY) for n in range(6000)]
    backend.storage.write_many(writes)
    faults_of(backend).watches_paused = False
    eventually(lambda: told.names() == {str(number) for number in range(7)})
    assert [state.delta is None for state in told.states[-1:]] == [True]
    put(backend, "more")
    eventually(lambda: "more" in told.names())
    assert [state.delta is None for state in told.states[-1:]] == [False]
    assert not told.wrong


def test_more_changes_than_are_read_one_by_one(backend: EmbeddedBackend, eventually: Any) -> None:
    told = Told()
    backend.observe.watch(NAMESPACE, told)
    eventually(lambda: told.states)
    for count in (400, 600, 1500):
        faults_of(backend).watches_paused = True
        names = [f"{count}-{number}" for number in range(count)]
        backend.storage.write_many(
            [Write(Key("ns", name), "n", b"", Condition.ANY) for name in names]
        )
        faults_of(backend).watches_paused = False
        eventually(lambda names=names: told.names() >= set(names))
    assert not told.wrong


@pytest.mark.parametrize("target", [NAMESPACE, GROUP], ids=["namespace", "group"])
def test_watches_opened_and_closed_during_writes_get_correct_states(
    open_backend: Any, eventually: Any, target: Target
) -> None:
    backend, writer = open_backend(session=60), open_backend(session=60)
    chance, over = random.Random(3), threading.Event()  # noqa: S311  the choice of writes
    wrong: list[str] = []

    def watch_again_and_again() -> None:
        while not over.is_set():
            told = Told()
            watch: Watch = backend.observe.watch(target, told)
            over.wait(chance.uniform(0, 0.02))
            watch.close()
            count = len(told.states)
            wrong.extend(told.wrong)
            over.wait(0.002)
            if len(told.states) != count:
                wrong.append("told after it was closed")

    threads = [threading.Thread(target=watch_again_and_again) for _ in range(3)]
    for thread in threads:
        thread.start()
    last = Told()
    backend.observe.watch(target, last)
    claims: dict[str, Claim] = {}
    for number in range(int(400 * time_scale())):
        name = chance.choice("abcdefgh")
        if target is NAMESPACE:
            put(writer, name, b"1" if chance.random() < 0.6 else b"2")
            if chance.random() < 0.4:
                put(writer, name, None)
        elif name in claims:
            writer.membership.release("g", claims.pop(name)).result()
        else:
            claims[name] = writer.membership.claim("g", name, str(number), b"").result()
    over.set()
    for thread in threads:
        thread.join()
    read = backend.observe.snapshot(target).result()
    eventually(lambda: last.names() == set(read.entries))
    assert not wrong
    assert not last.wrong
    assert not backend._resources.watches._delivered.keys() - {target}


def test_a_failed_round_is_begun_again(
    backend: EmbeddedBackend, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, failures = Told(), list[int]()
    states = backend._resources.states
    news = states.news

    def fail_at_times(*arguments: Any) -> Any:
        failures.append(len(failures))
        if len(failures) % 2:
            raise OSError(5, "injected")
        return news(*arguments)

    monkeypatch.setattr(states, "news", fail_at_times)
    backend.observe.watch(NAMESPACE, told)
    for number in range(10):
        put(backend, str(number))
    eventually(lambda: len(told.names()) == 10)
    assert failures
    assert not told.wrong
