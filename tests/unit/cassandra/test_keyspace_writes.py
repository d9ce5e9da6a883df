"""Tables that are dropped and made again, or made by several clients at once: three nodes."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_backends.cassandra import schema
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import PATIENT

from .admin import Admin

pytestmark = pytest.mark.large

OLD = {f"old/{number:02}": "from before the drop" for number in range(20)}
CLIENTS = 6
ROUNDS = 3


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with needed("cassandra", 3, folder=tmp_path_factory.mktemp("births"), within=120) as servers:
        yield servers


def started(ensemble: Ensemble, keyspace: str, *nodes: int) -> PluginLocator:
    """Open a client that knows *nodes* alone to begin with."""
    addresses = ",".join(ensemble.nodes[index].address for index in nodes)
    properties: dict[str, Written] = {
        **PATIENT,
        **ensemble.settings(),
        "plugin.cassandra.contact.points": addresses,
        "plugin.cassandra.keyspace": keyspace,
        "plugin.namespace": "births",
        "plugin.connect.timeout.ms": 60_000,
    }
    return PluginLocator().startup(properties)


def ids(ensemble: Ensemble, keyspace: str) -> list[Mapping[str, object]]:
    """Return the ids of all tables, as each node has them."""
    found = list[Mapping[str, object]]()
    for node in ensemble.nodes:
        with Admin(node.address) as admin:
            rows = admin.tell(
                "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = %s", keyspace
            )
            found.append({row["table_name"]: row["id"] for row in rows})
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dropped", ["KEYSPACE births", "TABLE births.records"])
def test_data_dropped_while_a_node_was_away_does_not_come_back(
    ensemble: Ensemble, dropped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_RECENT_MICROSECONDS", 0)
    with started(ensemble, "births", 0) as client:
        client.storage().put_many(OLD)
    away = ensemble.nodes[2]
    away.kill()
    with Admin(ensemble.nodes[0].address) as admin:
        eventually(lambda: _is_done(admin, f"DROP {dropped}"), within=60, what="it is dropped")
    with started(ensemble, "births", 0, 1) as client:
        client.storage().put("old/new", "from after the drop")
    away.start()
    ensemble.await_ready(within=120)
    eventually(lambda: _agree(ids(ensemble, "births")), within=90, what="all have the new tables")
    for node in range(3):
        with started(ensemble, "births", node) as client:
            assert list(client.storage().list("old")) == ["old/new"]
            assert client.storage().get("old/07") is None
            assert not client.leader_election("s").get_leader()


@pytest.mark.timeout(300)
def test_clients_that_make_tables_at_once_make_the_same(ensemble: Ensemble) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        for keyspace in (f"at_once_{number}" for number in range(ROUNDS)):
            opening = [
                pool.submit(started, ensemble, keyspace, number % 3) for number in range(CLIENTS)
            ]
            clients = [one.result() for one in opening]
            for number, client in enumerate(clients):
                client.storage().put(f"n/{number}", "v")
            assert [len(list(client.storage().list("n"))) for client in clients] == CLIENTS * [
                CLIENTS
            ]
            for client in clients:
                client.close()
            assert _agree(ids(ensemble, keyspace))


def _agree(found: list[Mapping[str, object]]) -> bool:
    return len(found[0]) == 3 and found == 3 * found[:1]


def _is_done(admin: Admin, cql: str) -> bool:
    try:
        admin.tell(cql)
    except Exception:  # noqa: BLE001  a node that has just died is not known to be dead yet
        return False
    return True
