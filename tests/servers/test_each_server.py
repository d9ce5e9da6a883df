"""A test of each server on its own: `kip30.operations.check_servers`."""

from collections.abc import Callable, Mapping

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30.errors import UnavailableError
from kip30.operations import ServerCheck, check_servers
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, unused_namespace

from .talking import others


def settings(ensemble: Ensemble) -> Mapping[str, Written]:
    return {**ensemble.settings(), **PATIENT, "plugin.namespace": unused_namespace()}


def checked(properties: Mapping[str, Written]) -> dict[str, ServerCheck]:
    return {one.server: one for one in check_servers(properties)}


def test_each_server_is_measured_and_has_a_role(three: Ensemble) -> None:
    properties = settings(three)
    found = checked(properties)
    assert list(found) == [node.address for node in three.nodes]
    for one in found.values():
        assert one.error is None
        assert one.described["version"]
        assert len(one.read_seconds) == 20
        assert one.median_seconds
        assert one.worst_seconds
        assert 0 < one.median_seconds <= one.worst_seconds

    def roles_are_right() -> bool:
        leader = three.leader().address
        roles = {one.server: one.described.get("role") for one in check_servers(properties)}
        return roles == {name: "leader" if name == leader else "follower" for name in roles}

    eventually(roles_are_right, what="one server leads, and it is the right one")


def test_a_dead_server_fails_alone(three: Ensemble) -> None:
    properties = {
        **settings(three),
        "plugin.connect.timeout.ms": round(3_000 * time_scale()),
    }
    dead = others(three, three.leader())[0]
    dead.kill()
    found = checked(properties)
    assert isinstance(found[dead.address].error, UnavailableError)
    assert found[dead.address].read_seconds == ()
    living = [one for name, one in found.items() if name != dead.address]
    assert [one.error for one in living] == [None, None]


@pytest.mark.large
def test_a_node_of_cassandra_is_read_alone(shared_server: Callable[[str], Ensemble]) -> None:
    ensemble = shared_server("cassandra")
    properties = settings(ensemble)
    with PluginLocator().startup(properties):  # makes the tables, which a check does not
        (found,) = check_servers(properties)
    assert (found.server, found.error) == (ensemble.nodes[0].address, None)
    assert found.described["version"].startswith("Cassandra ")
    assert "this one" in found.described["clocks"]
    assert found.median_seconds
