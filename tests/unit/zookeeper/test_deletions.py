"""Watches of a node that is deleted: the event says all, so nothing is read."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.zookeeper.client.messages import GetData, Multi
from kip30_backends.zookeeper.watch import Watches
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

Changes = tuple[Target, Callable[[], object], Callable[[], object]]
"""A watched target, the call that creates it, and the call that deletes it."""


def value(client: PluginLocator) -> Changes:
    storage = client.storage()
    return (
        Target(Kind.VALUE, "n", "a"),
        lambda: storage.put("n/a", "x"),
        lambda: storage.delete("n/a"),
    )


def member(client: PluginLocator) -> Changes:
    group = client.group_membership("g")
    return Target(Kind.MEMBER, "g", "a"), lambda: group.join("a", "x"), lambda: group.leave("a")


def service(client: PluginLocator) -> Changes:
    election = client.leader_election("s")
    return (
        Target(Kind.SERVICE, "s"),
        lambda: election.nominate("a", "x"),
        lambda: election.resign("a"),
    )


Made = Callable[[PluginLocator], Changes]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the requests from now on: paths that are read, and ``multi``."""
    sent: list[str] = []
    get, multi = _counting(GetData, sent), _counting(Multi, sent)
    monkeypatch.setattr(GetData, "serialize", get)
    monkeypatch.setattr(Multi, "serialize", multi)
    return sent


def _counting(kind: type[Any], sent: list[str]) -> Callable[[Any], Any]:
    serialize: Any = kind.serialize

    def counting(request: Any) -> Any:
        sent.append("multi" if isinstance(request, Multi) else request.path)
        return serialize(request)

    return counting


# A value is written before it is deleted, so its event is another one.
@pytest.mark.parametrize("made", [member, service])
def test_a_deletion_is_not_read(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    (target, create, delete), watcher = made(open_client()), open_client()
    create()
    looks = Counter[Watches]()
    real: Any = Watches._look

    def look(watches: Watches, *arguments: Any) -> None:
        looks[watches] += 1
        real(watches, *arguments)

    monkeypatch.setattr(Watches, "_look", look)
    seen: list[Snapshot] = []
    watch = watcher.backend.observe.watch(target, seen.append)
    eventually(lambda: seen and seen[-1].entries)
    (watches,) = looks
    looks.clear()
    delete()
    eventually(lambda: not seen[-1].entries)
    assert not looks[watches]
    create()
    eventually(lambda: seen[-1].entries)
    watch.close()
    orders = [state.order for state in seen]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("made", [value, member, service])
def test_the_last_state_comes_after_many_deletions(open_client: Open, made: Made) -> None:
    (target, create, delete), watcher = made(open_client()), open_client()
    seen: list[Snapshot] = []
    watch = watcher.backend.observe.watch(target, seen.append)
    for _ in range(30):
        create()
        delete()
    create()
    truth = watcher.backend.observe.snapshot(target).result()
    eventually(lambda: seen and seen[-1].entries == truth.entries)
    delete()
    eventually(lambda: not seen[-1].entries)
    watch.close()
    orders = [state.order for state in seen]
    assert orders == sorted(set(orders))


def test_a_candidate_claims_at_a_vacancy_without_a_read(
    open_client: Open, requests: list[str]
) -> None:
    elections = [open_client().leader_election("s") for _ in range(3)]
    for number, election in enumerate(elections):
        election.nominate(str(number), "")
    eventually(lambda: all(one._campaign._line.rank < 2 for one in elections[1:]))
    eventually(lambda: all(one._campaign._watch.latest() for one in elections))
    (leader,) = {one for one in requests if one.endswith("/leader")}
    requests.clear()
    elections[0].resign("0")
    eventually(lambda: elections[1].leadership("1") or elections[2].leadership("2"))
    release = requests.index("multi")
    claim = requests.index("multi", release + 1)
    assert leader not in requests[release:claim]
