"""Settings that an operator may write, and those that are refused."""

import pytest

from kip30 import ConfigError
from kip30.config import Written, build, load
from kip30_backends.cassandra import CassandraBackend, CassandraSettings
from kip30_backends.cassandra.schema import ddl, tables
from tests.unit.stores.settings import LoginSettingsCases

SESSION_SECONDS = 9.0


def _built(**properties: Written) -> CassandraSettings:
    return build(CassandraSettings, load(properties))


class TestSettings(LoginSettingsCases):
    store = "cassandra"
    settings = CassandraSettings
    addresses = "contact.points"
    default_port = 9042


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2", "{'class': 'NetworkTopologyStrategy', 'east': 2}"),
        ("east=3, west = 1", "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 1}"),
        ("o'b=1", "{'class': 'NetworkTopologyStrategy', 'o''b': 1}"),
    ],
)
def test_replication(written: str, shown: str) -> None:
    settings = _built(
        **{"plugin.cassandra.replication": written, "plugin.cassandra.datacenter": "east"}
    )
    assert ddl(settings)[0].endswith(f"WITH replication = {shown}")


@pytest.mark.parametrize(
    ("key", "written", "hint"),
    [
        ("replication", "many", "dc1=3,dc2=3"),
        ("replication", "dc1=0", "dc1=3,dc2=3"),
        ("keyspace", "drop table", "up to 48 letters"),
        ("keyspace", "k" * 49, "up to 48 letters"),
        ("address.map", "one:1", "reported=reachable"),
        ("lr.pull.period.ms", "0", "at least 10"),
    ],
)
def test_invalid_settings_are_refused_with_a_hint(key: str, written: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"plugin\.cassandra\.{key}.*{hint}"):
        _built(**{f"plugin.cassandra.{key}": written})


def test_an_address_map() -> None:
    settings = _built(**{"plugin.cassandra.address.map": "10.0.0.1=db1:9142, 10.0.0.2:1=db2"})
    assert settings.address_map is not None
    assert {str(told): str(reached) for told, reached in settings.address_map.items()} == {
        "10.0.0.1:9042": "db1:9142",
        "10.0.0.2:1": "db2:9042",
    }


def test_the_settings_of_the_plugin_that_was_first() -> None:
    settings = _built(
        **{
            "plugin.cassandra.contact.points": "db1,db2",
            "plugin.cassandra.keyspace": "kafka_plugin",
            "plugin.cassandra.le.renew.ttl.period.ms": "1000",
            "plugin.cassandra.lr.pull.period.ms": "5000",
        }
    )
    assert [str(address) for address in settings.contact_points] == ["db1:9042", "db2:9042"]
    assert settings.keyspace == "kafka_plugin"
    assert settings.renewal_within(SESSION_SECONDS) == 1.0
    assert settings.pull_seconds == 5.0


def test_its_period_of_renewals() -> None:
    assert _built().renewal_within(SESSION_SECONDS) == 3.0
    slow = _built(**{"plugin.cassandra.le.renew.ttl.period.ms": 4500})
    assert slow.renewal_within(SESSION_SECONDS) == 4.5
    with pytest.raises(ConfigError, match=r"above half of plugin\.session\.timeout\.ms"):
        slow.renewal_within(8.9)


def test_the_ddl_makes_every_table_and_leaves_its_id_to_cassandra() -> None:
    mine = ddl(_built(**{"plugin.cassandra.keyspace": "mine"}))
    assert [line.split("(")[0] for line in mine[1:]] == [
        f"CREATE TABLE IF NOT EXISTS mine.{table} " for table in ("records", "members", "leaders")
    ]
    assert not [line for line in mine if "WITH id" in line]


def test_ids_follow_from_the_name_and_the_moment_of_the_keyspace() -> None:
    made = [tables(name, moment) for name, moment in (("a", 1), ("A", 1), ("a", 2), ("b", 1))]
    ids = [[line.partition("WITH id = ")[2][:36] for line in lines] for lines in made]
    assert ids[0] == ids[1]
    assert len({one for some in ids for one in some}) == 9


def test_each_contact_point_can_be_reached_alone() -> None:
    settings = _built(**{"plugin.cassandra.contact.points": "one,two:9142"})
    found = CassandraBackend.servers(settings)
    assert [name for name, _ in found] == ["one:9042", "two:9142"]
    assert [list(map(str, one.contact_points)) for _, one in found] == [["one:9042"], ["two:9142"]]
    assert not any(one.create for _, one in found)
