"""A close that Ctrl-C interrupts: it ends everything else all the same."""

from collections.abc import Callable
from typing import Any

import pytest

from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.servers import Ensemble
from tests.unit.clients import opening, unused_namespace

_PARTS: dict[str, Callable[[Any], tuple[object, str]]] = {
    "etcd": lambda resources: (resources.sessions, "close"),
    "consul": lambda resources: (resources.sessions, "close"),
    "cassandra": lambda resources: (resources.claims, "close"),
    "zookeeper": lambda resources: (resources.watches, "close"),
    "zookeeper connection": lambda resources: (resources.sessions.current.connection, "end"),
}


@pytest.mark.parametrize("part", _PARTS)
def test_an_interrupted_close_leaves_nothing_behind(
    part: str, shared_server: Callable[[str], Ensemble], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = part.partition(" ")[0]
    with opening(shared_server(store), unused_namespace()) as open_client:
        open_client().close()  # what is loaded or started once stays
        before = resources_held()
        client: Any = open_client()
        client.group_membership("g").join("m", "")
        owner, name = _PARTS[part](client.backend._resources)
        monkeypatch.setattr(owner, name, _interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.close()
        expect_no_more_than(before)


def _interrupted() -> None:
    raise KeyboardInterrupt
