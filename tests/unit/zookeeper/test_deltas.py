"""Changes that a watch of a group or a namespace reports, and its reads for that."""

from collections.abc import Callable
from typing import Any

import pytest

from kip30 import GroupMembership, PluginLocator
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.zookeeper.client.messages import GetChildren
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

GROUP, NAMESPACE = Target(Kind.GROUP, "g"), Target(Kind.NAMESPACE, "n")
Change = Callable[[PluginLocator, GroupMembership[str]], object]
CHANGES: dict[str, tuple[Target, str, Change]] = {
    "join": (GROUP, "b", lambda _, group: group.join("b", "x")),
    "leave": (GROUP, "a", lambda _, group: group.leave("a")),
    "put": (NAMESPACE, "b", lambda client, _: client.storage().put("n/b", "x")),
    "delete": (NAMESPACE, "a", lambda client, _: client.storage().delete("n/a")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_what_has_changed_is_read(
    open_client: Open, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, name, make = CHANGES[change]
    client, watcher = open_client(), open_client()
    group = client.group_membership("g")
    group.join("a", "x")
    client.storage().put("n/a", "x")
    seen: list[Snapshot] = []
    watch = watcher.backend.observe.watch(target, seen.append)
    eventually(lambda: seen)
    before, lists = seen[-1], counted(monkeypatch)
    make(client, group)
    eventually(lambda: seen[-1] is not before)
    watch.close()
    assert seen[-1].delta is not None
    assert seen[-1].delta.names == {name}
    assert seen[-1].delta.since == before.order
    assert seen[-1].entries.keys() ^ before.entries.keys() == {name}
    assert lists == []


def test_an_update_is_no_state_of_a_namespace(open_client: Open) -> None:
    client, watcher = open_client(), open_client()
    client.storage().put("n/a", "x")
    seen: list[Snapshot] = []
    watch = watcher.backend.observe.watch(NAMESPACE, seen.append)
    eventually(lambda: seen)
    for number in range(20):
        client.storage().update("n/a", str(number))
    client.storage().put("n/b", "x")
    eventually(lambda: "b" in seen[-1].entries)
    watch.close()
    assert len(seen) == 2


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the nodes whose children are asked for from now on."""
    asked: list[str] = []
    serialize: Any = GetChildren.serialize

    def counting(request: GetChildren) -> Any:
        asked.append(request.path)
        return serialize(request)

    monkeypatch.setattr(GetChildren, "serialize", counting)
    return asked
