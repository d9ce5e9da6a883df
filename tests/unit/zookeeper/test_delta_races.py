"""Listeners whose connection breaks again and again while many members and keys come and go."""

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from kip30 import KeySetChange, MembershipChange, PluginLocator
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.zookeeper.client.session_connection import SessionConnection
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, Link, start
from tests.unit.clients import PATIENT, Open

from .test_security import anonymous

CLIENTS = 3
DEPTH = 4
BREAKS = 10
NEWS, LAST_NEWS = 5, 60
"""The number of changes between two breaks, and after the last one."""
ROUNDS = 30
LAST = "last"
TargetStates = Recorder[Snapshot]
GROUP, NAMESPACE = Target(Kind.GROUP, "g"), Target(Kind.NAMESPACE, "n")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder: Path = tmp_path_factory.mktemp("races")
    often = {"JAVA_TOOL_OPTIONS": "-Dznode.container.checkIntervalMs=20"}
    with start("zookeeper", folder=folder, environment=often) as servers:
        yield servers


@pytest.fixture
def link(ensemble: Ensemble) -> Iterator[Link]:
    with ensemble.link() as link:
        yield link


def test_a_group_that_changes_while_connections_break(open_client: Open, link: Link) -> None:
    watcher = open_client(**PATIENT, **link.settings())
    states, heard = TargetStates(), Recorder[MembershipChange[str]]()
    watch = watcher.backend.observe.watch(GROUP, states)
    watcher.group_membership("g").add_listener(heard)
    race(open_client, link, states, come_and_go)
    open_client().group_membership("g").join(LAST, "")
    heard.expect(lambda event: LAST in event.members)
    eventually(lambda: LAST in states.events[-1].entries)
    watch.close()
    truth = watcher.group_membership("g").membership()
    assert dict(heard.events[-1].members) == dict(truth)
    assert states.events[-1].entries.keys() == truth.keys()
    check_deltas(states.events)
    check_members(heard.events)


def test_a_namespace_that_changes_while_connections_break(open_client: Open, link: Link) -> None:
    watcher = open_client(**PATIENT, **link.settings())
    states, heard = TargetStates(), Recorder[KeySetChange]()
    watch = watcher.backend.observe.watch(NAMESPACE, states)
    watcher.listener_registry().add_key_set_change_listener("n", heard)
    race(open_client, link, states, put_and_delete)
    open_client().storage().put(f"n/{LAST}", "")
    heard.expect(lambda event: f"n/{LAST}" in event.keys)
    eventually(lambda: LAST in states.events[-1].entries)
    watch.close()
    truth = set(watcher.storage().list("n"))
    assert heard.events[-1].keys == truth
    assert {f"n/{name}" for name in states.events[-1].entries} == truth
    check_deltas(states.events)
    check_keys(heard.events)


def test_members_join_while_the_server_removes_the_group(
    open_client: Open, link: Link, ensemble: Ensemble, namespace: str
) -> None:
    """With nothing else in it, the group goes as soon as the one member has left."""
    watcher, client = open_client(**PATIENT, **link.settings()), open_client(**PATIENT)
    heard = Recorder[MembershipChange[str]]()
    watcher.group_membership("g").add_listener(heard)
    group, lives = client.group_membership("g"), set[int]()
    with anonymous(ensemble) as look:
        for number in range(ROUNDS):
            group.join("m", str(number))
            lives.add(look.exists(f"/{namespace}/group/g").czxid)
            assert group.membership() == {"m": str(number)}
            heard.expect(partial(_has, str(number)))
            group.leave("m")
            if number % 10 == 0:
                link.reset()
            eventually(lambda: not heard.events[-1].members)
    check_members(heard.events)
    assert len(lives) > 1


Change = Callable[[PluginLocator, int, random.Random], Iterator[None]]


def test_a_watch_that_begins_while_the_connection_of_the_one_before_breaks(
    open_client: Open, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request to end the former watch is sent again, and then after the new one began."""
    watcher = open_client(**PATIENT, **link.settings())
    first, second = TargetStates(), TargetStates()
    watch = watcher.backend.observe.watch(NAMESPACE, first)
    first.expect_count(1)
    link.cut()
    watch.close()
    become: Any = SessionConnection._become
    begins = [partial(watcher.backend.observe.watch, NAMESPACE, second)]

    def begin_and_become(client: SessionConnection, state: str) -> None:
        if begins and state == KeeperState.CONNECTING:
            begins.pop()()
        become(client, state)

    monkeypatch.setattr(SessionConnection, "_become", begin_and_become)
    link.reset()
    link.heal()
    second.expect_count(1)
    for number in range(3):
        open_client().storage().put(f"n/{number}", "")
        eventually(partial(_is_notified, second, str(number)))


def race(open_client: Open, link: Link, states: TargetStates, change: Change) -> None:
    """Let clients *change* things while the connection of the watching one breaks."""
    clients = [open_client(**PATIENT) for _ in range(CLIENTS)]
    enough = threading.Event()

    def run(number: int) -> None:
        chance = random.Random(number)  # noqa: S311  what happens is to be arbitrary
        for _ in change(clients[number], number, chance):
            if enough.is_set():
                return

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(run, number) for number in range(CLIENTS)]
        try:
            for _ in range(BREAKS):
                more(states, NEWS)
                link.reset()
            more(states, LAST_NEWS)
        finally:
            enough.set()
    for one in running:
        one.result()


def more(states: TargetStates, number: int) -> None:
    """Wait for *number* more states."""
    states.expect_count(len(states.events) + number)


def come_and_go(client: PluginLocator, number: int, chance: random.Random) -> Iterator[None]:
    """Let members join in an order, leave in the reverse one, and change their data."""
    group = client.group_membership("g")
    for count, (depth, grows) in enumerate(walk(chance)):
        name = f"{number}-{depth}"
        if grows:
            group.join(name, str(count))
        elif depth and chance.random() < 0.3:
            group.update(f"{number}-0", str(count))
            group.leave(name)
        else:
            group.leave(name)
        yield


def put_and_delete(client: PluginLocator, number: int, chance: random.Random) -> Iterator[None]:
    """Put keys in an order, and delete them in the reverse one."""
    storage = client.storage()
    for depth, grows in walk(chance):
        name = f"n/{number}-{depth}"
        if grows:
            storage.put(name, "")
        else:
            storage.delete(name)
        yield


def walk(chance: random.Random) -> Iterator[tuple[int, bool]]:
    """Yield which name comes (or goes), so that of all names the first few are there."""
    depth = 0
    while True:
        grows = not depth or (depth < DEPTH and chance.random() < 0.5)
        yield (depth, True) if grows else (depth - 1, False)
        depth += 1 if grows else -1


def check_deltas(states: list[Snapshot]) -> None:
    """Require each state to differ from those that its delta is about in no other names."""
    assert any(state.delta is not None for state in states)
    for before, state in itertools.combinations(states, 2):
        assert before.order < state.order
        if state.delta is not None and before.order >= state.delta.since:
            names = before.entries.keys() | state.entries.keys()
            changed = {one for one in names if before.entries.get(one) != state.entries.get(one)}
            assert changed <= state.delta.names


def _is_notified(states: TargetStates, name: str) -> bool:
    return name in states.events[-1].entries


def _has(data: str, event: MembershipChange[str]) -> bool:
    return event.members.get("m") == data


def check_order(names: Iterable[str]) -> None:
    """Require that of each client's names the first few are there: so they came and went."""
    there = set(names) - {LAST}
    for name in there:
        client, _, depth = name.partition("-")
        assert depth == "0" or f"{client}-{int(depth) - 1}" in there, there


def check_members(heard: list[MembershipChange[str]]) -> None:
    """Require each event to say how its members differ from those before, and none to go back."""
    known: dict[str, str] = {}
    newest: dict[str, int] = {}
    order = -1
    for event in heard:
        assert event.members.order > order
        order = event.members.order
        now = dict(event.members)
        check_order(now.keys() - {"m"})
        assert event.joined == now.keys() - known.keys()
        assert event.left == known.keys() - now.keys()
        both = now.keys() & known.keys()
        assert {one for one in both if now[one] != known[one]} <= event.updated <= both
        for name in event.joined | event.updated:
            if name != LAST:
                assert int(now[name]) > newest.get(name, -1)
                newest[name] = int(now[name])
        known = now


def check_keys(heard: list[KeySetChange]) -> None:
    """Require each event to say how its keys differ from those before."""
    known: frozenset[str] = frozenset()
    for event in heard:
        check_order(one.partition("/")[2] for one in event.keys)
        assert event.added == event.keys - known
        assert event.removed == known - event.keys
        assert event.added | event.removed
        known = event.keys
