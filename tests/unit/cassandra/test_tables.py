"""Keyspace and tables: made, checked, missing, foreign; and what looking at them costs."""

import time

import pytest

from kip30 import ConfigError, PluginLocator, StoreError, ValueChange
from kip30.config import Written, build, load
from kip30_backends.cassandra import CassandraSettings
from kip30_backends.cassandra.schema import ddl
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

from .admin import Admin
from .conftest import is_set

CHECKED: dict[str, Written] = {"plugin.cassandra.create": False}
READS_A_SECOND = 2
LOOKED_AT = 3
LOOKS = 20


def _in(keyspace: str) -> dict[str, Written]:
    return {"plugin.cassandra.keyspace": keyspace}


def test_missing_tables_are_named_and_not_created(open_client: Open, admin: Admin) -> None:
    with pytest.raises(StoreError, match="'absent' lacks the tables leaders, members, records"):
        open_client(**CHECKED, **_in("absent"))
    assert not admin.tell("SELECT * FROM system_schema.keyspaces WHERE keyspace_name = 'absent'")


def test_another_copy_is_asked_before_a_call_is_over(open_client: Open, admin: Admin) -> None:
    open_client()
    tables = admin.tell(
        "SELECT speculative_retry FROM system_schema.tables WHERE keyspace_name = 'kip30'"
    )
    assert [one["speculative_retry"].lower() for one in tables] == 3 * ["100ms"]


def test_an_administrator_may_make_the_tables(open_client: Open, admin: Admin) -> None:
    properties = load({**_in("prepared"), "plugin.cassandra.replication": 1})
    for statement in ddl(build(CassandraSettings, properties)):
        admin.tell(statement)
    client = open_client(**CHECKED, **_in("prepared"))
    client.storage().put("k", "v")
    assert client.backend.describe()["keyspace"] == "prepared"


def test_a_keyspace_is_the_same_in_any_case(open_client: Open) -> None:
    def made(keyspace: str) -> list[str]:
        return [one.lower() for one in ddl(build(CassandraSettings, load(_in(keyspace))))]

    assert made("Mixed") == made("mixed")
    open_client(**_in("Mixed")).storage().put("k", "v")
    assert open_client(**_in("mixed")).storage().get("k")


def test_tables_of_somebody_else(open_client: Open, admin: Admin) -> None:
    admin.tell(
        "CREATE KEYSPACE foreign_tables WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    for table in ("records", "members", "leaders"):
        admin.tell(f"CREATE TABLE foreign_tables.{table} (k int PRIMARY KEY, v int)")
    with pytest.raises(StoreError, match="use another keyspace"):
        open_client(**_in("foreign_tables"))


def test_dropped_tables_are_created_again_and_watches_go_on(
    open_client: Open, admin: Admin
) -> None:
    client = open_client(**_in("vanishing"))
    heard = Recorder[ValueChange[str]]()
    client.storage().put("k", "old")
    client.listener_registry().add_value_change_listener("k", heard)
    admin.tell("DROP KEYSPACE vanishing")
    eventually(lambda: heard.events and heard.events[-1].value is None, what="it is gone")
    eventually(lambda: is_set(client), what="it can be written again")
    eventually(lambda: heard.events[-1].value == "new", what="and is heard of")


def test_a_data_centre_that_is_not_there(open_client: Open) -> None:
    with pytest.raises(StoreError, match="there are nodes in datacenter1 only"):
        open_client(**{"plugin.cassandra.datacenter": "elsewhere"})


def test_contradicting_periods_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="above half"):
        PluginLocator().startup(
            {
                "plugin.backend": "cassandra",
                "plugin.cassandra.contact.points": "there-is-no-such-host.invalid",
                "plugin.cassandra.le.renew.ttl.period.ms": 6000,
            }
        )


def test_an_idle_watch_costs_at_most_two_reads_a_second(
    ensemble: Ensemble, open_client: Open
) -> None:
    with ensemble.link() as link:
        client = open_client(**link.settings())
        opened = link.round_trips()
        client.listener_registry().add_value_change_listener("n/k", print)
        client.group_membership("g").add_listener(print)
        client.leader_election("s").add_listener(print)
        eventually(lambda: link.round_trips() >= opened + 6, what="each was looked at, and again")
        before, begun = link.round_trips(), time.monotonic()
        most = before + LOOKED_AT * LOOKS
        asked = eventually(lambda: (now := link.round_trips()) >= most and now, within=60) - before
        seconds = time.monotonic() - begun
    jitter, heartbeats = 1 / 0.9, 2 * seconds
    assert asked <= LOOKED_AT * (READS_A_SECOND * seconds * jitter + 1) + heartbeats
