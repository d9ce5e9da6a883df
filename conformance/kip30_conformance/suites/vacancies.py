"""The number of candidates, of many, that claim a service that becomes vacant: L41."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kip30 import Leadership, PluginLocator
from kip30.runtime.candidate_line import NEAR, line_group
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, Suite

_CANDIDATES = 16
_TERMS = 8
_WITHOUT_LINE = _CANDIDATES // 2
"""The number of claims allowed where candidates form no line: not all look at the same moment."""


class VacancyTests(Suite):
    """A vacancy costs the store the same with any number of waiting candidates."""

    def test_L41_claims_at_a_vacancy(self, open_client: OpenClient) -> None:
        """Few of many candidates claim a service when its leader resigns, and one leads."""
        clients = [open_client() for _ in range(_CANDIDATES)]
        elections = [client.leader_election("s") for client in clients]
        elected, claims = Recorder[Leadership](), _Counter()
        for number, election in enumerate(elections):
            election.nominate(str(number), "", on_elected=elected)
        wait_in_line(clients[0], "s", _CANDIDATES - 1)
        for client in clients:
            wrap(client.backend.election, "claim", claims.count)
        for turn in range(_TERMS):
            term = elected.expect_count(turn + 1)[-1]
            elections[int(term.candidate)].resign(term.candidate)
        terms = elected.expect_count(_TERMS + 1)
        assert len({term.candidate for term in terms}) == len(terms)
        forms_line = clients[0].backend.election.forms_line
        assert claims.number <= (NEAR if forms_line else _WITHOUT_LINE) * _TERMS


def wait_in_line(client: PluginLocator, service: str, number: int) -> None:
    """Wait until that number of candidates have a place, on a store with a line of candidates."""
    if client.backend.election.forms_line:
        group = client.group_membership(line_group(service))
        eventually(lambda: len(group.membership_list()) == number, what="all are in the line")


class _Counter:
    """Counts calls of one method of many drivers."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def count(self, real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
        with self._lock:
            self.number += 1
        return real(*arguments)
