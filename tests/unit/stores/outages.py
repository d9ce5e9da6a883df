"""Servers that die, freeze, or come back empty."""

import time

import pytest

from kip30 import PluginLocator, UnavailableError, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open, timeouts

OPERATION_SECONDS = 1.5
"""The operation timeout of `open_client`, and that of `open_patiently` on a quick machine."""


def open_patiently(servers: Ensemble) -> PluginLocator:
    """Open a client of all *servers*, whose operation timeout follows the machine."""
    return PluginLocator().startup({**servers.settings(), **timeouts(OPERATION_SECONDS)})


class OutageCases:
    """Cases on one server, which is the tests' own, and on three."""

    def test_a_server_that_comes_back_empty(self, ensemble: Ensemble, open_client: Open) -> None:
        client, heard = open_client(), Recorder[ValueChange[str]]()
        storage = client.storage()
        version = storage.put("k", "old")
        for _ in range(20):
            version = storage.update("k", "old")
        client.listener_registry().add_value_change_listener("k", heard)
        election = client.leader_election("s")
        assert election.nominate("c", "")
        old = election.leadership("c")
        assert old is not None
        ensemble.nodes[0].restart(empty=True)
        eventually(lambda: heard.events and heard.events[-1].value is None)
        eventually(lambda: not old.is_valid(), what="the term of the lost data is over")
        new = eventually(lambda: election.leadership("c"), what="there is a new term")
        assert new.is_valid()
        eventually(lambda: client.storage().put("k", "new") < version)
        eventually(lambda: heard.events[-1].value == "new")

    @pytest.mark.parametrize("dead", [0, 1, 2])
    def test_one_of_three_is_dead_at_startup(self, three: Ensemble, dead: int) -> None:
        three.nodes[dead].kill()
        try:
            with open_patiently(three) as client:
                client.storage().put(f"dead/{dead}", "v")
                assert client.storage().fetch(f"dead/{dead}").result() == "v"
        finally:
            three.restart()

    def test_reads_and_close_end_in_time_at_a_frozen_server(
        self, ensemble: Ensemble, open_client: Open
    ) -> None:
        client = open_client()
        client.group_membership("g").join("m", "")
        futures = []
        with ensemble.frozen():
            started = time.monotonic()
            futures = [client.storage().fetch(f"k{number}") for number in range(1000)]
            assert {type(future.exception()) for future in futures} == {UnavailableError}
            assert time.monotonic() - started < OPERATION_SECONDS * 1.1 + 2 * time_scale()
            started = time.monotonic()
            client.close()
            assert time.monotonic() - started < OPERATION_SECONDS * time_scale()
