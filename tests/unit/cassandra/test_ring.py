"""Three nodes, of which one is dead, or frozen, or asked by itself, or lacks the tables."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip30 import PluginLocator, Versioned
from kip30.config import Written
from kip30_backends.cassandra import CassandraBackend
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import timeouts

from .admin import Admin
from .conftest import OPERATION_SECONDS
from .rows import ROW_SECONDS, ends

pytestmark = pytest.mark.large

LAST = 2
RING_SECONDS = OPERATION_SECONDS


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with needed("cassandra", 3, folder=tmp_path_factory.mktemp("three")) as servers:
        yield servers


def _open(servers: Ensemble, **more: Written) -> PluginLocator:
    return PluginLocator().startup({**servers.settings(), **timeouts(RING_SECONDS), **more})


def _short_of(namespace: str) -> dict[str, Written]:
    """Return short timeouts, and *namespace*."""
    milliseconds = 1000 * (ROW_SECONDS - 1)
    return {
        "plugin.namespace": namespace,
        "plugin.session.timeout.ms": milliseconds,
        "plugin.operation.timeout.ms": milliseconds,
    }


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_of_three_is_dead_at_startup(three: Ensemble, dead: int) -> None:
    three.nodes[dead].kill()
    try:
        with _open(three) as client:
            client.storage().put(f"dead/{dead}", "v")
            assert client.storage().fetch(f"dead/{dead}").result() == "v"
    finally:
        three.nodes[dead].restart()
        three.await_ready()


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_calls_go_on_while_one_of_three_is_frozen(three: Ensemble, frozen: int) -> None:
    with _open(
        three, **{"plugin.session.timeout.ms": round(2000 * RING_SECONDS * time_scale())}
    ) as client:
        storage, name = client.storage(), f"frozen/{frozen}"
        storage.put(name, "0")
        member = client.group_membership("frozen").join(name, "")
        three.nodes[frozen].stop()
        try:
            longest = 0.0
            for number in range(30):
                started = time.monotonic()
                storage.update(name, str(number))
                assert storage.fetch(name).result() == str(number)
                longest = max(longest, time.monotonic() - started)
            assert longest < 2 * RING_SECONDS * time_scale()
            assert member.is_valid()
        finally:
            three.nodes[frozen].resume()
            three.await_ready()


@pytest.fixture(scope="module")
def admins(three: Ensemble) -> Iterator[list[Admin]]:
    with ExitStack() as told:
        yield [told.enter_context(Admin(node.address)) for node in three.nodes]


@pytest.fixture
def isolated(three: Ensemble) -> Iterator[Ensemble]:
    """Yield three nodes of which the last one hears nothing of the others."""
    three.isolate(three.nodes[LAST])
    yield three
    three.heal()
    three.await_ready()


def test_a_node_that_does_not_hear_of_tables_makes_them(
    isolated: Ensemble, admins: list[Admin]
) -> None:
    with _open(isolated, **{"plugin.cassandra.keyspace": "unheard"}) as client:
        client.storage().put("k", "v")
    assert _tables(admins[LAST], "unheard") == 3


def test_a_node_without_tables_makes_them_while_others_answer(
    three: Ensemble, admins: list[Admin], request: pytest.FixtureRequest
) -> None:
    with _open(three, **{"plugin.cassandra.keyspace": "unheard_later"}) as client:
        version = client.storage().put("k", "v")
        admins[0].tell("ALTER TABLE unheard_later.records WITH comment = 'an administrator'")
        eventually(lambda: _comment(admins[LAST]), what="it has heard of that")
        request.getfixturevalue("isolated")
        admins[LAST].tell("DROP KEYSPACE unheard_later")
        _ask_first(client, three.nodes[LAST].address)
        assert client.storage().get("k") == Versioned("v", version)
        eventually(lambda: _tables(admins[LAST], "unheard_later") == 3, what="it has made them")
    assert _comment(admins[LAST]) == "an administrator"


def test_others_are_asked_if_a_node_without_tables_may_not_make_them(
    three: Ensemble, admins: list[Admin], request: pytest.FixtureRequest
) -> None:
    settings: dict[str, Written] = {"plugin.cassandra.keyspace": "unheard_for_good"}
    with _open(three, **settings) as maker:
        version = maker.storage().put("k", "v")
    with _open(three, **settings, **{"plugin.cassandra.create": False}) as client:
        request.getfixturevalue("isolated")
        admins[LAST].tell("DROP KEYSPACE unheard_for_good")
        _ask_first(client, three.nodes[LAST].address)
        assert client.storage().get("k") == Versioned("v", version)
    assert _tables(admins[LAST], "unheard_for_good") == 0


def _ask_first(client: PluginLocator, address: str) -> None:
    backend = client.backend
    assert isinstance(backend, CassandraBackend)
    (node,) = (
        one for one in backend._resources.connections.known() if str(one.endpoint) == address
    )
    backend._resources.calls._context.nodes._current = node


def _comment(admin: Admin) -> object:
    asked = "SELECT comment FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    return admin.tell(asked, "unheard_later", "records")[0]["comment"]


def _tables(admin: Admin, keyspace: str) -> int:
    asked = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    return len(admin.tell(asked, keyspace))


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.6, 0.9])
def test_a_disconnected_member_ends_before_its_row_expires_at_any_node(
    three: Ensemble, admins: list[Admin], namespace: str, offset: float
) -> None:
    with (
        three.link() as link,
        _open(three, **{**link.settings(), **_short_of(namespace)}) as client,
    ):
        group = client.group_membership("g")
        eventually(lambda: abs(time.time() % 1 - offset) < 0.05, what="a part of a second")
        member = group.join("m", "")
        link.cut()
        ended, gone = ends(member, admins, namespace)
        link.heal()
    assert ended < gone
    assert gone - ended < ROW_SECONDS
