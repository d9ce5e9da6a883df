"""Reports of the doctor on a cluster that is not there, or not as it should be."""

import socket
from collections.abc import Iterator

import pytest

from kip30.config import Written, build, load
from kip30_backends.cassandra import CassandraSettings
from kip30_backends.cassandra.schema import ddl
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, Link

from .admin import Admin
from .doctor import diagnosis, visit

QUICK: dict[str, Written] = {
    "plugin.backend": "cassandra",
    "plugin.connect.timeout.ms": round(4000 * time_scale()),
}


@pytest.fixture
def reached(ensemble: Ensemble) -> dict[str, Written]:
    return {**QUICK, **ensemble.settings()}


def _at(place: str) -> dict[str, Written]:
    return {**QUICK, "plugin.cassandra.contact.points": place}


def test_nothing_is_wrong(reached: dict[str, Written]) -> None:
    assert visit(**reached) == ([], 0)


def test_a_refused_connection_is_reported() -> None:
    assert diagnosis(**_at("127.0.0.1:1")) == (
        "Cassandra at 127.0.0.1:1: Connection refused:"
        " does a node serve there? See plugin.cassandra.contact.points"
    )


def test_there_is_no_such_host() -> None:
    assert diagnosis(**_at("there-is-no-such-host.invalid")) == (
        "no address is known of there-is-no-such-host.invalid:"
        " check plugin.cassandra.contact.points"
    )


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_silent_server_is_reported(silent: str) -> None:
    told = diagnosis(**_at(silent))
    assert told.startswith(f"Cassandra at {silent}: no answer in time: does a node serve there?")


def test_a_node_out_of_reach(link: Link, reached: dict[str, Written]) -> None:
    link.cut()
    told = diagnosis(**{**reached, **link.settings()})
    assert "no answer in time: does a node serve there?" in told


def test_another_data_centre(reached: dict[str, Written]) -> None:
    elsewhere = {"plugin.cassandra.datacenter": "elsewhere"}
    assert diagnosis(**reached, **elsewhere) == (
        "plugin.cassandra.datacenter = elsewhere: there are nodes in datacenter1 only"
    )


def test_a_missing_keyspace(reached: dict[str, Written]) -> None:
    absent = {"plugin.cassandra.create": "false", "plugin.cassandra.keyspace": "absent"}
    assert diagnosis(**reached, **absent) == (
        "keyspace 'absent' lacks the tables leaders, members, records: make them"
        " (`kip30 config --ddl` shows how) or set plugin.cassandra.create=true"
    )


def test_more_copies_than_nodes(reached: dict[str, Written]) -> None:
    three = {"plugin.cassandra.replication": "3", "plugin.cassandra.keyspace": "three"}
    told = diagnosis(**reached, **three)
    assert told.startswith("keyspace three is to have 3 copies in datacenter1, where ")
    assert told.endswith(
        "sees 1 of the nodes: start the others, or set plugin.cassandra.replication"
    )


def test_fewer_nodes_than_a_quorum_of_the_copies(reached: dict[str, Written], admin: Admin) -> None:
    limiter = {**reached, "plugin.cassandra.keyspace": "few"}
    there = {"plugin.cassandra.datacenter": "datacenter1", "plugin.cassandra.replication": "3"}
    for statement in ddl(build(CassandraSettings, load({**limiter, **there}))):
        admin.tell(statement)
    told = diagnosis(**limiter)
    assert "more nodes must be up to hold a quorum of the copies of keyspace few" in told


def test_copies_in_a_data_centre_that_is_not_there(reached: dict[str, Written]) -> None:
    astray = {"plugin.cassandra.replication": "astray=1", "plugin.cassandra.keyspace": "astray"}
    told = diagnosis(**reached, **astray)
    assert "Unrecognized strategy option {astray}" in told
    assert told.endswith("check plugin.cassandra.replication, and its data centres")


def test_encryption_where_there_is_none(reached: dict[str, Written]) -> None:
    told = diagnosis(**reached, **{"plugin.cassandra.tls": "true"})
    assert "does not speak TLS on that port: unset plugin.cassandra.tls and its files" in told


def test_tables_that_vanish_and_are_not_to_be_made(
    reached: dict[str, Written], admin: Admin
) -> None:
    keyspace = {"plugin.cassandra.keyspace": "emptied"}
    assert visit(**reached, **keyspace).exit_code == 0
    admin.tell("DROP TABLE emptied.members")
    told = diagnosis(**reached, **keyspace, **{"plugin.cassandra.create": "false"})
    assert told.startswith("keyspace 'emptied' lacks the tables members: make them")
